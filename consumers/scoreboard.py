"""The scoreboard: a pure fold over a run's events that gives its scores.

Feed it the records of every topic in `SCOREBOARD_TOPICS`, in any order between topics; duplicates of an event
change nothing. Nothing is counted while feeding: `scores()` works out everything from what was kept, so that
it can be asked at any moment, and two logs with the same events give the same scores.

- A trajectory is expected for every anchor and every system of the run. A metric without a verdict is
  unjudged.
- `rate` is passed / judged; unjudged ones stand beside it and never count as failed. FI counts only where R1
  failed.
- A trajectory's third is its segment's index x 3 // the number of segments that the run replays of its
  stream: 0 early, 1 middle, 2 late.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import msgspec

from consumers.amounts import amount, by_count, commonest_first
from consumers.anchor_scores import failure_label
from consumers.rebuild import RebuildFold
from consumers.scores import THIRDS, Cost, Mark, Pace, Row, Scores
from consumers.spending import SpendingFold, Unit
from consumers.tallying import tallied
from judges.apm import peak_bytes_per_hour, replay_real_time_factor
from simulator.errors import InvariantError
from simulator.events import (
    AnchorEvent,
    CommitEvent,
    CommittedEvent,
    DatasetReportEvent,
    DeadLetterEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    LaneRebuiltEvent,
    Means,
    Metric,
    OutlineEvent,
    ProbeEvent,
    Questions,
    ReadyEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    Subject,
    TaskEvent,
    TrajectoryClosedEvent,
    Usage,
    VerdictEvent,
)
from simulator.log.protocol import Headers
from simulator.protocols.questions import question_of
from simulator.protocols.subjects import metrics_of
from simulator.protocols.trajectory import trajectory_id

SCOREBOARD_TOPICS: Final = (
    "control",
    "anchors",
    "deltas",
    "tasks",
    "responses",
    "feedback",
    "commits",
    "verdicts",
    "dead",
)
"""The fields of `Topics` that the scoreboard reads: all but the observations."""

NO_VERDICT: Final = "no verdict in the log"
_NO_MARK: Final = Mark(outcome="unjudged", reason=NO_VERDICT)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Part(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one event of a trajectory. `took_us` comes from its headers."""

    id: str
    text: str | None = None
    retrieved: int | None = None
    tokens: int = 0
    took_us: int | None = None
    error: str | None = None
    replayed_tokens: int = 0
    isolated_us: int | None = None
    first_token_us: int | None = None
    newest_us: int | None = None
    """Event time of the newest record that it rests on."""


class _Kept(msgspec.Struct):
    """What is kept of one trajectory: its parts by name (`T1`, `R1`, ..., `R2-uncommitted`), how its metrics came
    out and, once it has closed, why early (empty: it did not)."""

    parts: dict[str, _Part] = msgspec.field(default_factory=dict)
    marks: dict[Metric, Mark] = msgspec.field(default_factory=dict)
    closed: str | None = None


_NOTHING: Final = _Kept()


