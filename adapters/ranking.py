"""Rankings: the best of many scores, and reciprocal rank fusion. Equal scores stand in record order, so that
a ranking is the same in every run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RRF_K = 60
"""Cormack, Clarke and Büttcher (SIGIR 2009)."""


class Hit(NamedTuple):
    """One found record: its place in the store (0 is the oldest) and its score (more is better)."""

    row: int
    score: float


def best(scores: NDArray[np.float64], k: int, *, above: float = -math.inf) -> list[Hit]:
    """The k best of those scores that are greater than `above`, best first; `scores[i]` is record i's."""
    if k < 1:
        return []
    candidates = np.flatnonzero(scores > above)
    if len(candidates) > k:
        # Keep all that tie with the k-th: which of them stay is the order's business, not the partition's.
        found = scores[candidates]
        candidates = candidates[found >= np.partition(found, len(found) - k)[len(found) - k]]
    order = np.argsort(-scores[candidates], kind="stable")[:k]
    return [Hit(int(i), float(scores[i])) for i in candidates[order]]


def fuse(rankings: Sequence[Sequence[Hit]], k: int) -> list[Hit]:
    """Reciprocal rank fusion: a record scores the sum of 1 / (60 + rank) over the rankings that found it,
    with ranks from 1."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, start=1):
            scores[hit.row] = scores.get(hit.row, 0.0) + 1.0 / (RRF_K + rank)
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [Hit(row, score) for row, score in ordered[: max(k, 0)]]
