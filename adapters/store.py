"""An append-only store of memory records whose forks cost O(1).

What a store wrote since it was created or forked is its trunk. A fork is a link to (what came before, the
trunk, the trunk's length now): it copies nothing, and as trunks only grow and readers look only below their
length, neither side ever sees what the other writes later. A fork gets a trunk of its own with its first
write.

    main   ───────────●──────────●─────────▶   one trunk, growing
                      │          └ fork B: (main, 90)
                      └ fork A: (main, 40) ──▶ own trunk
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from adapters import bm25, dense
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


class _Prefix(NamedTuple):
    """The first `length` records of a trunk, after those of `base`; `total` counts both."""

    base: _Prefix | None
    trunk: _Trunk
    length: int
    total: int


class Store:
    """Memory records in the order of writing, searchable, with O(1) forks.

    `dimensions`: length of the vectors that come with the records (0: none, and no dense search). `lexical`:
    index the texts for BM25. Write from one thread; a fork may be read in another thread meanwhile.
    """

    __slots__ = ("_base", "_dimensions", "_lexical", "_own")

    def __init__(self, *, dimensions: int = 0, lexical: bool = False) -> None:
        self._dimensions = dimensions
        self._lexical = lexical
        self._base: _Prefix | None = None
        self._own: _Trunk | None = None

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

    def fork(self) -> Self:
        """A store with the same records; later writes on either side stay there. O(1) in time and memory."""
        child = copy.copy(self)
        child._base = self._tip()
        child._own = None
        return child

    def _tip(self) -> _Prefix | None:
        if self._own is None:
            return self._base
        length = len(self._own.records)
        return _Prefix(self._base, self._own, length, length + (self._base.total if self._base else 0))

    def _parts(self) -> list[_Prefix]:
        """Oldest first."""
        parts = []
        prefix = self._tip()
        while prefix is not None:
            parts.append(prefix)
            prefix = prefix.base
        return parts[::-1]

    def __len__(self) -> int:
        tip = self._tip()
        return tip.total if tip else 0

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
