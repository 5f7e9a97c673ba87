from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import bm25
from adapters.english import english_terms
from adapters.store import Store
from simulator.text import tokens
from tests.adapters.helpers import record

WORDS = st.lists(st.sampled_from(["tea", "Tea", "cup", "rain", "我", "喝", "茶", "key_1", "!"]), max_size=8)
TEXTS = st.lists(WORDS.map(" ".join), max_size=12)


def plain_bm25(texts: list[str], query: str) -> list[tuple[int, float]]:
    """Straight from the formula, one record at a time."""
    split = [tokens(text) for text in texts]
    total = sum(map(len, split))
    scores = []
    for row, words in enumerate(split):
        score = 0.0
        for token in tokens(query):
            tf = words.count(token)
            df = sum(token in other for other in split)
            if tf:
                idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
                norm = 1.2 * (1 - 0.75 + 0.75 * len(words) / (total / len(texts)))
                score += idf * tf / (tf + norm)
        if score > 0:
            scores.append((row, score))
    return sorted(scores, key=lambda item: (-round(item[1], 9), item[0]))


def store_of(texts: list[str]) -> Store:
    store = Store(lexical=True)
    store.add([record(number, text) for number, text in enumerate(texts)])
    return store


@given(past=TEXTS, future=TEXTS, overlay=TEXTS, second=TEXTS, query=WORDS.map(" ".join))
def test_a_fork_scores_as_bm25_built_from_its_records_alone(
    past: list[str], future: list[str], overlay: list[str], second: list[str], query: str
) -> None:
    main = store_of(past)
    fork = main.fork()
    main.add([record(100 + i, text) for i, text in enumerate(future)])
    fork.add([record(200 + i, text) for i, text in enumerate(overlay)])
    fork_of_fork = fork.fork()
    fork.add([record(300, "later tea tea")])
    fork_of_fork.add([record(400 + i, text) for i, text in enumerate(second)])

    visible = past + overlay + second
    found = fork_of_fork.search_lexical(query, 100)
    assert found == store_of(visible).search_lexical(query, 100)  # to the last bit

    expected = plain_bm25(visible, query)
    assert dict(found) == pytest.approx(dict(expected), abs=1e-9)
    assert [hit.row for hit in sorted(found, key=lambda h: (-round(h.score, 9), h.row))] == [
        row for row, _ in expected
    ]
    assert main.search_lexical(query, 100) == store_of(past + future).search_lexical(query, 100)


def test_known_scores() -> None:
    found = store_of(["red tea", "green tea tea", "water"]).search_lexical("tea", 10)
    # N = 3, df = 2, lengths 2, 3, 1 with average 2
    idf = math.log(1 + 1.5 / 2.5)
    assert dict(found) == pytest.approx({0: idf / (1 + 1.2), 1: idf * 2 / (2 + 1.2 * (0.25 + 0.75 * 1.5))})
    assert [hit.row for hit in found] == [1, 0]


def test_nothing_to_find() -> None:
    assert Store(lexical=True).search_lexical("tea", 5) == []
    assert store_of(["", "!?"]).search_lexical("tea", 5) == []
    assert store_of(["tea"]).search_lexical("", 5) == []


def test_a_reader_of_a_prefix_may_hold_it_while_postings_grow() -> None:
    postings = bm25.Postings()
    for _ in range(10):
        postings.append("tea tea")
    rows, counts = postings.cut("tea", 7)
    lengths = postings.token_counts(7)
    for _ in range(10_000):
        postings.append("tea")
    np.testing.assert_array_equal(rows, np.arange(7))
    np.testing.assert_array_equal(counts, np.full(7, 2))
    np.testing.assert_array_equal(lengths, np.full(7, 2.0))


def test_terms_split_texts_and_queries_alike() -> None:
    postings = bm25.Postings(english_terms)
    for text in ("She was painting the halls", "a painted hall, and another", "the kettle"):
        postings.append(text)
    plain = bm25.Postings()
    for text in ("paint hall", "paint hall anoth", "kettl"):
        plain.append(text)
    found = bm25.search([(postings, 3)], "Where are paintings of a hall?", 10)
    # "paintings" has the stem "paint"; "where", "are", "of" and "a" are no terms.
    assert found == bm25.search([(plain, 3)], "paint hall", 10)
    assert [hit.row for hit in found] == [0, 1]
    assert english_terms("我们 kettles aren't here") == ["我", "们", "kettl"]


def test_distinct_counts_a_repeated_token_once() -> None:
    postings = bm25.Postings()
    for text in ("tea", "rain", "tea rain"):
        postings.append(text)
    once = bm25.search([(postings, 3)], "rain tea", 10)
    assert bm25.search([(postings, 3)], "rain tea tea tea", 10, distinct=True) == once
    repeated = bm25.search([(postings, 3)], "rain tea tea tea", 10)
    assert ([hit.row for hit in once], [hit.row for hit in repeated]) == ([2, 0, 1], [0, 2, 1])
    assert repeated[0].score == pytest.approx(3 * once[1].score)
