"""Time: one clock that every role shares, with a rate, pauses and jumps.

Simulated time is derived, never added up: since the last change of rate, pause or jump, `now` is a base
offset plus the real time since then times the rate. Whatever the processing between two sleeps costs, a
deadline stays where it was, so nothing drifts. Old bases are kept, so that the moment at which a past time
was due stays known when the rate changes before it was served.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from enum import Enum
from typing import NamedTuple, Protocol

import anyio
import anyio.lowlevel

from simulator.errors import ConfigError

_YIELD_S = 0.002
"""A caller that never has to wait still lets the event loop run this often."""

_KEPT_BASES = 4096
"""Beyond this many changes, times before the oldest kept one count as due at that one."""


class Wake(Enum):
    """Why `Clock.sleep_until` came back."""

    REACHED = "reached"
    WOKEN = "woken"
    """The clock jumped meanwhile: look at the time again."""


class RealClock(Protocol):
    """The real time under a `Clock`. Tests put their own here."""

    def now(self) -> float:
        """Monotonic seconds."""

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        """Come back when the event is set or after `seconds`, whichever is first; `seconds` may be
        infinite."""


class MonotonicClock:
    """`time.monotonic` and the event loop's timers."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        """Wait for the event, at most `seconds`."""
        with anyio.move_on_after(seconds):
            await event.wait()


class _Base(NamedTuple):
    """From real time `real_s` on, simulated time ran from `offset_us` (since the clock's start) at `rate`."""

    offset_us: float
    real_s: float
    rate: float  # 0 while paused


def _offset_of(base: _Base) -> float:
    return base.offset_us


class Clock:
    """Simulated time in microseconds since 1970, starting at `start_us` and running at `rate`.

    `rate` is simulated seconds per real second. At `math.inf` time stands still until somebody sleeps, and
    then jumps to what they sleep for: as fast as the sleepers allow. Belongs to one event loop.
    """

    def __init__(self, start_us: int, rate: float = 1.0, *, real: RealClock | None = None) -> None:
        self.real: RealClock = real or MonotonicClock()
        self._start_us = start_us
        self._rate = _checked(rate)
        self._holders: set[str] = set()
        self._reached_us = 0  # offset up to which sleepers were told that time had come
        self._bases = [_Base(0.0, self.real.now(), self._rate)]
        self._jumps = 0
        self._changed: anyio.Event | None = None
        self._yielded_s = -math.inf

    @property
    def rate(self) -> float:
        """Simulated seconds per real second while time is not paused."""
        return self._rate

    @property
    def paused(self) -> bool:
        """Whether anybody holds time."""
        return bool(self._holders)

    def now_us(self) -> int:
        """Simulated microseconds since 1970. Never goes back, but by `jump`."""
        return self._start_us + math.floor(self._offset_us(self.real.now()))

    def due_wall(self, t_us: int) -> float:
        """Real monotonic seconds at which `t_us` is or was first due, as things stand; infinite while paused
        before it. What lies before the start or the target of the last jump was due at that moment; what lies
        ahead at an infinite rate has been due since that rate was set."""
        offset_us = float(t_us - self._start_us)
        base = self._bases[-1]
        if base.offset_us >= offset_us:
            found = bisect_left(self._bases, offset_us, key=_offset_of)
            if found == 0:
                return self._bases[0].real_s
            base = self._bases[found - 1]
        if base.rate == 0:
            return math.inf
        return base.real_s + (offset_us - base.offset_us) / base.rate / 1e6

    async def sleep_until(self, t_us: int) -> Wake:
        """Sleep until simulated `t_us`, through pauses and changes of rate; a jump wakes every sleeper.

        Comes back at once when `t_us` is past, also while paused. After REACHED, `now_us() >= t_us`.
        """
        jumps = self._jumps
        slept = False
        while True:
            if self._jumps != jumps:
                return Wake.WOKEN
            real_s = self.real.now()
            wait_s = self.due_wall(t_us) - real_s
            if wait_s <= 0:
                # float rounding may leave the derived time a microsecond short of what was reached
                self._reached_us = max(self._reached_us, t_us - self._start_us)
                if not slept and real_s - self._yielded_s >= _YIELD_S:
                    await anyio.lowlevel.checkpoint()
                    self._yielded_s = self.real.now()
                    if self._jumps != jumps:
                        return Wake.WOKEN
                return Wake.REACHED
            if self._changed is None:
                self._changed = anyio.Event()
            await self.real.wait(self._changed, wait_s)
            slept = True

    @property
    def horizon_us(self) -> float:
        """Up to which time things are due now: `now_us()`, or infinite while time runs at an infinite
        rate."""
        return math.inf if self._running_rate == math.inf else self.now_us()

    def advance(self, t_us: int) -> None:
        """Say that all until `t_us` was taken up. Moves time only while it runs at an infinite rate."""
        if self._running_rate == math.inf:
            self._reached_us = max(self._reached_us, t_us - self._start_us)

    def set_rate(self, rate: float) -> None:
        """Go on from now at another rate. Raises ConfigError unless it is above zero."""
        self._rate = _checked(rate)
        self._rebase()

    def pause(self, holder: str = "person") -> None:
        """Stop time. It runs again when every holder has resumed; pausing twice is pausing once."""
        self._holders.add(holder)
        self._rebase()

    def resume(self, holder: str = "person") -> None:
        """Take this holder's pause back, if there is one."""
        self._holders.discard(holder)
        self._rebase()

    def jump(self, t_us: int) -> None:
        """Set time to `t_us`, forward or back, and wake every sleeper. Pauses and the rate stay."""
        self._jumps += 1
        self._reached_us = t_us - self._start_us
        self._bases = [_Base(float(self._reached_us), self.real.now(), self._running_rate)]
        self._wake()

    @property
    def _running_rate(self) -> float:
        return 0.0 if self._holders else self._rate

    def _offset_us(self, real_s: float) -> float:
        base = self._bases[-1]
        offset_us = base.offset_us
        if base.rate != math.inf:
            offset_us += (real_s - base.real_s) * 1e6 * base.rate
        return max(offset_us, self._reached_us)

    def _rebase(self) -> None:
        if self._bases[-1].rate == self._running_rate:
            return
        real_s = self.real.now()
        self._bases.append(_Base(self._offset_us(real_s), real_s, self._running_rate))
        del self._bases[:-_KEPT_BASES]
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def _checked(rate: float) -> float:
    if not rate > 0:
        raise ConfigError(f"a rate is simulated seconds per real second, above zero, or inf; not {rate}")
    return float(rate)
