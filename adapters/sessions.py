"""Rankings of whole sessions: BM25 over their texts, the mean of their turns' vectors, and both fused.

These are the baselines that RealMem's memory systems are held against (docs/realmem.md). A ranking over the first n
sessions uses what is known of these alone: document frequencies and lengths as if the later ones did not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters import bm25, dense
from adapters.english import english_terms
from adapters.ranking import Hit, fuse

K1: Final = 1.5
B: Final = 0.75


class SessionIndex:
    """Sessions in the order in which they were had; append-only. `dimensions`: length of the turns' vectors, 0 for
    none and no dense ranking."""

    def __init__(self, *, dimensions: int = 0) -> None:
        self._postings = bm25.Postings(english_terms)
        self._means = dense.Vectors(dimensions) if dimensions else None

    def __len__(self) -> int:
        return len(self._postings)

    def add(self, turns: Sequence[str], vectors: NDArray[np.float32] | None = None) -> None:
        """Append a session: its turns' texts and, with dimensions, one vector for each."""
        if (vectors is None) != (self._means is None) or (vectors is not None and len(vectors) != len(turns)):
            raise ValueError(
                f"{len(turns)} turns with {'no' if vectors is None else len(vectors)} vectors, where the index has "
                f"{'none' if self._means is None else 'one each'}"
            )
        if self._means is not None and vectors is not None:
            mean = vectors.mean(axis=0, dtype=np.float64)
            norm = float(np.linalg.norm(mean)) or 1.0
            self._means.append((mean / norm).astype(np.float32)[np.newaxis])
        self._postings.append("\n".join(turns))

    def lexical(self, query: str, sessions: int, k: int) -> list[Hit]:
        """The k best of the first `sessions` by BM25 (k1 = 1.5, b = 0.75; stemmed English terms without stop words,
        each of the query's once). Sessions without any of its terms are not found."""
        return bm25.search([(self._postings, sessions)], query, k, k1=K1, b=B, distinct=True)

    def dense(self, query: NDArray[np.float32], sessions: int, k: int) -> list[Hit]:
        """The k best of the first `sessions` by cosine with the mean of their turns."""
        if self._means is None:
            raise ValueError("an index without vectors has no dense ranking")
        return dense.search([(self._means, sessions)], query, k)

    def fused(self, query: str, vector: NDArray[np.float32], sessions: int, k: int) -> list[Hit]:
        """The k best by both rankings, each whole, fused by reciprocal rank."""
        return fuse([self.lexical(query, sessions, sessions), self.dense(vector, sessions, sessions)], k)

    @staticmethod
    def recency(sessions: int, k: int) -> list[Hit]:
        """The newest first."""
        return [Hit(row, float(row + 1)) for row in range(sessions - 1, max(sessions - 1 - k, -1), -1)]
