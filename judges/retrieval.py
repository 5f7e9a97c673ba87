"""RealMem's measures, exactly as published: ranked sessions held against gold ones, and the scales of its judge.

The published DCG is not the usual one: the first position is not discounted and the second is divided by
log2(2) = 1, so that both count whole. Source: the benchmark's own evaluation script (docs/realmem.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from itertools import islice
from typing import Final, TypeVar

Id = TypeVar("Id", bound=Hashable)

QA_SCALE: Final = 3
"""The judge of answers says 0 (contradicts the memory), 1 (generic), 2 (uses part) or 3 (uses all of it)."""
HELPFUL_SCALE: Final = 2
"""The judge of what was retrieved says 0 (misleads), 1 (helps in part) or 2 (helps wholly)."""


def first_mentions(ranked: Sequence[Id]) -> list[Id]:
    """The ranking with each item once, where it stands best: several records of one session are one session."""
    return list(dict.fromkeys(ranked))


def recall_any(ranked: Sequence[Id], gold: Collection[Id], k: int) -> float:
    """1.0 if any gold item is among the first k, else 0.0. Raises ValueError without gold."""
    _need(gold, k)
    return float(any(item in gold for item in islice(ranked, k)))


def recall_all(ranked: Sequence[Id], gold: Collection[Id], k: int) -> float:
    """1.0 if all gold items are among the first k, else 0.0. Raises ValueError without gold."""
    _need(gold, k)
    return float(set(gold) <= set(islice(ranked, k)))


def dcg(relevances: Sequence[float]) -> float:
    """rel_1 + the sum over i >= 2 of rel_i / log2(i)."""
    return math.fsum(
        relevance if place == 1 else relevance / math.log2(place)
        for place, relevance in enumerate(relevances, start=1)
    )


def ndcg(ranked: Sequence[Id], gold: Collection[Id], k: int) -> float:
    """DCG of the first k over the DCG of the best k that the whole corpus holds: all gold first, whether or not it
    could be found. Each item of `ranked` must stand there once. Raises ValueError without gold."""
    _need(gold, k)
    found = dcg([float(item in gold) for item in islice(ranked, k)])
    return found / dcg([1.0] * min(len(set(gold)), k))


def memory_recall(covered: int, gold: int) -> float:
    """Share of the gold memory items that what was retrieved covers, in [0, 1]. Raises ValueError for numbers that
    can't be."""
    if not 0 <= covered <= gold or not gold:
        raise ValueError(f"{covered} of {gold} gold memory items")
    return covered / gold


def qa_score(rating: int) -> float:
    """The answer's rating 0..3 as [0, 1]. Raises ValueError for another rating."""
    return _scaled(rating, QA_SCALE)


def helpfulness(rating: int) -> float:
    """The rating 0..2 of what was retrieved as [0, 1]. Raises ValueError for another rating."""
    return _scaled(rating, HELPFUL_SCALE)


def _scaled(rating: int, scale: int) -> float:
    if not 0 <= rating <= scale:
        raise ValueError(f"a rating of {rating}, not 0 to {scale}")
    return rating / scale


def _need(gold: Collection[object], k: int) -> None:
    if not gold:
        raise ValueError("no gold item: there is nothing to recall")
    if k < 1:
        raise ValueError(f"the first {k} of a ranking")
