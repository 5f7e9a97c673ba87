"""A load's questions: when each is due, what it asks, and the role that asks them.

An open model as well: a question is due by its own rate, whether or not answers keep up, and its latency runs from
then. It asks its lane about the newest segment whose delta the lane has published, and no lane is asked before its
second segment is due, when one that keeps up has remembered the first; where that is late, the question waits for it,
and that counts.

The same memories are asked twice: while segments come in (`loaded`), and once all of those are remembered and all of
these questions answered (`idle`).

Questions are due in real time, counted from the load's beginning as the log tells it, so this role can run in any
process: pausing the replay does not stop the person asking. Regular questions at a rate of which the segments' rate is
a multiple always meet an ingest at the same point; Poisson ones don't.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Final, NamedTuple

import anyio
import msgspec

from producers.arrivals import Arrivals, Load, Offered
from producers.lifelog import DAY1_US, Lifelog
from producers.seeded import seeded
from simulator.errors import ConfigError
from simulator.events import (
    DeltaEvent,
    LaneFailedEvent,
    ReadyEvent,
    RunEndedEvent,
    RunStartedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
)
from simulator.intake import decode_records
from simulator.log.protocol import Log, Subscription
from simulator.protocols.questions import QuestionName, question_of
from simulator.protocols.trajectory import STEPS
from simulator.topics import Recorder, Topics, wall_of, wall_us
from simulator.waits import ASKER_ROLE

MOST_QUESTIONS: Final = 1_000_000
LONGEST_IDLE_S: Final = 20.0
_WORDS, _CHARACTERS = 12, 100


class QuestionLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked beside a load, of all lanes in turn. `idle_s`: how long the memories are asked at the same rate
    once the load is over; None: a third of its duration, and at most 20 s."""

    per_second: float
    idle_s: float | None = None


class Due(NamedTuple):
    """One question. `after_s`: when it is due, from the beginning of the load or of the time after it."""

    number: int
    lane: str
    after_s: float


class QuestionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The questions of a load laid out. `rate`: the load's, by which the log tells when that began; `lifelogs`: lane →
    what it is asked about."""

    loaded: tuple[Due, ...]
    idle: tuple[Due, ...]
    idle_s: float
    seed: int
    rate: float
    lifelogs: dict[str, Lifelog]


def lay_out(offered: Offered, load: Load, asked: QuestionLoad, system: str) -> QuestionPlan:
    """Lay the questions of one system's lanes out; fixed by the load's seed. Pure. Raises ConfigError for numbers that
    can't be."""
    idle_s = min(load.duration_s / 3, LONGEST_IDLE_S) if asked.idle_s is None else asked.idle_s
    if not 0 < asked.per_second < math.inf:
        raise ConfigError(f"questions_per_second is {asked.per_second:g}: it must be finite and above zero")
    if not 0 <= idle_s < math.inf:
        raise ConfigError(f"idle_s is {idle_s:g}: it must be a finite number, at least 0")
    expected = asked.per_second * (load.duration_s + idle_s)
    if expected > MOST_QUESTIONS:
        raise ConfigError(
            f"this is about {expected:,.0f} questions, and {MOST_QUESTIONS:,} fit in memory: take a lower "
            "--questions-per-second or a shorter --duration"
        )
    lifelogs = {f"{system}@{stream}": lifelog for stream, lifelog in offered.lifelogs.items()}
    first_s = {
        lane: (lifelog.segments[:2][-1].end_time_us - DAY1_US) / 1e6 / offered.rate
        for lane, lifelog in lifelogs.items()
    }
    loaded = tuple(_in_turn(0, first_s, load.duration_s, load, asked))
    if not loaded:
        raise ConfigError(
            f"no question is due within {load.duration_s:g} s after a second segment: take a higher "
            "--questions-per-second or a longer --duration"
        )
    idle = tuple(_in_turn(len(loaded), dict.fromkeys(lifelogs, 0.0), idle_s, load, asked))
    return QuestionPlan(
        loaded=loaded, idle=idle, idle_s=idle_s, seed=load.seed, rate=offered.rate, lifelogs=lifelogs
    )


def _in_turn(
    first: int, from_s: Mapping[str, float], duration_s: float, load: Load, asked: QuestionLoad
) -> Iterator[Due]:
    """The lanes in turn, those left out that may not be asked yet. `first`: the first question's number."""
    waiting = deque(from_s)
    number = first
    times_s = _times_s(1 / asked.per_second, load.arrivals, f"questions/{load.seed}/{first}")
    for at_s in takewhile(lambda at_s: at_s <= duration_s, times_s):
        lane = next((lane for lane in waiting if from_s[lane] <= at_s), None)
        if lane is not None:
            waiting.remove(lane)
            waiting.append(lane)
            yield Due(number, lane, at_s)
            number += 1


def _times_s(gap_s: float, arrivals: Arrivals, seed: str) -> Iterator[float]:
    """When something is due, without end: the first a part of a gap after the beginning."""
    if arrivals == "regular":
        yield from ((place + 0.5) * gap_s for place in count())  # a sum would drift
    random = seeded(seed).random
    at_s = 0.0
    while True:
        at_s -= math.log(1.0 - random()) * gap_s
        yield at_s


def question_text(lifelog: Lifelog, segment: int, seed: int, number: int) -> str:
    """What a question asks: words of an observation that the stream holds up to that segment, drawn by seed."""
    draw = seeded(f"question/{seed}/{number}").random()
    said = lifelog.observations[int(draw * (lifelog.segments[segment].last_seq + 1))].text
    return f"What do you remember of this: {' '.join(said.split()[:_WORDS])[:_CHARACTERS]}"


