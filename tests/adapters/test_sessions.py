"""Rankings of whole sessions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

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
