"""Rankings of whole sessions: BM25 over their texts, the mean of their turns' vectors, and both fused.

These are the baselines that RealMem's memory systems are held against (docs/realmem.md). A ranking over the first n
sessions uses what is known of these alone: document frequencies and lengths as if the later ones, and those of other
forks, did not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters import bm25, dense
from adapters.english import english_terms
from adapters.forks import Forks
from adapters.ranking import Hit, fuse

K1: Final = 1.5
B: Final = 0.75


class _Trunk:
    """Sessions in order. Shared by forks, written by its index alone."""

    __slots__ = ("means", "postings")

    def __init__(self, dimensions: int) -> None:
        self.postings = bm25.Postings(english_terms)
        self.means = dense.Vectors(dimensions) if dimensions else None

    def __len__(self) -> int:
        return len(self.postings)


class SessionIndex(Forks[_Trunk]):
    """Sessions in the order in which they were had; append-only, with O(1) forks. `dimensions`: length of the turns'
    vectors, 0 for none and no dense ranking. Write from one thread; a fork may be read in another meanwhile."""

    __slots__ = ("_dimensions",)

    def __init__(self, *, dimensions: int = 0) -> None:
        super().__init__()
        self._dimensions = dimensions

    def add(self, turns: Sequence[str], vectors: NDArray[np.float32] | None = None) -> None:
        """Append a session: its turns' texts and, with dimensions, one vector for each."""
        wanted = (len(turns), self._dimensions) if self._dimensions else None
        if (None if vectors is None else vectors.shape) != wanted:
            raise ValueError(
                f"{len(turns)} turns with {'no' if vectors is None else len(vectors)} vectors, where the index has "
                f"{f'one of {self._dimensions} dimensions each' if wanted else 'none'}"
            )
        if self._own is None:
            self._own = _Trunk(self._dimensions)
        if self._own.means is not None and vectors is not None:
            self._own.means.append(_mean(vectors))
        self._own.postings.append("\n".join(turns))  # last: it is what the trunk's length counts

    def lexical(self, query: str, sessions: int, k: int) -> list[Hit]:
        """The k best of the first `sessions` by BM25 (k1 = 1.5, b = 0.75; stemmed English terms without stop words,
        each of the query's once). Sessions without any of its terms are not found."""
        parts = [(trunk.postings, length) for trunk, length in self._first(sessions)]
        return bm25.search(parts, query, k, k1=K1, b=B, distinct=True)

    def dense(self, query: NDArray[np.float32], sessions: int, k: int) -> list[Hit]:
        """The k best of the first `sessions` by cosine with the mean of their turns."""
        if not self._dimensions:
            raise ValueError("an index without vectors has no dense ranking")
        parts = [(trunk.means, length) for trunk, length in self._first(sessions) if trunk.means is not None]
        return dense.search(parts, query, k)

    def fused(self, query: str, vector: NDArray[np.float32], sessions: int, k: int) -> list[Hit]:
        """The k best by both rankings, each whole, fused by reciprocal rank."""
        return fuse([self.lexical(query, sessions, sessions), self.dense(vector, sessions, sessions)], k)

    @staticmethod
    def recency(sessions: int, k: int) -> list[Hit]:
        """The newest first."""
        return [Hit(row, float(row + 1)) for row in range(sessions - 1, max(sessions - 1 - k, -1), -1)]

    def _first(self, sessions: int) -> list[tuple[_Trunk, int]]:
        """The trunks that hold the first `sessions`, oldest first, and how many of them each holds."""
        found = []
        for part in self._parts():
            length = min(part.length, sessions - (part.total - part.length))
            if length > 0:
                found.append((part.trunk, length))
        return found


def _mean(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """One normalised row."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    norm = float(np.linalg.norm(mean)) or 1.0
    row: NDArray[np.float32] = (mean / norm).astype(np.float32)[np.newaxis]
    return row
