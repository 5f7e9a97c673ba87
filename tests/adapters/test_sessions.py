"""Rankings of whole sessions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule
from numpy.typing import NDArray

from adapters.ranking import fuse
from adapters.sessions import SessionIndex

WORDS = st.sampled_from(["tea", "cups", "rain", "kettle", "the"])
TURNS = st.lists(st.lists(WORDS, max_size=5).map(" ".join), min_size=1)
SESSIONS = st.lists(TURNS, max_size=8)


def vectors(turns: list[str]) -> NDArray[np.float32]:
    """A made-up embedding: how often each word stands in a turn, normalised."""
    words = ("tea", "cups", "rain", "kettle")
    rows = np.array([[turn.split().count(word) + 0.1 for word in words] for turn in turns], np.float32)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def index_of(sessions: list[list[str]]) -> SessionIndex:
    index = SessionIndex(dimensions=4)
    for turns in sessions:
        index.add(turns, vectors(turns))
    return index


@given(SESSIONS, SESSIONS, st.lists(st.sampled_from(["tea", "cup", "raining"]), min_size=1).map(" ".join))
def test_later_sessions_change_nothing(past: list[list[str]], future: list[list[str]], query: str) -> None:
    alone, whole = index_of(past), index_of(past + future)
    vector = vectors([query])[0]
    assert len(whole) == len(past) + len(future)
    assert whole.lexical(query, len(past), 5) == alone.lexical(query, len(past), 5)
    assert whole.dense(vector, len(past), 5) == alone.dense(vector, len(past), 5)
    assert whole.fused(query, vector, len(past), 5) == alone.fused(query, vector, len(past), 5)


def test_a_sessions_vector_is_the_mean_of_its_turns() -> None:
    index = index_of([["tea", "tea", "rain"], ["kettle"], ["rain", "rain", "tea"]])
    assert [hit.row for hit in index.dense(vectors(["rain"])[0], 3, 3)] == [2, 0, 1]
    mean = vectors(["tea", "tea", "rain"]).mean(axis=0)
    expected = float(mean @ vectors(["rain"])[0] / np.linalg.norm(mean))
    assert index.dense(vectors(["rain"])[0], 1, 1)[0].score == pytest.approx(expected, abs=1e-6)


def test_recency_and_no_session_at_all() -> None:
    assert [hit.row for hit in SessionIndex.recency(5, 3)] == [4, 3, 2]
    assert [hit.row for hit in SessionIndex.recency(2, 20)] == [1, 0]
    assert SessionIndex.recency(0, 3) == []
    index = index_of([["tea"]])
    assert index.lexical("tea", 0, 5) == index.dense(vectors(["tea"])[0], 0, 5) == []


def test_vectors_and_dimensions_go_together() -> None:
    with pytest.raises(ValueError, match="2 turns with 1 vectors"):
        SessionIndex(dimensions=4).add(["tea", "rain"], vectors(["tea"]))
    with pytest.raises(ValueError, match="where the index has none"):
        SessionIndex().add(["tea"], vectors(["tea"]))
    with pytest.raises(ValueError, match="no dense ranking"):
        SessionIndex().dense(vectors(["tea"])[0], 0, 1)


class ForksMachine(RuleBasedStateMachine):
    """Sessions and forks in any order, against lists that are copied at each fork: a fork ranks as an index that was
    made from what it sees, document frequencies and lengths included."""

    indexes = Bundle("indexes")

    @rule(target=indexes)
    def create(self) -> tuple[SessionIndex, list[list[str]]]:
        return SessionIndex(dimensions=4), []

    @rule(pair=indexes, sessions=SESSIONS)
    def write(self, pair: tuple[SessionIndex, list[list[str]]], sessions: list[list[str]]) -> None:
        index, model = pair
        for turns in sessions:
            index.add(turns, vectors(turns))
        model.extend(sessions)

    @rule(target=indexes, pair=indexes)
    def fork(self, pair: tuple[SessionIndex, list[list[str]]]) -> tuple[SessionIndex, list[list[str]]]:
        index, model = pair
        return index.fork(), list(model)

    @rule(pair=indexes, query=TURNS, k=st.integers(1, 5), data=st.data())
    def rank(
        self, pair: tuple[SessionIndex, list[list[str]]], query: list[str], k: int, data: st.DataObject
    ) -> None:
        index, model = pair
        assert len(index) == len(model)
        first = data.draw(st.integers(0, len(model)))
        fresh, asked, vector = index_of(model[:first]), query[0], vectors(query)[0]
        assert index.lexical(asked, first, k) == fresh.lexical(asked, first, k)
        near, expected = index.dense(vector, first, k), fresh.dense(vector, first, k)
        # a product's last bits hang on a row's place in its matrix
        assert [hit.score for hit in near] == pytest.approx([hit.score for hit in expected], abs=2e-6)
        assert index.fused(asked, vector, first, k) == fuse(
            [index.lexical(asked, first, first), index.dense(vector, first, first)], k
        )


TestForks = ForksMachine.TestCase
TestForks.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_what_another_fork_holds_makes_no_term_more_common() -> None:
    main = SessionIndex()
    for turns in (["tea and rain"], ["cups"], ["tea"]):
        main.add(turns)
    alone, before = main.fork(), main.lexical("tea rain", 3, 3)
    for _ in range(50):
        main.add(["rain"])
        alone.add(["tea"])
    assert main.fork().lexical("tea rain", 3, 3) == before
    weights = {word: alone.lexical(word, 53, 1)[0].score for word in ("tea", "rain")}
    assert weights["rain"] > 10 * weights["tea"]  # rare on this side, whatever the other wrote
