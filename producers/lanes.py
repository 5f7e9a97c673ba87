"""What a replay waits for: roles that are ready, and lanes that keep up; with the options that say for which, and how
long."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import anyio
import msgspec
import structlog

from producers.pacing import LaneProgress
from producers.tenure import Appends
from producers.timeline import Part
from simulator.clock import Clock
from simulator.errors import StallError
from simulator.events import Isolation, LaneFailedEvent, ReadyEvent, TrajectoryClosedEvent
from simulator.intake import decode_records
from simulator.log.protocol import Subscription
from simulator.topics import Recorder
from simulator.waits import REPLAYER_ROLE, Missing, missing_ready, stalled

_log = structlog.get_logger(__name__)

_POLL_S = 1.0
_HEAR_S = 0.1
"""With policy `run` nothing waits for lanes, so the log is asked only so often how far behind they are: asking at each
segment kept a lane from more than some 300 segments a second."""
_CALLS_OF_TRAJECTORY = 8
"""R1, its verdict, R_F, commit, R2 of both arms, and some air."""


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to replay.

    `required`: roles that must say `ready` before the first event. `lanes`: stream → the lanes that must keep
    up. Policy `hold` lets time wait until a lane is no more than `max_ahead` segments behind and has no more than
    `max_unreleased` unreleased (None: any number; in isolation `shared` 1); `run` lets time go on and only reports
    the lag.
    `start_us` and `end_us` (event time) keep whole segments only; `loop` repeats them (see
    `producers.timeline`).
    """

    policy: Literal["hold", "run"] = "hold"
    required: tuple[str, ...] = ()
    lanes: Mapping[str, Sequence[str]] = {}
    isolation: Isolation = "branch"
    max_ahead: int = 128
    max_unreleased: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    loop: int = 1
    max_batch: int = 2000
    ready_timeout_s: float = 60.0
    stall_timeout_s: float = 900.0
    """How long no lane may move while a delta is waited for. A release may take as many times longer as a trajectory
    has calls, since it may wait for the end of one."""
    attached: frozenset[str] = frozenset()
    """Lanes of attached agents. One that is silent for `lane_timeout_s` is given up instead: nothing waits for it
    any more."""
    lane_timeout_s: float = 600.0


