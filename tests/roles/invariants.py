"""The design's invariants 1-5 and 7, checked on the log of a finished run by code that shares nothing with
what wrote it. Each anomaly is a line that says what is wrong; a sound log gives none.

Topics have no order between them, so nothing here compares arrival: order inside a trajectory is what
`causes` and `step` say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from simulator.events import (
    AnchorEvent,
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeadLetterEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    MemoryRecord,
    ObservationEvent,
    ReadyEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    StreamEndedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
    VerdictEvent,
)
from simulator.intake import decode_records, read_to_end
from simulator.log.protocol import Log
from simulator.topics import Topics

T = TypeVar("T", bound=Event)

STEPS = ("T1", "R1", "F", "R_F", "commit", "committed", "T2", "R2", "T2-uncommitted", "R2-uncommitted")


class History(NamedTuple):
    """All events of a run, those of each partition in order, but for those that were buried."""

    events: tuple[AnyEvent, ...]

    @classmethod
    async def read(cls, log: Log, run: str) -> History:
        records = [record async for record in read_to_end(log, Topics.of(run))]
        events = decode_records(run, records)[0]
        buried = {(e.topic, e.partition, e.offset) for e, _ in events if isinstance(e, DeadLetterEvent)}
        return cls(tuple(e for e, r in events if (r.topic, r.partition, r.offset) not in buried))

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def started(self) -> RunStartedEvent:
        return self.of(RunStartedEvent)[0]


def anomalies(history: History) -> list[str]:
    """All that is wrong with a finished run."""
    return [
        *_ids(history),
        *_observations(history),
        *_deltas(history),
        *_trajectories(history),
        *_verdicts(history),
        *_ends(history),
    ]


def _ids(history: History) -> Iterator[str]:
    # Every process of a role says that it is ready; a record is buried again by a reader that begins anew.
    several = (DeadLetterEvent, ReadyEvent)
    counts = Counter(event.id for event in history.events if not isinstance(event, several))
    yield from (f"{n} events are called {name}" for name, n in counts.items() if n > 1)


def _observations(history: History) -> Iterator[str]:
    """Invariant 1."""
    by_stream: dict[str, list[AnyEvent]] = defaultdict(list)
    for event in history.events:
        if isinstance(event, ObservationEvent | SegmentClosedEvent | StreamEndedEvent):
            by_stream[event.stream].append(event)
    if set(by_stream) != set(history.started.streams):
        yield f"streams {sorted(by_stream)} were replayed, not {sorted(history.started.streams)}"
    for stream, events in by_stream.items():
        seq, segment, first, time_us, ended = 0, 0, 0, 0, False
        for event in events:
            if ended:
                yield f"{event.id} follows the end of {stream}"
            if event.event_time_us < time_us:
                yield f"{event.id} goes back in event time"
            time_us = event.event_time_us
            if isinstance(event, ObservationEvent):
                if event.seq != seq:
                    yield f"{stream}: observation {event.seq} where {seq} was due"
                seq = event.seq + 1
            elif isinstance(event, SegmentClosedEvent):
                if (event.segment, event.first_seq, event.last_seq) != (segment, first, seq - 1):
                    yield f"{event.id} does not close segment {segment} with {first}..{seq - 1}"
                segment, first = event.segment + 1, seq
            elif isinstance(event, StreamEndedEvent):
                ended = True
                if (event.observations, event.segments) != (seq, segment) or first != seq:
                    yield f"{event.id} does not count what was published"
        if not ended or segment != history.started.segments[stream]:
            yield f"{stream} did not end after {history.started.segments[stream]} segments"


def _deltas(history: History) -> Iterator[str]:
    """Invariant 2."""
    closed = {(e.stream, e.segment): e for e in history.of(SegmentClosedEvent)}
    by_lane: dict[str, list[DeltaEvent]] = defaultdict(list)
    for delta in history.of(DeltaEvent):
        by_lane[delta.lane].append(delta)
        cause = closed.get((delta.stream, delta.segment))
        if cause is None or delta.causes != (cause.id,) or delta.event_time_us != cause.event_time_us:
            yield f"{delta.id} is not caused by the end of its segment"
        if delta.as_of != delta.segment:
            yield f"{delta.id} is as of {delta.as_of}"
    for system in history.started.systems:
        for stream, segments in history.started.segments.items():
            found = [delta.segment for delta in by_lane.pop(f"{system}@{stream}", [])]
            if found != list(range(segments)):
                yield f"{system}@{stream} has deltas of {found}, not of all {segments} in order"
    yield from (f"lane {lane} is not of this run" for lane in by_lane)


def _trajectories(history: History) -> Iterator[str]:
    """Invariants 3 and 4, and what 5 says of retrieved records."""
    parts: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in history.events:
        if isinstance(event, TrajectoryEvent):
            parts[event.trajectory][STEPS[event.step]] = event
            if _name_of(event) != STEPS[event.step]:
                yield f"{event.id} has step {event.step}"
        elif isinstance(event, VerdictEvent) and event.metric == "ieu":
            parts[event.trajectory]["ieu"] = event
        elif isinstance(event, TrajectoryClosedEvent):
            parts[event.trajectory]["closed"] = event
    deltas = {(e.lane, e.segment): e for e in history.of(DeltaEvent)}
    wanted = {trajectory: (lane, anchor) for trajectory, lane, anchor in _expected(history)}
    yield from (
        f"trajectory {name} is of no lane and anchor" for name in sorted(parts.keys() - wanted.keys())
    )
    visible = _Visible(history)
    for trajectory, (lane, anchor) in wanted.items():
        delta = deltas.get((lane, anchor.segment))
        if delta is not None:
            yield from _chain(trajectory, parts[trajectory], delta, history.started)
        for part in parts[trajectory].values():
            if isinstance(part, ResponseEvent):
                yield from visible.wrong(part, anchor)


def _chain(
    trajectory: str, parts: dict[str, Event], delta: DeltaEvent, started: RunStartedEvent
) -> Iterator[str]:
    """Each step is there if, and only if, what it answers is there and did not fail; and names it as its
    cause."""

    def alive(name: str) -> bool:
        return name in parts and getattr(parts[name], "error", None) is None

    feedback = parts.get("F")
    ieu = parts.get("ieu")
    judged = isinstance(ieu, VerdictEvent) and ieu.outcome != "unjudged"
    revise = isinstance(feedback, FeedbackEvent) and feedback.type == "revise"
    after_feedback = ("R_F",) if revise else ("R1", "ieu")
    follows: dict[str, tuple[bool, tuple[str, ...]]] = {
        "T1": (delta.error is None, ()),
        "R1": ("T1" in parts, ("T1",)),
        "F": (alive("R1") and judged, ("R1", "ieu")),
        "R_F": (revise, ("F",)),
        "commit": ("F" in parts and all(alive(name) for name in after_feedback), after_feedback),
        "committed": ("commit" in parts, ("commit",)),
        "T2": (alive("committed"), ("committed",)),
        "R2": ("T2" in parts, ("T2",)),
        "T2-uncommitted": (started.ablate_commit and alive("committed"), ("committed",)),
        "R2-uncommitted": ("T2-uncommitted" in parts, ("T2-uncommitted",)),
    }
    for name, (due, causes) in follows.items():
        if due != (name in parts):
            yield f"{trajectory}: {name} is {'missing' if due else 'there, and nothing asked for it'}"
        elif due:
            ids = tuple(parts[cause].id for cause in causes) or (delta.id,)
            if parts[name].causes != ids:
                yield f"{parts[name].id} has causes {parts[name].causes}, not {ids}"
            if parts[name].as_of != delta.segment:
                yield f"{parts[name].id} is as of {parts[name].as_of}, not of {delta.segment}"
    if feedback is not None and isinstance(ieu, VerdictEvent) and revise == (ieu.outcome == "pass"):
        yield f"{feedback.id} does not fit R1, which was judged {ieu.outcome}"
    closed = parts.get("closed")
    whole = alive("R2") and (alive("R2-uncommitted") or not started.ablate_commit)
    if not isinstance(closed, TrajectoryClosedEvent):
        yield f"{trajectory} was not closed"
    elif bool(closed.reason) == whole:
        yield f"{trajectory} closed with reason {closed.reason!r}, and is {'whole' if whole else 'cut short'}"


class _Visible:
    """What a response may rest on: what its lane had stored by the task's segment, what its own branch had
    committed, and in isolation `shared` what earlier trajectories had."""

    def __init__(self, history: History) -> None:
        self.shared = history.started.isolation == "shared"
        self.stored: dict[str, dict[str, tuple[int, MemoryRecord]]] = defaultdict(dict)
        for delta in history.of(DeltaEvent):
            for record in delta.records:
                self.stored[delta.lane][record.id] = (delta.segment, record)
        self.committed: dict[str, dict[str, tuple[str, MemoryRecord]]] = defaultdict(dict)
        for event in history.of(CommittedEvent):
            for record in event.records:
                self.committed[event.lane][record.id] = (event.trajectory, record)
        self.turn = {e.trajectory: n for n, e in enumerate(history.of(TrajectoryClosedEvent))}

    def wrong(self, response: ResponseEvent, anchor: AnchorEvent) -> Iterator[str]:
        for found in response.retrieved:
            if found.event_time_us > response.event_time_us:
                yield f"{response.id} rests on {found.id}, which is newer"
            segment, stored = self.stored[response.lane].get(found.id, (-1, None))
            owner, committed = self.committed[response.lane].get(found.id, ("", None))
            source = stored or committed
            if source is None:
                yield f"{response.id} rests on {found.id}, which nobody wrote"
            elif (source.text, source.event_time_us) != (found.text, found.event_time_us):
                yield f"{response.id} rests on another {found.id} than was written"
            elif stored is not None and segment > anchor.segment:
                yield f"{response.id} rests on {found.id} of segment {segment}"
            elif committed is not None and not self._may_see(response, owner):
                yield f"{response.id} rests on {found.id} of {owner}"

    def _may_see(self, response: ResponseEvent, owner: str) -> bool:
        if owner == response.trajectory:
            return response.phase == "R2" and response.arm == "committed"
        return self.shared and self.turn[owner] < self.turn[response.trajectory]


def _verdicts(history: History) -> Iterator[str]:
    """Invariant 7."""
    found: dict[str, list[VerdictEvent]] = defaultdict(list)
    for verdict in history.of(VerdictEvent):
        found[verdict.trajectory].append(verdict)
        if verdict.outcome == "unjudged" and not verdict.reason:
            yield f"{verdict.id} is unjudged without a reason"
    for trajectory, _, _ in _expected(history):
        verdicts = found.pop(trajectory, [])
        outcomes = {v.metric: v.outcome for v in verdicts}
        wanted = {"fidelity", "ieu", "fur"}
        wanted |= {"fi"} if outcomes.get("ieu") == "fail" else set()
        wanted |= {"fur_uncommitted"} if history.started.ablate_commit else set()
        if sorted(v.metric for v in verdicts) != sorted(wanted):
            yield f"{trajectory} has verdicts on {[v.metric for v in verdicts]}, not on {sorted(wanted)}"
    yield from (f"verdicts on {trajectory}, which is of no lane and anchor" for trajectory in found)


def _ends(history: History) -> Iterator[str]:
    """The run ended, counted right, and let every snapshot go."""
    verdicts = history.of(VerdictEvent)
    counts = (
        len(list(_expected(history))),
        len(verdicts),
        sum(verdict.outcome == "unjudged" for verdict in verdicts),
    )
    ended = [(e.trajectories, e.verdicts, e.unjudged) for e in history.of(RunEndedEvent)]
    if ended != [counts]:
        yield f"the run ended as {ended}, not as {[counts]}"
    released: dict[str, int] = {}
    for event in history.of(SegmentReleasedEvent):
        if event.segment <= released.get(event.lane, -1):
            yield f"{event.id} releases nothing new"
        released[event.lane] = event.segment
    for system in history.started.systems:
        for stream, segments in history.started.segments.items():
            if segments and released.get(f"{system}@{stream}") != segments - 1:
                yield f"{system}@{stream} keeps snapshots after {released.get(f'{system}@{stream}')}"


def _expected(history: History) -> Iterable[tuple[str, str, AnchorEvent]]:
    """(trajectory, lane, anchor) for every lane and anchor."""
    for system in history.started.systems:
        for anchor in history.of(AnchorEvent):
            lane = f"{system}@{anchor.stream}"
            yield f"{lane}/{anchor.anchor.removeprefix(anchor.stream + '/')}", lane, anchor


def _name_of(event: TrajectoryEvent) -> str:
    match event:
        case TaskEvent() | ResponseEvent():
            return event.phase if event.arm == "committed" else f"{event.phase}-{event.arm}"
        case FeedbackEvent():
            return "F"
        case CommitEvent():
            return "commit"
        case _:
            return "committed"