async def ask(
    log: Log, started: RunStartedEvent, plan: QuestionPlan, drained: anyio.Event | None = None
) -> None:
    """Ask a load's questions, until all are asked or the run has ended. `drained` is set when all that was offered is
    remembered and answered, and the time after it begins."""
    await _Asker(log, started, plan, drained or anyio.Event()).run()


class _Asker:
    def __init__(self, log: Log, started: RunStartedEvent, plan: QuestionPlan, drained: anyio.Event) -> None:
        self.log = log
        self.started = started
        self.plan = plan
        self.drained = drained
        self.topics = Topics.of(started.run)
        self.recorder = Recorder.for_run(started)
        self.newest: dict[str, DeltaEvent] = {}
        """Lane → its newest delta, without the records."""
        self.read_us = 0
        """When the newest delta was read."""
        self.owed = {due.number: due.lane for due in plan.loaded}
        """Questions of the load that are not answered."""
        self.lanes = set(plan.lifelogs)
        """Those that may still come to have taken in all segments."""
        self._moved = anyio.Event()

    async def run(self) -> None:
        async with (
            self.log.subscribe([self.topics.deltas, self.topics.control]) as subscription,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._follow, subscription, tasks.cancel_scope)
            ready = ReadyEvent(
                id=f"ready/{ASKER_ROLE}", run=self.started.run, event_time_us=0, role=ASKER_ROLE
            )
            await self.log.append([self.recorder.record(ready)])
            await self._ask(self.plan.loaded, await self._began_us())
            while self.owed or not all(self._has_all(lane) for lane in self.lanes):
                await self._moved.wait()
            self.drained.set()
            await self._ask(self.plan.idle, wall_us())
            tasks.cancel_scope.cancel()

    async def _began_us(self) -> int:
        """When the load began, by what its first observation was due at."""
        async with self.log.subscribe([self.topics.observations]) as subscription:
            while True:
                records = await subscription.poll(max_records=1)
                for event, record in decode_records(self.started.run, records)[0]:
                    due_us = wall_of(record.headers, "due_us")
                    if due_us is not None:
                        return due_us - round((event.event_time_us - DAY1_US) / self.plan.rate)

    async def _follow(self, subscription: Subscription, scope: anyio.CancelScope) -> None:
        """Know what each lane has published, and what was answered."""
        while True:
            records = await subscription.poll(max_records=2000)
            self.read_us = wall_us()
            for event, _ in decode_records(self.started.run, records)[0]:
                match event:
                    case DeltaEvent():
                        self._take_delta(event)
                    case TrajectoryClosedEvent():
                        self._answered(event.trajectory)
                    case LaneFailedEvent():
                        self.lanes.discard(event.lane)
                        self.owed = {n: lane for n, lane in self.owed.items() if lane != event.lane}
                    case RunEndedEvent():
                        scope.cancel()
                    case _:
                        pass
            self._moved.set()
            self._moved = anyio.Event()

    def _take_delta(self, delta: DeltaEvent) -> None:
        """A failed one counts as well: the person asks, whatever became of a segment."""
        lifelog, newest = self.plan.lifelogs.get(delta.lane), self.newest.get(delta.lane)
        known = -1 if newest is None else newest.segment
        if lifelog is not None and known < delta.segment < len(lifelog.segments):
            self.newest[delta.lane] = msgspec.structs.replace(delta, records=())

    def _answered(self, trajectory: str) -> None:
        assert self.started.questions is not None  # else nobody asks
        name = question_of(trajectory, self.started.questions)
        if name is not None:
            self.owed.pop(name.number, None)

    def _has_all(self, lane: str) -> bool:
        newest = self.newest.get(lane)
        return newest is not None and newest.segment == self.started.segments[newest.stream] - 1

    async def _ask(self, questions: Sequence[Due], began_us: int) -> None:
        """Ask each when it is due, or as soon as its lane has published a delta. What is due at once goes into the log
        at once, however long that takes."""
        left = deque((began_us + round(question.after_s * 1e6), question) for question in questions)
        waiting: list[tuple[int, Due]] = []
        while left or waiting:
            now_us = wall_us()
            while left and left[0][0] <= now_us:
                waiting.append(left.popleft())
            asked = [(due_us, question) for due_us, question in waiting if question.lane in self.newest]
            if asked:
                waiting = [one for one in waiting if one[1].lane not in self.newest]
                await self.log.append(
                    [
                        self.recorder.record(
                            self._task(question), wall_us=now_us, due_us=due_us, read_us=self.read_us
                        )
                        for due_us, question in asked
                    ]
                )
                continue
            with anyio.move_on_after((left[0][0] - now_us) / 1e6 if left else math.inf):
                await self._moved.wait()

    def _task(self, question: Due) -> TaskEvent:
        delta = self.newest[question.lane]
        name = QuestionName(question.lane, delta.segment, question.number)
        return TaskEvent(
            id=f"{name.trajectory}/T1",
            run=self.started.run,
            stream=delta.stream,
            event_time_us=delta.event_time_us,
            as_of=delta.segment,
            causes=(delta.id,),
            lane=question.lane,
            trajectory=name.trajectory,
            step=STEPS["T1"],
            phase="T1",
            segment=delta.segment,
            text=question_text(
                self.plan.lifelogs[question.lane], delta.segment, self.plan.seed, question.number
            ),
        )
