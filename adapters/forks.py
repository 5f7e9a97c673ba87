"""Append-only state whose forks cost O(1).

What an instance wrote since it was created or forked is its trunk. A fork is a link to (what came before, the trunk,
the trunk's length now): it copies nothing, and as trunks only grow and readers look only below their length, neither
side ever sees what the other writes later. A fork gets a trunk of its own with its first write.

    main   ───────────●──────────●─────────▶   one trunk, growing
                      │          └ fork B: (main, 90)
                      └ fork A: (main, 40) ──▶ own trunk
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sized
from typing import Generic, NamedTuple, Self, TypeVar

Trunk = TypeVar("Trunk", bound=Sized)


class Prefix(NamedTuple, Generic[Trunk]):
    """The first `length` rows of a trunk, after those of `base`; `total` counts both."""

    base: Prefix[Trunk] | None
    trunk: Trunk
    length: int
    total: int

    @property
    def before(self) -> int:
        """How many rows are before those of this trunk."""
        return self.total - self.length


class Forks(Generic[Trunk]):
    """Rows in trunks. A trunk's `len` must count a row once all of it is there: it may be read meanwhile."""

    __slots__ = ("_base", "_own")

    def __init__(self) -> None:
        self._base: Prefix[Trunk] | None = None
        self._own: Trunk | None = None

    def fork(self) -> Self:
        """The same rows; later writes on either side stay there. O(1) in time and memory."""
        child = copy.copy(self)
        child._base = self._tip()
        child._own = None
        return child

    def __len__(self) -> int:
        tip = self._tip()
        return tip.total if tip else 0

    def _tip(self) -> Prefix[Trunk] | None:
        if self._own is None:
            return self._base
        length = len(self._own)
        return Prefix(self._base, self._own, length, length + (self._base.total if self._base else 0))

    def _newest_first(self) -> Iterator[Prefix[Trunk]]:
        prefix = self._tip()
        while prefix is not None:
            yield prefix
            prefix = prefix.base

    def _parts(self) -> list[Prefix[Trunk]]:
        """Oldest first."""
        return list(self._newest_first())[::-1]
