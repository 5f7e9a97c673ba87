"""How late memory is: a pure fold over a run's events and their headers, in any order of topics.

A segment is due when the clock says that it ends (`due_us`), whether or not the replayer, the log or the agent has time
for it. Every latency here runs from that moment, so that a stall counts for all that it delayed, and not only for what
was under way (no coordinated omission). The stages, each as the time since due:

    published   the replayer handed the segment's end to the log
    read        the agent read it
    begun       its ingest began: what was between is the queue of the lane
    ended       its ingest ended
    written     the agent handed the delta to the log
    remembered  the conductor, a consumer, read the delta: by now it was in the log

`ingest` (begun to ended) and `from_send` (published to remembered) stand beside them: what a client that sends the next
once it has an answer, or a measure from the replayer's send, would have said.

The moment at which a delta was in the log lies between `written` and `remembered`; no log tells it. A failed ingest
stores nothing, so it counts as failed and has no latency; a segment whose delta has not come is unfinished. With any of
those the percentiles are too low.

Stamps that an agent took by another clock than the replayer's (headers say which) are corrected by the offset that the
log gives of it (`consumers.clocks`), and are as far off as that may be: `error_us`. What an agent did not stamp, or by
a clock of which nothing is known, is not known here either.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from consumers.answers import AnswersFold, AnswersReport
from consumers.clocks import ClockId, ClockOffset, Exchange, other_clocks
from consumers.histogram import Histogram, Percentiles
from consumers.lag_points import Change, Due, LagPoint, at_moment, growth_of, lag_over_time
from consumers.lags import STAGES
from consumers.process_use import ProcessUse, Sample, used
from simulator.events import (
    AnyEvent,
    DeltaEvent,
    LaneFailedEvent,
    ObservationEvent,
    ProcessSampleEvent,
    ReplayControlEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
)
from simulator.log.protocol import Headers
from simulator.topics import boot_of, wall_of
from simulator.waits import role_of_lane

FEWEST_ACHIEVED: Final = 5
"""Segments of which there is a rate at which they were remembered."""
BESIDE: Final = ("ingest", "from_send")
BY_AGENT: Final = ("read", "begun", "ended", "written")
"""The stages that the agent stamps: by its clock."""


class LatencyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a load did. `segments` counts lanes × segments that were due; `observations` those of all lanes' streams.

    Offered is what was due by the time between the first segment and the last that was; achieved is what was remembered
    by the time between the first and the last that was, None of fewer than five, whose time is rather that by which one
    was later than another. Observations count with their segments in both. `highest` has the greatest of each kind of
    lag, not all at one moment.
    """

    run: str
    systems: tuple[str, ...]
    lanes: int
    observations: int
    segments: int
    remembered: int
    failed: int
    unfinished: int
    duration_s: float
    offered_observations_per_s: float | None
    offered_segments_per_s: float | None
    achieved_observations_per_s: float | None
    achieved_segments_per_s: float | None
    growth: float | None
    """By how many seconds a segment was remembered later than those before, for each second of the load: the median of
    the last quarter less that of the second, by the time between them, of the lane where it is most. About 0 while a
    lane keeps up; one that can ingest a share s of what is offered has 1/s - 1. None with fewer than 8 segments."""
    pacing: Percentiles | None
    """Of each observation, from due to published."""
    stages: dict[str, Percentiles | None]
    by_lane: dict[str, Percentiles | None]
    """Of each lane, from due to remembered."""
    highest: LagPoint
    lag: tuple[LagPoint, ...]
    """Empty where nobody knows when some segments were over: `clocks` says why."""
    processes: tuple[ProcessUse, ...]
    identity: dict[str, str] = {}
    """The run's: with `load`, the schedule as JSON, `machine`, and `asked_us`, when it was asked for."""
    answers: AnswersReport | None = None
    """Of a load with questions."""
    clocks: tuple[ClockOffset, ...] = ()
    """The clocks of roles that are not the replayer's."""
    error_us: dict[str, float] = {}
    """Stage → how far off its values may be, where another clock took its stamps. A difference from another stage that
    is smaller says nothing."""
    steered: int = 0
    """How often somebody told the replay to pause, to go on or to keep another rate. What was due then is not the load
    that was asked for."""

    def from_due(self, *, of_answers: bool = False) -> Percentiles | None:
        """From due to remembered; `of_answers`: of the questions that were due while segments were offered, from due to
        received. None of nothing."""
        if not of_answers:
            return self.stages["remembered"]
        return None if self.answers is None else self.answers.loaded.stages["received"]


