"""How much is asked of one server at once: what it bears is found out, what it allows by the minute is kept.

`AdaptiveLimit` and `Bucket` are pure; `Gate` is where calls wait.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import anyio

FIRST_LEVEL: Final = 8
MOST_PATIENCE: Final = 16


class Ticket(NamedTuple):
    """One try under way. `era`: how often the limit had been cut when it began; `at_once`: tries under way then, this
    one included."""

    era: int
    at_once: int


class AdaptiveLimit:
    """Additive increase, multiplicative decrease, for the number of calls that are under way at once.

    It is halved when the server has too much, once for all tries that began before: what comes back of those
    says nothing about the new limit. Up to the number that was last too much it grows by one with each success, so
    that it is back within two round trips; from there by one in a round trip, and each time that the same number is
    too much again, only half as often: a server with a fixed limit is then bothered less and less.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._level = float(min(most, FIRST_LEVEL))
        self._ceiling = float(most)
        """The most that may be borne, by what is known."""
        self._patience = 1
        self._era = 0

    @property
    def limit(self) -> int:
        """How many may be under way; at least 1."""
        return int(self._level)

    def started(self, at_once: int) -> Ticket:
        """A try begins."""
        return Ticket(self._era, at_once)

    def succeeded(self, ticket: Ticket) -> None:
        """It was answered. A limit that was not used up is not known to be borne, and does not grow."""
        if 2 * ticket.at_once < self.limit:
            return
        if self._level + 1 <= self._ceiling:
            self._level += 1
        else:
            self._level += 1 / (self._level * self._patience)
            if self._level >= self._ceiling + 2:
                self._patience = 1  # it bears more than it did
        self._level = min(self._level, float(self._most))

    def overloaded(self, ticket: Ticket) -> None:
        """It was refused, or not answered in time: so many are too much."""
        if ticket.era != self._era:
            return
        ceiling = max(1.0, ticket.at_once - 1.0)
        self._patience = min(2 * self._patience, MOST_PATIENCE) if abs(ceiling - self._ceiling) <= 1 else 1
        self._ceiling = ceiling
        self.failed(ticket)

    def failed(self, ticket: Ticket) -> None:
        """The server is broken: perhaps by the load, but that number says nothing."""
        if ticket.era == self._era:
            self._era += 1
            self._level = max(1.0, self._level / 2)


class Bucket:
    """So many of something in a minute, in bursts of at most ten seconds' worth. Times are the caller's, in seconds."""

    BURST_S = 10.0

    def __init__(self, per_minute: float) -> None:
        self._per_s = per_minute / 60
        self._capacity = max(1.0, self._per_s * self.BURST_S)
        self._level = self._capacity
        self._at_s = -math.inf

    def reserve(self, amount: float, now_s: float) -> float:
        """Take an amount, and the seconds to wait before using it. More than a burst may be taken at once, which
        then makes the next ones wait; amounts are given out in the order in which they were reserved."""
        self._fill(now_s)
        wait_s = max(0.0, (min(amount, self._capacity) - self._level) / self._per_s)
        self._level -= amount
        return wait_s

    def give_back(self, amount: float, now_s: float) -> None:
        """What was reserved and not used; negative for what was used beyond."""
        self._fill(now_s)
        self._level = min(self._capacity, self._level + amount)

    def _fill(self, now_s: float) -> None:
        if self._at_s > -math.inf:
            self._level = min(self._capacity, self._level + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s


class Gate:
    """Lets as many in at once as its limit says, the oldest call first, tried again or not: a call that was
    refused does not wait behind all that came later."""

    def __init__(self, limit: AdaptiveLimit) -> None:
        self.limit = limit
        self._inside = 0
        self._waiting: list[tuple[int, int, _Waiter]] = []
        self._numbers = itertools.count()

    def number(self) -> int:
        """A new call's age: the lower, the older."""
        return next(self._numbers)

    @asynccontextmanager
    async def enter(self, age: int) -> AsyncIterator[Ticket]:
        """Wait to be let in; inside, one try. Its outcome is told to `limit` before it leaves."""
        waiter = _Waiter()
        entry = (age, self.number(), waiter)
        heapq.heappush(self._waiting, entry)
        self._admit()
        try:
            await waiter.admitted.wait()
        except BaseException:
            if waiter.ticket is None:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
            else:
                self._leave()
            raise
        assert waiter.ticket is not None
        try:
            yield waiter.ticket
        finally:
            self._leave()

    def _leave(self) -> None:
        self._inside -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._inside < self.limit.limit:
            self._inside += 1
            waiter = heapq.heappop(self._waiting)[2]
            waiter.ticket = self.limit.started(self._inside)
            waiter.admitted.set()


class _Waiter:
    def __init__(self) -> None:
        self.admitted = anyio.Event()
        self.ticket: Ticket | None = None
