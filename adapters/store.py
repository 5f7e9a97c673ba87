"""A store of memory records, searchable by words and vectors, whose forks cost O(1) (`adapters.forks`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from adapters import bm25, dense
from adapters.forks import Forks
from adapters.ranking import Hit, fuse
from simulator.events import MemoryRecord

_FUSION_DEPTH = 100
"""How many of each ranking the fusion sees: beyond rank 100 a single ranking adds less than 1/160."""


class _Trunk:
    """Records in the order of writing, and their indexes. Shared by forks, written by its store alone."""

    __slots__ = ("postings", "records", "vectors")

    def __init__(self, dimensions: int, lexical: bool) -> None:
        self.records: list[MemoryRecord] = []
        self.vectors = dense.Vectors(dimensions) if dimensions else None
        self.postings = bm25.Postings() if lexical else None

    def __len__(self) -> int:
        return len(self.records)


class Store(Forks[_Trunk]):
    """Memory records in the order of writing, searchable, with O(1) forks.

    `dimensions`: length of the vectors that come with the records (0: none, and no dense search). `lexical`:
    index the texts for BM25. Write from one thread; a fork may be read in another thread meanwhile.
    """

    __slots__ = ("_dimensions", "_lexical")

    def __init__(self, *, dimensions: int = 0, lexical: bool = False) -> None:
        super().__init__()
        self._dimensions = dimensions
        self._lexical = lexical

    def add(self, records: Sequence[MemoryRecord], vectors: NDArray[np.float32] | None = None) -> None:
        """Append records, with one vector each if the store has dimensions."""
        shape = None if vectors is None else vectors.shape
        if shape != ((len(records), self._dimensions) if self._dimensions else None):
            raise ValueError(
                f"{len(records)} records of {self._dimensions} dimensions with vectors of {shape}"
            )
        if not records:
            return
        if self._own is None:
            self._own = _Trunk(self._dimensions, self._lexical)
        if self._own.vectors is not None and vectors is not None:
            self._own.vectors.append(vectors)
        if self._own.postings is not None:
            for record in records:
                self._own.postings.append(record.text)
        self._own.records.extend(records)

    def __iter__(self) -> Iterator[MemoryRecord]:
        for part in self._parts():
            yield from part.trunk.records[: part.length]

    def __reversed__(self) -> Iterator[MemoryRecord]:
        for part in reversed(self._parts()):
            for index in range(part.length - 1, -1, -1):
                yield part.trunk.records[index]

    def record(self, row: int) -> MemoryRecord:
        """The record at a place that a search gave; 0 is the oldest."""
        prefix = self._tip()
        while prefix is not None and row < prefix.total - prefix.length:
            prefix = prefix.base
        if prefix is None or not 0 <= row < prefix.total:
            raise IndexError(f"no record {row} in a store of {len(self)}")
        return prefix.trunk.records[row - (prefix.total - prefix.length)]

    def search_dense(self, query: NDArray[np.float32], k: int) -> list[Hit]:
        """The k records with the greatest dot product, exactly."""
        parts = [(p.trunk.vectors, p.length) for p in self._parts() if p.trunk.vectors is not None]
        return dense.search(parts, query, k)

    def search_lexical(self, query: str, k: int) -> list[Hit]:
        """The k best records by BM25 over the visible records alone."""
        parts = [(p.trunk.postings, p.length) for p in self._parts() if p.trunk.postings is not None]
        return bm25.search(parts, query, k)

    def search(self, query: str, vector: NDArray[np.float32] | None, k: int) -> list[Hit]:
        """The k best records by what the store indexes: vectors, words, or both fused by reciprocal rank."""
        if vector is None:
            return self.search_lexical(query, k)
        if not self._lexical:
            return self.search_dense(vector, k)
        depth = max(k, _FUSION_DEPTH)
        return fuse([self.search_dense(vector, depth), self.search_lexical(query, depth)], k)
