"""Who goes next where only so many may be under way at once. Pure: trajectories that wait for a branch
(`producers.conductor`) and calls that wait for their turn (`consumers.calls`) both go by it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from simulator.errors import ConfigError

T = TypeVar("T")

OLDEST_EVERY = 4
"""Every so many turns of a lane go to what has waited longest there, whatever its rank."""


class FairQueue(Generic[T]):
    """Lets at most `limit` items be under way, and at most `per_lane` of one lane.

    Of the lanes that have something waiting, the one with the fewest under way is next (so a slow lane that fills its
    share leaves the others theirs), among equals the one whose last turn is longest ago. Within a lane the lowest rank
    goes first, and first come first served within a rank. Nothing waits for ever as long as what is under way ends:
    a lane with nothing under way gets one of the next turns, one for each lane, and an item is overtaken by no more
    than `OLDEST_EVERY` items for each that waited in its lane when it came.
    """

    def __init__(self, limit: int, per_lane: int | None = None) -> None:
        if limit < 1:
            raise ConfigError(f"a limit of {limit} lets nothing through: it must be at least 1")
        self.limit = limit
        self.per_lane = per_lane
        self.under_way = 0
        self._of_lane: Counter[str] = Counter()
        self._waiting: dict[str, dict[int, deque[tuple[int, T]]]] = {}
        """Lane → rank → (ticket, item), only where something waits."""
        self._tickets = 0
        self._turns = 0
        self._last_turn: dict[str, int] = {}
        self._turns_of: Counter[str] = Counter()

    def put(self, lane: str, item: T, rank: int = 0) -> None:
        """Let an item wait."""
        self._waiting.setdefault(lane, {}).setdefault(rank, deque()).append((self._tickets, item))
        self._tickets += 1

    def take(self) -> tuple[str, T] | None:
        """The next item with its lane, under way from now on; None where nothing waits or the limit is reached."""
        if self.under_way >= self.limit:
            return None
        lanes = [n for n in self._waiting if self.per_lane is None or self._of_lane[n] < self.per_lane]
        if not lanes:
            return None
        lane = min(lanes, key=lambda name: (self._of_lane[name], self._last_turn.get(name, -1)))
        ranks = self._waiting[lane]
        self._turns += 1
        self._turns_of[lane] += 1
        self._last_turn[lane] = self._turns
        oldest = self._turns_of[lane] % OLDEST_EVERY == 0
        rank = min(ranks, key=lambda rank: (ranks[rank][0][0] if oldest else 0, rank))
        _, item = ranks[rank].popleft()
        if not ranks[rank]:
            del ranks[rank]
        if not ranks:
            del self._waiting[lane]
        self.enter(lane)
        return lane, item

    def enter(self, lane: str) -> None:
        """Count one item as under way that did not wait here: what a restart finds so, even beyond the limit."""
        self.under_way += 1
        self._of_lane[lane] += 1

    def done(self, lane: str) -> None:
        """One item of a lane has ended."""
        self.under_way -= 1
        self._of_lane[lane] -= 1

    def drop(self, lane: str) -> Iterator[T]:
        """Everything that waits in a lane, which then waits no more; in the order in which it came."""
        ranks = self._waiting.pop(lane, {})
        return (item for _, item in sorted((e for w in ranks.values() for e in w), key=lambda e: e[0]))

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return sum(len(items) for ranks in self._waiting.values() for items in ranks.values())
