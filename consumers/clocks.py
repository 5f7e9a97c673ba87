"""Clocks of other machines, read off the stamps that a log holds anyway. Pure.

What an agent stamps by another clock than the replayer's is compared with that as NTP does it. Each segment is an
exchange: the replayer hands its end to the log at t1, the agent reads it at t2 and hands the delta over at t3, the
conductor reads that at t4; t1 and t4 by the replayer's clock, t2 and t3 by the agent's. Nothing is read before it was
written, so the agent's clock is ahead by no more than t2 - t1, and by no less than t3 - t4. All exchanges together
leave the range between the greatest of the lower bounds and the least of the upper; the estimate is its middle, the
error half its width: what the fastest way there and back took.

This takes both clocks to run at one speed. Real ones differ by some millionths (36 ms in an hour at 10 ppm): over a
long run the bounds come to contradict each other, which is said, and then half of the contradiction is the error.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from simulator.waits import CONDUCTOR_ROLE

OTHER_CONDUCTOR = "the conductor ran on another machine than the replayer"
NO_EXCHANGE = "no delta with its stamps was read by the conductor"


ClockId = tuple[str, str]
"""Whose: (role, boot)."""


class ClockOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A clock that is not the replayer's: `offset_us` is how far it is ahead, within `error_us`; None where it can't be
    known, which `reason` says. `boot` is empty where the agent does not say whose clock it has."""

    role: str
    boot: str
    offset_us: float | None
    error_us: float | None
    exchanges: int
    reason: str = ""


class OffsetBounds:
    """What the exchanges with one clock leave of its offset."""

    def __init__(self) -> None:
        self.least_us, self.most_us = -math.inf, math.inf
        self.exchanges = 0

    def add(self, t1_us: int, t2_us: int, t3_us: int, t4_us: int) -> None:
        """One exchange: there (t1 by our clock, t2 by the other) and back (t3 by the other, t4 by ours)."""
        self.least_us = max(self.least_us, t3_us - t4_us)
        self.most_us = min(self.most_us, t2_us - t1_us)
        self.exchanges += 1

    def estimate(self, role: str, boot: str) -> ClockOffset:
        """The offset with its error; without one where there was no exchange."""
        if not self.exchanges:
            return unknown(role, boot, NO_EXCHANGE)
        gap_us = self.least_us - self.most_us
        return ClockOffset(
            role=role,
            boot=boot,
            offset_us=(self.least_us + self.most_us) / 2,
            error_us=abs(gap_us) / 2,
            exchanges=self.exchanges,
            reason=f"it was set, or ran at another speed: by {gap_us / 1e3:,.1f} ms at least"
            if gap_us > 0
            else "",
        )


def unknown(role: str, boot: str, reason: str) -> ClockOffset:
    """A clock that nothing can be said of."""
    return ClockOffset(role=role, boot=boot, offset_us=None, error_us=None, exchanges=0, reason=reason)


class Exchange(NamedTuple):
    """One segment: when its end was sent by the replayer's clock, what the agent stamped by its own, and when the
    delta was read by the conductor's."""

    clock: ClockId
    sent_us: int
    stamps_us: tuple[int, ...]
    read_us: int


def other_clocks(
    clocks: Collection[ClockId], exchanges: Iterable[Exchange], boot: str, conductors: Collection[str]
) -> dict[ClockId, ClockOffset]:
    """What is known of those of `clocks`, and of the conductors' (by their boots), that are not of the replayer's
    `boot`. An exchange ends with the conductor, so where that has another clock, none says anything."""
    strangers = [(CONDUCTOR_ROLE, conductor) for conductor in conductors if conductor != boot]
    bounds = {clock: OffsetBounds() for clock in clocks if clock[1] != boot}
    if strangers:
        return {clock: unknown(*clock, OTHER_CONDUCTOR) for clock in sorted([*bounds, *strangers])}
    for clock, sent_us, stamps_us, read_us in exchanges:
        if clock in bounds and stamps_us:
            bounds[clock].add(sent_us, min(stamps_us), max(stamps_us), read_us)
    return {clock: bounds[clock].estimate(*clock) for clock in sorted(bounds)}