class _Result(msgspec.Struct, frozen=True):
    clock: ClockId
    failed: bool
    times_us: tuple[int | None, ...]
    """When the agent reached its stages (`BY_AGENT`), by its clock; None for what it did not stamp."""
    ingest_us: int | None
    """How long the ingest alone took: a difference on one clock, whichever that is."""

    @property
    def written_us(self) -> int | None:
        return self.times_us[-1]

    def less(self, offset_us: float | None) -> _Result:
        """By a clock that this one is ahead of by `offset_us`; None: nobody knows."""
        if offset_us is None:
            return replace(self, times_us=(None,) * len(self.times_us))
        late_us = round(offset_us)
        return replace(self, times_us=tuple(us and us - late_us for us in self.times_us))


class LatencyFold:
    """Feed it every event of a run with its headers, then ask for the report."""

    def __init__(self, started: RunStartedEvent) -> None:
        self._started = started
        self._due: dict[tuple[str, int], Due] = {}
        self._results: dict[tuple[str, int], _Result] = {}
        self._released: dict[str, dict[int, int]] = {}
        """Lane → released segment → when its delta, and all before it, had been read."""
        self._samples: dict[str, list[Sample]] = {}
        self._pacing = Histogram()
        self._observations: Counter[str] = Counter()
        self._first_us = math.inf
        """When the first observation was due."""
        self._answers = None if started.questions is None else AnswersFold(started, started.questions)
        self._boot = ""
        """Whose clock the replayer has. Empty: a log of before that was said, all of one clock."""
        self._conductors: set[str] = set()
        """The boots that releases were stamped on."""
        self._given_up: set[str] = set()
        """Lanes whose segments may have been released before their deltas came."""
        self._steered = 0

    def feed(self, event: AnyEvent, headers: Headers) -> None:
        """Take one event in. What was never due by a clock (an infinite rate) has no latency."""
        if self._answers is not None:
            self._answers.feed(event, headers)
        match event:
            case ObservationEvent():
                self._observations[event.stream] += 1
                due_us = wall_of(headers, "due_us")
                published_us = wall_of(headers)
                if due_us is not None:
                    self._first_us = min(self._first_us, due_us)
                    if published_us is not None:
                        self._pacing.record(published_us - due_us)
            case SegmentClosedEvent():
                due_us = wall_of(headers, "due_us")
                if due_us is not None:
                    self._due[event.stream, event.segment] = Due(
                        due_us,
                        wall_of(headers),
                        event.event_time_us,
                        event.start_time_us,
                        event.last_seq - event.first_seq + 1,
                    )
            case DeltaEvent():
                # the first counts: that there is only one is the audit's to check
                self._results.setdefault((event.lane, event.segment), _result(event, headers))
            case SegmentReleasedEvent():
                self._conductors.add(boot_of(headers))
                read_us = wall_of(headers, "read_us")
                if read_us is not None:
                    self._released.setdefault(event.lane, {}).setdefault(event.segment, read_us)
            case ProcessSampleEvent():
                sample = Sample.of(headers)
                if sample is not None:
                    self._samples.setdefault(event.process, []).append(sample)
            case LaneFailedEvent():
                self._given_up.add(event.lane)
            case ReplayControlEvent():
                self._steered += 1
            case RunStartedEvent():
                self._boot = boot_of(headers)
            case _:
                pass

    def report(self) -> LatencyReport:
        """What came of all that was fed."""
        remembered_us = self._remembered()
        results, clocks = self._on_one_clock(remembered_us)
        histograms = {name: Histogram() for name in (*STAGES, *BESIDE)}
        by_lane: dict[str, Histogram] = {}
        changes: list[Change] = []
        counts: Counter[str] = Counter()
        for system in self._started.systems:
            for stream in self._started.streams:
                lane = f"{system}@{stream}"
                of_lane = by_lane.setdefault(lane, Histogram())
                changes += self._lane(lane, stream, results, remembered_us, histograms, of_lane, counts)
        changes.sort(key=at_moment)
        lag, highest, duration_s = lag_over_time(changes)
        if counts["untimed"]:  # these are over, and nobody knows since when
            lag, highest = (), lag_over_time(())[1]
        due = [change for change in changes if change.sign > 0]
        done = [change for change in changes if change.sign < 0 and not change.failed]
        due_s = (due[-1].at_us - due[0].at_us) / 1e6 if due else 0.0
        done_s = (done[-1].at_us - done[0].at_us) / 1e6 if done else 0.0
        systems = len(self._started.systems)
        enough = len(done) >= FEWEST_ACHIEVED
        begin_us = min(self._first_us, changes[0].at_us) if changes else self._first_us
        zero_us, end_us = (changes[0].at_us, changes[-1].at_us) if changes else (None, begin_us)
        return LatencyReport(
            run=self._started.run,
            systems=self._started.systems,
            lanes=systems * len(self._started.streams),
            observations=self._observations.total(),
            segments=counts["segments"],
            remembered=counts["remembered"],
            failed=counts["failed"],
            unfinished=counts["segments"] - counts["remembered"] - counts["failed"],
            duration_s=duration_s,
            # n points in time have n - 1 gaps
            offered_observations_per_s=_per(_observations(due[1:]), due_s),
            offered_segments_per_s=_per(len(due) - 1, due_s),
            achieved_observations_per_s=_per(_observations(done[1:]), done_s) if enough else None,
            achieved_segments_per_s=_per(len(done) - 1, done_s) if enough else None,
            growth=growth_of(changes),
            pacing=self._pacing.percentiles(),
            stages={name: histogram.percentiles() for name, histogram in histograms.items()},
            by_lane={lane: histogram.percentiles() for lane, histogram in by_lane.items()},
            highest=highest,
            lag=lag,
            processes=tuple(
                used(name, samples, begin_us, end_us, zero_us)
                for name, samples in sorted(self._samples.items())
            ),
            identity=self._started.identity,
            clocks=clocks,
            error_us=_errors(clocks),
            steered=self._steered,
            answers=None if self._answers is None else self._report_answers(self._answers, clocks),
        )

    def _report_answers(self, answers: AnswersFold, clocks: Sequence[ClockOffset]) -> AnswersReport:
        """With the stamps of each lane's agent by the replayer's clock: who writes its deltas answers as well."""
        offsets_us = {(clock.role, clock.boot): clock.offset_us for clock in clocks}
        of_lane = {lane: result.clock for (lane, _), result in self._results.items()}
        ahead_us = {lane: offsets_us[clock] for lane, clock in of_lane.items() if clock in offsets_us}
        return answers.report(
            ahead_us,
            error_us=max(_errors(clocks).values(), default=0.0),
            conductor=not (self._boot and self._conductors - {self._boot}),
        )

    def _remembered(self) -> dict[tuple[str, int], int]:
        """When the conductor had read each delta, by the replayer's clock: a release covers all segments before it, so
        a delta had been read by the first release at or after it. Nothing where its clock is another one."""
        found: dict[tuple[str, int], int] = {}
        if self._boot and self._conductors - {self._boot}:
            return found
        segments: dict[str, list[int]] = {}
        for lane, segment in self._results:
            segments.setdefault(lane, []).append(segment)
        for lane, numbers in segments.items():
            releases = sorted(self._released.get(lane, {}).items())
            place = 0
            for segment in sorted(numbers):
                while place < len(releases) and releases[place][0] < segment:
                    place += 1
                if place < len(releases):
                    found[lane, segment] = releases[place][1]
        return found

    def _on_one_clock(
        self, remembered_us: dict[tuple[str, int], int]
    ) -> tuple[dict[tuple[str, int], _Result], tuple[ClockOffset, ...]]:
        """The results with all stamps by the replayer's clock, and the other clocks as they were found."""
        if not self._boot:
            return self._results, ()
        exchanges: list[Exchange] = []
        for (lane, segment), result in self._results.items():
            if lane in self._given_up:
                continue
            due = self._due.get((lane.partition("@")[2], segment))
            read_us = remembered_us.get((lane, segment))
            if due is not None and due.published_us is not None and read_us is not None:
                stamps_us = tuple(us for us in result.times_us if us is not None)
                exchanges.append(Exchange(result.clock, due.published_us, stamps_us, read_us))
        of = {result.clock for result in self._results.values()}
        clocks = other_clocks(of, exchanges, self._boot, self._conductors)
        results = {
            at: result if result.clock not in clocks else result.less(clocks[result.clock].offset_us)
            for at, result in self._results.items()
        }
        return results, tuple(clocks.values())

    def _lane(
        self,
        lane: str,
        stream: str,
        results: dict[tuple[str, int], _Result],
        remembered: dict[tuple[str, int], int],
        histograms: dict[str, Histogram],
        of_lane: Histogram,
        counts: Counter[str],
    ) -> Iterable[Change]:
        """Count one lane's segments and their latencies; gives when its lag changed."""
        for segment in sorted(number for of, number in self._due if of == stream):
            due = self._due[stream, segment]
            counts["segments"] += 1
            yield Change(due.due_us, 1, lane, due)
            result = results.get((lane, segment))
            if result is None:
                continue
            remembered_us = remembered.get((lane, segment))
            # A log that was cut short may lack the release; that the delta is there shows that it was written.
            over_us = remembered_us if remembered_us is not None else result.written_us
            if over_us is None:
                counts["untimed"] += 1
            else:
                yield Change(over_us, -1, lane, due, result.failed)
            if result.failed:
                counts["failed"] += 1
                continue
            counts["remembered"] += 1
            times_us = (due.published_us, *result.times_us, remembered_us)
            for name, time_us in zip(STAGES, times_us, strict=True):
                if time_us is not None:
                    histograms[name].record(time_us - due.due_us)
            if remembered_us is not None:
                of_lane.record(remembered_us - due.due_us)
                if due.published_us is not None:
                    histograms["from_send"].record(remembered_us - due.published_us)
            if result.ingest_us is not None:
                histograms["ingest"].record(result.ingest_us)


def _result(event: DeltaEvent, headers: Headers) -> _Result:
    read_us, began_us, ended_us, wall_us = (
        wall_of(headers, name) for name in ("read_us", "began_us", "ended_us", "wall_us")
    )
    return _Result(
        (role_of_lane(event.lane), boot_of(headers)),
        event.error is not None,
        (read_us, began_us, ended_us, wall_us),
        ended_us - began_us if began_us is not None and ended_us is not None else None,
    )


def _errors(clocks: Iterable[ClockOffset]) -> dict[str, float]:
    """Stage → the greatest error of the clocks that stamped it."""
    errors_us = [clock.error_us for clock in clocks if clock.error_us is not None]
    return dict.fromkeys(BY_AGENT, max(errors_us)) if errors_us else {}


def _observations(changes: Sequence[Change]) -> int:
    return sum(change.segment.observations for change in changes)


def _per(count: int, seconds: float) -> float | None:
    return count / seconds if count > 0 and seconds > 0 else None
