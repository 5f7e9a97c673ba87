"""Means and totals of what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A mean and a total over `n` measurements."""

    n: int
    mean: float
    total: float


def amount(values: Iterable[int], unit: int = 1) -> Amount | None:
    """Mean and total in `unit`s; None without values. Whole numbers, so that no order changes the sum."""
    kept = tuple(values)
    if not kept:
        return None
    total = sum(kept)
    return Amount(n=len(kept), mean=total / len(kept) / unit, total=total / unit)


def by_count(reasons: Iterable[str]) -> dict[str, int]:
    """Reason → number, the commonest first, then by name."""
    return commonest_first(Counter(reasons))


def commonest_first(counts: Mapping[str, int]) -> dict[str, int]:
    """The same, the commonest first, then by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