class Lanes:
    """Roles and lanes as the log shows them; read only when somebody has to know."""

    def __init__(
        self,
        log: Appends,
        recorder: Recorder,
        feed: Subscription,
        parts: Mapping[str, Part],
        options: ReplayOptions,
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._run = recorder.run
        self._feed = feed
        self._options = options
        self._ready: set[str] = set()
        self._progress = LaneProgress(
            options.lanes,
            isolation=options.isolation,
            max_ahead=options.max_ahead,
            max_unreleased=options.max_unreleased,
            first_segment={stream: part.segments.start for stream, part in parts.items()},
        )
        self._moves = 0
        self._closings = 0
        self._heard_s = -math.inf
        self.max_lag = 0
        self.max_unreleased = 0

    async def wait_ready(self) -> None:
        """The start barrier: every required role has said that it is ready."""
        deadline = anyio.current_time() + self._options.ready_timeout_s
        while missing := [role for role in self._options.required if role not in self._ready]:
            left_s = deadline - anyio.current_time()
            if left_s <= 0:
                who = f"{REPLAYER_ROLE} before it begins"
                owed = [missing_ready(role) for role in missing]
                raise StallError(stalled(who, self._options.ready_timeout_s, owed))
            await self._read(min(_POLL_S, left_s))

    def open_as_known(self, stream: str, segment: int) -> bool:
        """Whether a segment may be published, and its lag is nothing new, without looking at the log."""
        progress = self._progress
        if self._options.policy == "run":
            return anyio.current_time() < self._heard_s + _HEAR_S
        if not progress.may_publish(stream, segment):
            return False
        known = progress.lag(stream, segment) <= self.max_lag
        return known and progress.unreleased(stream, segment) <= self.max_unreleased

    async def hear(self) -> None:
        """Take in what the lanes have written meanwhile, where lanes are waited for."""
        if self._options.lanes:
            await self._read(0)

    def open_in_batch(self, stream: str, segment: int) -> bool:
        """Open a segment, if it may be published, by what was heard at the beginning of a batch: the segments of
        that batch are owed in any case."""
        if self._options.policy == "hold" and not self._progress.may_publish(stream, segment):
            return False
        self._note_lag(stream, segment)
        return True

    async def open(self, stream: str, segment: int, clock: Clock) -> float:
        """Wait until a segment may be published, time being paused; gives the real seconds that it was
        held."""
        if self.open_as_known(stream, segment):
            return 0.0
        await self._read(0)
        held_s = 0.0
        if self._options.policy == "hold" and not self._progress.may_publish(stream, segment):
            began_s = clock.real.now()
            clock.pause("hold")
            try:
                await self._wait_lanes(stream, segment)
            finally:
                clock.resume("hold")
            held_s = clock.real.now() - began_s
        self._note_lag(stream, segment)
        return held_s

    def _note_lag(self, stream: str, segment: int) -> None:
        self.max_lag = max(self.max_lag, self._progress.lag(stream, segment))
        self.max_unreleased = max(self.max_unreleased, self._progress.unreleased(stream, segment))

    async def finish(self, last_segments: Mapping[str, int]) -> None:
        """See how far the lanes are at the end; wait until attached agents owe no delta; give those up that are
        silent."""
        await self.hear()
        for stream, last in last_segments.items():
            self._note_lag(stream, last)
        if self._options.attached:
            await self._wait(lambda: self._options.attached.intersection(self._progress.owing(last_segments)))

    async def _wait_lanes(self, stream: str, segment: int) -> None:
        def waits() -> list[Missing]:
            return progress.waits_for(stream, segment)

        progress = self._progress
        await self._wait(lambda: progress.owing_before(stream, segment), waits)
        await self._wait(lambda: progress.holding_before(stream, segment), waits, releases=True)

    async def _wait(
        self,
        behind: Callable[[], Collection[str]],
        waits: Callable[[], list[Missing]] = list,
        *,
        releases: bool = False,
    ) -> None:
        """Read until no lane is behind. Raises StallError when none of them moves for too long, unless they are
        attached agents' lanes, which are given up. A release comes with the trajectories of a lane, whose deadlines
        the conductor keeps: each that closes is a move, and no lane is given up for it."""
        moved_s = anyio.current_time()
        moves = self._moved(releases)
        while lanes := behind():
            ours = releases or any(lane not in self._options.attached for lane in lanes)
            limit_s = self._options.stall_timeout_s if ours else self._options.lane_timeout_s
            if releases:
                limit_s *= _CALLS_OF_TRAJECTORY
            left_s = moved_s + limit_s - anyio.current_time()
            if left_s > 0:
                await self._read(min(_POLL_S, left_s))
                if self._moved(releases) != moves:
                    moves, moved_s = self._moved(releases), anyio.current_time()
            elif ours:
                raise StallError(stalled(REPLAYER_ROLE, limit_s, waits()))
            else:
                await self._give_up(lanes, limit_s)

    def _moved(self, releases: bool) -> int:
        return self._moves + (self._closings if releases else 0)

    async def _give_up(self, lanes: Collection[str], limit_s: float) -> None:
        """Say that attached lanes are silent, so that nobody waits for them."""
        for lane in sorted(lanes):
            failed = LaneFailedEvent(
                id=f"{lane}/failed",
                run=self._run,
                event_time_us=0,
                stream=lane.partition("@")[2],
                lane=lane,
                reason=f"the agent wrote no delta for {limit_s:g} s",
            )
            await self._log.append([self._recorder.record(failed)])
            self._progress.apply(failed)
            _log.warning("lane_failed", lane=lane, reason=failed.reason)

    async def _read(self, timeout_s: float) -> int:
        """Take in what the feed has, waiting up to `timeout_s` for it; gives the number of records."""
        records = await self._feed.poll(timeout_s=timeout_s)
        self._heard_s = anyio.current_time()
        events, unusable = decode_records(self._run, records)
        for letter in unusable:
            # the roles that act on these topics bury it; here it only moves no lane
            _log.warning("unusable_record", record=letter.id, reason=letter.reason)
        for event, _ in events:
            match event:
                case ReadyEvent():
                    self._ready.add(event.role)
                    self._moves += 1  # a lane that is rebuilt has nothing else to say
                case TrajectoryClosedEvent():
                    self._closings += 1
                case _:
                    self._moves += self._progress.apply(event)
        return len(records)