class _Ingest(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one delta."""

    stored_bytes: int
    tokens: int
    took_us: int | None
    error: str | None


_Timed = TypeVar("_Timed", _Part, _Ingest)
_TIMES: Final = {"took_us", "isolated_us", "first_token_us"}


class Scoreboard:
    """A fold over a run's events. `texts=False` keeps no texts: enough for live numbers."""

    def __init__(self, *, texts: bool = True) -> None:
        self._texts = texts
        self._started: RunStartedEvent | None = None
        self._means: dict[str, Means] = {}
        """System → how its agent says that its branches are made."""
        self._ended = False
        self._anchors: dict[str, Subject] = {}
        self._outlines: dict[str, OutlineEvent] = {}
        self._trajectories: dict[str, _Kept] = defaultdict(_Kept)
        self._ingests: dict[str, dict[int, _Ingest]] = defaultdict(dict)
        self._sound: dict[str, int] = {}
        """Lane that a retry ingested → how many of its segments are as they would be without an outage."""
        self._dead: dict[str, str] = {}
        self._oddities: dict[str, int] = {}
        self._spending = SpendingFold()
        self._rebuilds = RebuildFold()

    def feed(self, event: Event, headers: Headers = ()) -> None:
        """Take one event with its record's headers (`began_us` and `ended_us` say how long it took). Raises
        InvariantError for two verdicts on one metric of a trajectory."""
        self._spending.feed(event, headers)
        match event:
            case VerdictEvent():
                mark = _mark(event)
                first = self._trajectories[event.trajectory].marks.setdefault(event.metric, mark)
                if first != mark:
                    raise InvariantError(
                        f"{event.trajectory} has two verdicts on {event.metric}", (first.verdict, event.id)
                    )
            case TaskEvent():
                self._keep(event.trajectory, _with_arm(event.phase, event.arm), _Part(event.id, event.text))
            case ResponseEvent():
                part = _Part(
                    event.id,
                    event.text,
                    len(event.retrieved),
                    _tokens(event.usage),
                    _took_us(headers),
                    event.error,
                    _tokens(event.replayed.usage),
                    _took_us(headers, "isolating_us", "began_us"),
                    _took_us(headers, "began_us", "first_token_us"),
                    max((found.event_time_us for found in event.retrieved), default=None),
                )
                self._keep(event.trajectory, _with_arm(event.phase, event.arm), part)
            case FeedbackEvent():
                self._keep(event.trajectory, "F", _Part(event.id, event.text))
            case CommitEvent():
                self._keep(event.trajectory, "commit", _Part(event.id))
            case CommittedEvent():
                part = _Part(
                    event.id,
                    tokens=_tokens(event.usage),
                    error=event.error,
                    replayed_tokens=_tokens(event.replayed.usage),
                )
                self._keep(event.trajectory, "committed", part)
            case DeltaEvent():
                ingest = _Ingest(event.stored_bytes, _tokens(event.usage), _took_us(headers), event.error)
                self._ingests[event.lane].setdefault(event.segment, ingest)
            case TrajectoryClosedEvent():
                self._trajectories[event.trajectory].closed = event.reason
            case AnchorEvent() | ProbeEvent():
                self._anchors.setdefault(event.anchor, event)
            case OutlineEvent():
                self._outlines.setdefault(event.stream, event)
            case DeadLetterEvent():
                self._dead[event.id] = event.reason
            case RunStartedEvent():
                self._started = event
            case ReadyEvent(means=means) if means is not None:
                self._means[event.role.removeprefix("agent.")] = means
            case LaneRebuiltEvent():
                self._rebuilds.feed(event)
            case RunEndedEvent():
                self._ended = True
            case DatasetReportEvent():
                self._oddities = commonest_first(event.oddities)
            case _:
                pass

    def take_retry(self, retry: Scoreboard) -> None:
        """Let what a later retry of this run did again stand for what was done here: its trajectories, and of each lane
        the ingests from the first on that had failed or is missing. What came to the same again keeps the times that it
        took at first, when no answer of it was in the cache. Raises ValueError for a retry of which nothing was fed."""
        if retry._started is None:
            raise ValueError("nothing of the retry was fed")
        redone: set[Unit] = set(retry._started.only)
        for trajectory in retry._started.only:
            here, again = (board._trajectories.get(trajectory, _NOTHING) for board in (self, retry))
            parts = {name: _first_of_equals(here.parts.get(name), part) for name, part in again.parts.items()}
            self._trajectories[trajectory] = _Kept(parts, dict(again.marks), again.closed)
        for lane, ingests in retry._ingests.items():
            here_too = self._ingests[lane]
            sound = self._sound.get(lane, _without_gap(here_too))
            for segment, ingest in ingests.items():
                if segment >= sound:
                    redone.add((lane, segment))
                    here_too[segment] = _first_of_equals(here_too.get(segment), ingest)
            self._sound[lane] = max(sound, _without_gap(ingests))
        self._spending.take(retry._spending, redone)

    def scores(self) -> Scores | None:
        """The scores of all that was fed; None before the run's first event."""
        started = self._started
        if started is None:
            return None
        rows = self._rows(started)
        by_system: dict[str, list[Row]] = {system: [] for system in started.systems}
        for row in rows:
            by_system[row.system].append(row)
        failed_ingests = {
            system: by_count(ingest.error for ingest in self._lane_ingests(started, system) if ingest.error)
            for system in started.systems
        }
        bare = Scores(
            run=started.run,
            ended=self._ended,
            protocol=started.protocol,
            systems=started.systems,
            privileged=started.privileged,
            isolation=started.isolation,
            means=self._means_of(started),
            announced_anchors=started.anchors,
            anchors=sum(anchor.stream in started.streams for anchor in self._anchors.values()),
            failed_ingests={system: reasons for system, reasons in failed_ingests.items() if reasons},
            dead_letters=by_count(self._dead.values()),
            strays=self._strays(started, rows),
            costs=tuple(self._cost(started, system, by_system[system]) for system in started.systems),
            spending=self._spending.spendings(
                started,
                {system: len(self._lane_ingests(started, system)) for system in started.systems},
                {system: len(self._begun(rows)) for system, rows in by_system.items()},
            ),
            pace=self._paces(started, by_system),
            answered_by=started.models["answers"].model if "answers" in started.models else "",
            embedded_by=tuple(
                sorted({use.model for name, use in started.models.items() if name.startswith("embedder.")})
            ),
            answered_apart=started.answered_apart,
            rebuilds=self._rebuilds.lanes(),
            oddities=self._oddities,
        )
        return tallied(bare, rows, ablated=started.ablate_commit)

    def _means_of(self, started: RunStartedEvent) -> dict[str, Means]:
        if started.isolation == "shared":
            return {}
        known = {system: self._means.get(system) for system in started.attached}
        known |= {
            system: started.means.get(system, "fork")
            for system in started.systems
            if system not in started.attached
        }
        return {system: means for system in started.systems if (means := known[system]) is not None}

    def _keep(self, trajectory: str, name: str, part: _Part) -> None:
        if not self._texts and part.text is not None:
            part = msgspec.structs.replace(part, text=None)
        self._trajectories[trajectory].parts.setdefault(name, part)

    def _lane_ingests(self, started: RunStartedEvent, system: str) -> list[_Ingest]:
        lanes = (f"{system}@{stream}" for stream in started.streams)
        return [ingest for lane in lanes for ingest in self._ingests.get(lane, {}).values()]

    def _rows(self, started: RunStartedEvent) -> tuple[Row, ...]:
        anchors: dict[str, list[Subject]] = {stream: [] for stream in started.streams}
        for anchor in self._anchors.values():
            if anchor.stream in anchors:
                anchors[anchor.stream].append(anchor)
        for stream in started.streams:
            # By length first, so that e10 comes after e9.
            anchors[stream].sort(key=lambda anchor: (anchor.segment, len(anchor.anchor), anchor.anchor))
        only = frozenset(started.only)
        failed = {
            lane: sorted(segment for segment, ingest in ingests.items() if ingest.error is not None)
            for lane, ingests in self._ingests.items()
        }
        return tuple(
            msgspec.structs.replace(
                self._row(started, system, anchor),
                missed=bisect_left(failed.get(f"{system}@{stream}", []), anchor.segment),
            )
            for system in started.systems
            for stream in started.streams
            for anchor in anchors[stream]
            if not only or trajectory_id(f"{system}@{stream}", anchor) in only
        )

    def _row(self, started: RunStartedEvent, system: str, subject: Subject) -> Row:
        lane = f"{system}@{subject.stream}"
        trajectory = trajectory_id(lane, subject)
        kept = self._trajectories.get(trajectory, _NOTHING)
        ieu = kept.marks.get("ieu")
        wanted = metrics_of(subject, ieu.outcome if ieu else None, ablate_commit=started.ablate_commit)
        marks = {metric: kept.marks.get(metric, _NO_MARK) for metric in wanted}
        segments = max(started.segments.get(subject.stream, 0), subject.segment + 1)
        end = _EPOCH + timedelta(microseconds=subject.event_time_us)
        row = Row(
            system=system,
            lane=lane,
            stream=subject.stream,
            segment=subject.segment,
            third=THIRDS[subject.segment * 3 // segments],
            day=(end - timedelta(microseconds=1)).date().isoformat(),  # 24:00 is still that day
            time=end.time().isoformat(timespec="seconds"),
            anchor=subject.anchor,
            trajectory=trajectory,
            marks=marks,
            events={name: part.id for name, part in sorted(kept.parts.items())},
            texts={name: part.text for name, part in sorted(kept.parts.items()) if part.text is not None},
            retrieved={
                name: part.retrieved
                for name, part in sorted(kept.parts.items())
                if part.retrieved is not None
            },
            errors={name: part.error for name, part in sorted(kept.parts.items()) if part.error is not None},
            closed=kept.closed is not None,
            closed_reason=kept.closed or "",
        )
        if isinstance(subject, ProbeEvent):
            newest_us = kept.parts["R1"].newest_us if "R1" in kept.parts else None
            return msgspec.structs.replace(
                row,
                evidence_id=subject.source_id,
                evidence=subject.question,
                groups=subject.groups,
                newer=newest_us is not None and newest_us >= subject.asked_time_us,
            )
        label, unlabelled = failure_label(marks)
        return msgspec.structs.replace(
            row,
            evidence_id=subject.evidence_id,
            evidence_type=subject.evidence_type,
            subject=subject.subject,
            evidence=subject.evidence_statement,
            label=label,
            unlabelled=unlabelled,
        )

    def _strays(self, started: RunStartedEvent, rows: tuple[Row, ...]) -> tuple[str, ...]:
        """Trajectories that nothing in this run has. A load's questions are its own, of no anchor."""
        rest = self._trajectories.keys() - {row.trajectory for row in rows}
        lanes = {f"{system}@{stream}" for system in started.systems for stream in started.streams}
        names = {one: question_of(one, started.questions or Questions()) for one in rest}
        return tuple(sorted(one for one, name in names.items() if name is None or name.lane not in lanes))

    def _paces(self, started: RunStartedEvent, by_system: dict[str, list[Row]]) -> tuple[Pace, ...]:
        """Of streams with sessions."""
        outlines = [outline for outline in self._outlines.values() if outline.sessions]
        return tuple(
            self._pace(system, outlines, by_system[system]) for system in started.systems if outlines
        )

    def _pace(self, system: str, outlines: list[OutlineEvent], rows: list[Row]) -> Pace:
        peaks, took_us, lasted_us = [], 0, 0
        within: set[tuple[str, int]] = set()
        for outline in outlines:
            covered = {n for s in outline.sessions for n in range(s.first_segment, s.last_segment + 1)}
            within |= {(outline.stream, n) for n in covered}
            written = self._ingests.get(f"{system}@{outline.stream}", {})
            # of no other: a session may be cut short, and an attached agent may write of what is not there
            ingests = {n: ingest for n, ingest in written.items() if n in covered}
            active_us = sum(span.end_time_us - span.start_time_us for span in outline.sessions)
            lasted_us += active_us
            took_us += sum(ingest.took_us or 0 for ingest in ingests.values())
            changes = [
                (outline.segment_ends_us[n], i.stored_bytes) for n, i in ingests.items() if i.error is None
            ]
            if len(ingests) == len(covered):
                ends_us = [span.end_time_us for span in outline.sessions]
                peaks.append(peak_bytes_per_hour(changes, ends_us, active_us))
        kept = [row for row in rows if (row.stream, row.segment) in within]
        answers = [parts["R1"] for parts in self._begun(kept) if "R1" in parts]
        took_us += sum(answer.took_us or 0 for answer in answers)
        return Pace(
            system=system,
            peak_bytes_per_hour=max(peaks, default=None),
            replay_real_time_factor=replay_real_time_factor(took_us, lasted_us) if lasted_us else None,
            first_token_seconds=amount(
                (a.first_token_us for a in answers if a.first_token_us is not None), 1_000_000
            ),
        )

    def _begun(self, rows: list[Row]) -> list[dict[str, _Part]]:
        """The parts of the trajectories that have any."""
        return [parts for row in rows if (parts := self._trajectories.get(row.trajectory, _NOTHING).parts)]

    def _cost(self, started: RunStartedEvent, system: str, rows: list[Row]) -> Cost:
        ingests = self._lane_ingests(started, system)
        taken = [ingest for ingest in ingests if ingest.error is None]
        begun = self._begun(rows)
        first_answers = [parts["R1"] for parts in begun if "R1" in parts and parts["R1"].error is None]
        return Cost(
            system=system,
            stored_bytes=amount(ingest.stored_bytes for ingest in taken),
            ingest_seconds=amount((i.took_us for i in taken if i.took_us is not None), 1_000_000),
            answer_seconds=amount((a.took_us for a in first_answers if a.took_us is not None), 1_000_000),
            ingest_tokens=amount(ingest.tokens for ingest in ingests),
            trajectory_tokens=amount(sum(part.tokens for part in parts.values()) for parts in begun),
            branch_seconds=amount(
                (a.isolated_us for a in first_answers if a.isolated_us is not None), 1_000_000
            ),
            replayed_tokens=amount(sum(part.replayed_tokens for part in parts.values()) for parts in begun)
            if self._means_of(started).get(system) == "replay"
            else None,
        )


def _without_gap(ingests: Mapping[int, _Ingest]) -> int:
    """How many segments were ingested before the first that failed or is missing."""
    number = 0
    while (ingest := ingests.get(number)) is not None and ingest.error is None:
        number += 1
    return number


def _first_of_equals(first: _Timed | None, again: _Timed) -> _Timed:
    """The first one where both are the same but for the times that they took."""
    if first is None:
        return again
    untimed = [
        msgspec.structs.replace(one, **dict.fromkeys(_TIMES & set(one.__struct_fields__)))
        for one in (first, again)
    ]
    return first if untimed[0] == untimed[1] else again


def _with_arm(phase: str, arm: str) -> str:
    return phase if arm == "committed" else f"{phase}-{arm}"


def _mark(verdict: VerdictEvent) -> Mark:
    return Mark(
        outcome=verdict.outcome,
        reason=verdict.reason,
        scores=verdict.scores,
        judge=sys.intern(verdict.judge),  # one of a few: thousands of copies would be kept
        verdict=verdict.id,
        votes=verdict.votes,
        value=verdict.value,
    )


def _tokens(usage: Usage) -> int:
    return usage.prompt_tokens + usage.completion_tokens


def _took_us(headers: Headers, begun: str = "began_us", ended: str = "ended_us") -> int | None:
    """From one header to the other; None where a header is missing or no number (somebody else's agent)."""
    times = {name: value for name, value in headers if name in (begun, ended)}
    try:
        return max(0, int(times[ended]) - int(times[begun]))
    except (KeyError, ValueError):
        return None
