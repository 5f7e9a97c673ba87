"""RealMem's measures against oracles written straight from the published formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.retrieval import (
    first_mentions,
    helpfulness,
    memory_recall,
    ndcg,
    qa_score,
    recall_all,
    recall_any,
)

CORPUS = list(range(12))
RANKED = st.permutations(CORPUS).flatmap(lambda p: st.integers(0, len(p)).map(lambda n: list(p[:n])))
GOLD = st.sets(st.sampled_from(CORPUS), min_size=1)
K = st.integers(1, 15)


def published_dcg(relevances: list[int], k: int) -> float:
    """relevances[0] + sum(relevances[1:] / log2(2, 3, 4 ...)), as the benchmark's script has it."""
    kept = relevances[:k]
    if not kept:
        return 0.0
    total = float(kept[0])
    divisor = 2
    for relevance in kept[1:]:
        total += relevance / math.log(divisor, 2)
        divisor += 1
    return total


@given(ranked=RANKED, gold=GOLD, k=K)
def test_the_measures_are_those_of_the_published_script(ranked: list[int], gold: set[int], k: int) -> None:
    relevances = [1 if item in gold else 0 for item in CORPUS]
    ideal = published_dcg(sorted(relevances, reverse=True), k)
    found = published_dcg([relevances[item] for item in ranked], k)
    assert abs(ndcg(ranked, gold, k) - found / ideal) < 1e-9
    top = []
    for place, item in enumerate(ranked):
        if place < k:
            top.append(item)
    hits = [item for item in gold if item in top]
    assert recall_any(ranked, gold, k) == (1.0 if hits else 0.0)
    assert recall_all(ranked, gold, k) == (1.0 if len(hits) == len(gold) else 0.0)
    assert recall_all(ranked, gold, k) <= recall_any(ranked, gold, k)
    assert 0.0 <= ndcg(ranked, gold, k) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("ranked", "gold", "k", "expected"),
    [
        (["a", "b"], {"a"}, 10, 1.0),
        (["b", "a"], {"a"}, 10, 1.0),  # the second place counts whole: log2(2) = 1
        (["b", "c", "a"], {"a"}, 10, 1 / math.log2(3)),
        (["b", "c", "d", "a"], {"a"}, 10, 0.5),
        (["b", "c", "d", "a"], {"a"}, 3, 0.0),
        (["a", "b", "c"], {"a", "c"}, 10, (1 + 1 / math.log2(3)) / 2),
        (["a"], {"a", "x", "y"}, 10, 1 / (2 + 1 / math.log2(3))),  # what could not be found is in the ideal
        (["a"], {"a", "x", "y"}, 1, 1.0),  # but for what k has no room for
        ([], {"a"}, 10, 0.0),
    ],
)
def test_ndcg_by_hand(ranked: list[str], gold: set[str], k: int, expected: float) -> None:
    assert abs(ndcg(ranked, gold, k) - expected) < 1e-9


def test_a_session_counts_once_where_it_stands_best() -> None:
    assert first_mentions(["s2", "s1", "s2", "s3", "s1"]) == ["s2", "s1", "s3"]


def test_the_scales() -> None:
    assert [qa_score(rating) for rating in range(4)] == [0.0, 1 / 3, 2 / 3, 1.0]
    assert [helpfulness(rating) for rating in range(3)] == [0.0, 0.5, 1.0]
    assert memory_recall(1, 4) == 0.25
    for wrong in (lambda: qa_score(4), lambda: helpfulness(-1), lambda: memory_recall(2, 1)):
        with pytest.raises(ValueError, match=r"not 0 to|gold memory items"):
            wrong()


def test_without_gold_there_is_nothing_to_measure() -> None:
    for measure in (recall_any, recall_all, ndcg):
        with pytest.raises(ValueError, match="no gold"):
            measure(["a"], (), 10)
        with pytest.raises(ValueError, match="the first 0"):
            measure(["a"], ("a",), 0)
