from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule

from adapters.ranking import fuse
from adapters.store import Store
from simulator.events import MemoryRecord
from tests.adapters.helpers import record, vector_of

TEXT = st.lists(st.sampled_from(["tea", "cup", "rain", "key", "dog"]), min_size=1, max_size=4).map(" ".join)
DIMENSIONS = 16


class ForksMachine(RuleBasedStateMachine):
    """Writes, forks and searches in any order, against plain lists that are copied at each fork."""

    stores = Bundle("stores")

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    @rule(target=stores)
    def create(self) -> tuple[Store, list[MemoryRecord]]:
        return Store(dimensions=DIMENSIONS, lexical=True), []

    @rule(pair=stores, texts=st.lists(TEXT, max_size=3))
    def write(self, pair: tuple[Store, list[MemoryRecord]], texts: list[str]) -> None:
        store, model = pair
        records = [record(self.written + i, text) for i, text in enumerate(texts)]
        self.written += len(records)
        store.add(records, np.array([vector_of(t) for t in texts], np.float32).reshape(-1, DIMENSIONS))
        model.extend(records)

    @rule(target=stores, pair=stores)
    def fork(self, pair: tuple[Store, list[MemoryRecord]]) -> tuple[Store, list[MemoryRecord]]:
        store, model = pair
        return store.fork(), list(model)

    @rule(pair=stores, query=TEXT, k=st.integers(1, 5))
    def search(self, pair: tuple[Store, list[MemoryRecord]], query: str, k: int) -> None:
        store, model = pair
        assert list(store) == model
        assert list(reversed(store)) == model[::-1]
        assert len(store) == len(model)
        assert [store.record(row) for row in range(len(model))] == model

        fresh = Store(dimensions=DIMENSIONS, lexical=True)
        fresh.add(model, np.array([vector_of(r.text) for r in model], np.float32).reshape(-1, DIMENSIONS))
        vector = vector_of(query)
        scores = {row: float(vector_of(r.text) @ vector) for row, r in enumerate(model)}
        assert store.search_lexical(query, k) == fresh.search_lexical(query, k)
        found = store.search_dense(vector, len(model))
        assert dict(found) == pytest.approx(scores, abs=2e-6)
        assert found == sorted(found, key=lambda h: (-h.score, h.row))
        assert [h.row for h in store.search_dense(vector, k)] == [h.row for h in found][:k]
        assert store.search(query, vector, k) == fuse(
            [store.search_dense(vector, 100), store.search_lexical(query, 100)], k
        )


TestForks = ForksMachine.TestCase
TestForks.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_equal_texts_stand_in_record_order() -> None:
    store = Store(dimensions=DIMENSIONS, lexical=True)
    texts = ["rain", "tea", "rain", "tea", "tea"]
    store.add([record(i, t) for i, t in enumerate(texts)], np.stack([vector_of(t) for t in texts]))
    fork = store.fork()
    fork.add([record(5, "tea")], vector_of("tea")[None])
    assert [hit.row for hit in fork.search_dense(vector_of("tea"), 3)] == [1, 3, 4]
    assert [hit.row for hit in fork.search_lexical("tea", 3)] == [1, 3, 4]
    assert [hit.row for hit in fork.search("tea", vector_of("tea"), 4)] == [1, 3, 4, 5]


def test_unwritten_forks_share_one_link() -> None:
    store = Store()
    store.add([record(1)])
    fork = store.fork()
    for _ in range(10_000):
        fork = fork.fork()
    assert list(fork) == [record(1)]  # no chain of empty trunks grew


def test_vectors_must_fit() -> None:
    store = Store(dimensions=4)
    with pytest.raises(ValueError, match="4 dimensions"):
        store.add([record(1)])
    with pytest.raises(ValueError, match="4 dimensions"):
        store.add([record(1)], np.zeros((2, 4), np.float32))
    assert len(store) == 0


def test_rows_outside_are_refused() -> None:
    store = Store()
    store.add([record(1)])
    for row in (-1, 1):
        with pytest.raises(IndexError):
            store.fork().record(row)


def test_a_fork_is_read_in_a_thread_while_the_store_grows() -> None:
    store = Store(dimensions=DIMENSIONS, lexical=True)
    texts = [f"tea number {n}" for n in range(50)]
    store.add([record(i, t) for i, t in enumerate(texts)], np.stack([vector_of(t) for t in texts]))
    fork, vector = store.fork(), vector_of("tea number 7")
    expected = fork.search("tea number 7", vector, 10)
    differing: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = fork.search("tea number 7", vector, 10)
            if found != expected:
                differing.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    rows = np.stack([vector_of("tea number 7")] * 10)
    for _ in range(500):
        store.add([record(i, "tea number 7") for i in range(10)], rows)
    done.set()
    reader.join()
    assert not differing
    assert len(store) == 5050
