"""The auditor: a pure fold over a run's events and their places in the log. Every check is made from what the log
says more than once: sequence and causes, ids, times, texts, and places."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from consumers.audit.canaries import Canaries
from consumers.audit.certificate import Book, Certificate, Kept, Place
from consumers.audit.form import LATE, Form, is_late
from consumers.audit.memory import ATTACHED_SKEW_US, SKEW_US, Memories
from consumers.audit.parts import name_of
from consumers.audit.questions import Asked
from consumers.audit.secrets import Secrets
from consumers.audit.stream import Streams
from consumers.audit.trajectories import Trajectories
from consumers.audit.verdicts import take_verdict
from simulator.events import (
    AnchorEvent,
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeadLetterEvent,
    DeltaEvent,
    FeedbackEvent,
    LaneFailedEvent,
    LaneRebuiltEvent,
    ObservationEvent,
    OutlineEvent,
    ProbeEvent,
    ReplayEndedEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    StreamEndedEvent,
    Subject,
    TakenEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
    VerdictEvent,
    identity_digest,
)
from simulator.log.protocol import StoredRecord
from simulator.protocols.subjects import basis_of
from simulator.topics import Topics, wall_of

AUDIT_TOPICS: Final = (
    *("dead", "anchors", "control", "observations", "deltas"),
    *("feedback", "tasks", "commits", "responses", "verdicts"),
)
"""The order in which the topics are fed, each whole: what was buried before what is read, the streams before what was
stored, what was stored before what was asked, and that before what was answered."""

LEFT_OUT: Final = {
    "control": "who was ready when, and what was let go when, differs between equal runs",
    "dead": "what it holds is no part of the run",
}
"""Topics that are not in the digest, and why."""

_BITS: Final = 256


class Auditor:
    """Feed it every record of the topics in `AUDIT_TOPICS`, topic by topic in that order, each partition by offset;
    then ask for the certificate, once.

    Memory: ids and places of all events but the observations; the end of each segment; for each trajectory its parts'
    causes, times and fingerprints; for each record that a lane wrote its id, times and a fingerprint; the anchors.
    Texts of observations, records and answers are not kept.

    Args:
        started: the run's first event.
        settled: (topic, partition) → offset before which everything rests on what is fed as well; None: all does, as
            where nobody writes any more. What later records lack is open, and not missing.
    """

    def __init__(
        self, started: RunStartedEvent, settled: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        self.started = started
        self._book = book = Book(settled)
        self._form = Form(started, book)
        self._streams = Streams(started, book)
        self._memories = Memories(started, book, self._streams)
        self._secrets = Secrets(started, book)
        self._canaries = Canaries(started, book)
        self._trajectories = Trajectories(started, book, self._form, self._memories)
        self._asked = Asked(started, book, self._form, self._memories)
        self._short = {full: name for name, full in Topics.of(started.run)._asdict().items()}
        self._prefix = {full: f"{name}\n".encode() for full, name in self._short.items()}
        self._events: Counter[str] = Counter()
        self._sum = 0
        self._anchors: list[tuple[Subject, Kept]] = []
        self._outlines: list[tuple[OutlineEvent, Kept]] = []
        self._began: list[Kept] = []
        self._ended: list[tuple[RunEndedEvent, Kept]] = []
        self._replayed: list[tuple[ReplayEndedEvent, Kept]] = []
        self._failed: dict[str, Kept] = {}
        self._released: dict[str, Kept] = {}
        self._topic = ""

    @property
    def ended(self) -> bool:
        """Whether the run has ended: from then on what is missing is missing."""
        over = self._ended if self.started.systems else self._replayed
        return any(self._book.is_settled(kept.place) for _, kept in over)

    def unreadable(self, letter: DeadLetterEvent) -> None:
        """Take a record that is no event of this run, as the dead letter that it would get."""
        if self._short.get(letter.topic) == "dead":
            place = Place(letter.topic, letter.partition, letter.offset)
            self._book.find(
                "form", "unreadable", f"a dead letter can't be read: {letter.reason}", (letter.id, place)
            )
        else:
            self._form.unreadable(letter)

    def feed(self, event: AnyEvent, record: StoredRecord) -> None:
        """Take one event with its record."""
        if record.topic != self._topic:
            self._turn_to(record.topic)
        if isinstance(event, DeadLetterEvent):
            self._events["dead"] += 1
            self._form.bury(event, Place.of(record))
        elif self._form.passes_over(event, record) or self._is_late(event, record):
            return
        elif self._form.counts(event, record):
            name = self._short[record.topic]
            self._events[name] += 1
            if name not in LEFT_OUT:
                value = hashlib.sha256(self._prefix[record.topic] + record.value).digest()
                self._sum += int.from_bytes(value)
            if type(event) is ObservationEvent:  # by far the most frequent
                self._observation(event, record)
            else:
                self._take(event, record)

    def _turn_to(self, topic: str) -> None:
        name = self._short[topic]
        later = AUDIT_TOPICS.index(name)
        for passed in AUDIT_TOPICS[
            AUDIT_TOPICS.index(self._short[self._topic]) if self._topic else 0 : later
        ]:
            if passed == "anchors":
                self._secrets.ready()
            elif passed == "observations":
                self._secrets.overheard()
        if self._topic and later < AUDIT_TOPICS.index(self._short[self._topic]):
            raise ValueError(
                f"{name} is fed after {self._short[self._topic]}: feed the topics in their order"
            )
        self._topic = topic

    def _is_late(self, event: AnyEvent, record: StoredRecord) -> bool:
        """An attached agent may go on after its trajectory, its lane or the run was given up, when nobody is there to
        bury what it says: that is no part of the run."""
        if not self.started.attached or not self._form.is_theirs(event):
            return False
        assert isinstance(event, DeltaEvent | ResponseEvent | CommittedEvent)
        ended_us = next((kept.wall_us for _, kept in self._ended), None)
        late = is_late(record, ended_us)
        if isinstance(event, DeltaEvent):
            last = self._memories.last_delta(event.lane)
            late |= event.lane in self._failed and event.segment != last + 1
        elif event.error is None and isinstance(event, ResponseEvent):
            told = self._trajectories.told.get(event.trajectory)
            closed = None if told is None else told.closed
            late |= (
                closed is not None
                and bool(closed.reason)
                and name_of(event) in [basis_of(metric) for metric in closed.unjudged]
            )
        if late:
            self._book.ignored[LATE] += 1
        return late

    def _observation(self, event: ObservationEvent, record: StoredRecord) -> None:
        self._streams.observation(event, record)
        self._secrets.observation(event, record)
        if self._canaries.announced:
            self._canaries.observation(event, record, self._streams.open_segment(event.stream))

    def _take(self, event: AnyEvent, record: StoredRecord) -> None:
        kept = Kept(event.id, Place.of(record), wall_us=wall_of(record.headers))
        match event:
            case SegmentClosedEvent():
                self._streams.closed(event, record)
            case StreamEndedEvent():
                self._streams.stream_ended(event, record)
            case DeltaEvent():
                skew_us = ATTACHED_SKEW_US if self._form.is_attached(event.lane) else SKEW_US
                self._memories.delta(event, record, skew_us)
                self._secrets.delta(event, record)
                texts = (written.text for written in event.records)
                self._canaries.seen("2", texts, event.stream, event.segment, kept)
            case VerdictEvent():
                take_verdict(self._trajectories.told.get(event.trajectory), event, record, self._book)
            case OutlineEvent():
                self._outlines.append((event, kept))
            case AnchorEvent() | ProbeEvent():
                self._anchors.append((event, kept))
                self._secrets.anchor(event)
                self._trajectories.anchor(event)
            case TaskEvent() | ResponseEvent() | FeedbackEvent() | CommitEvent() | CommittedEvent():
                self._part(event, record)
            case _:
                self._control(event, record, kept)

    def _part(self, event: TrajectoryEvent, record: StoredRecord) -> None:
        if self.started.questions is not None:
            self._asked.part(event, record)
            return
        told = self._trajectories.of(event, Place.of(record))
        if told is None:
            return
        part = self._trajectories.part(told, event, record)
        anchor = told.anchor
        texts: Iterable[str] = ()
        match event:
            case TaskEvent():
                self._secrets.task(event, part, anchor.anchor)
                texts = (event.text,)
            case FeedbackEvent():
                self._secrets.feedback(event, part, anchor.anchor)
                texts = (event.text,)
            case CommitEvent():
                self._secrets.commit(event, part, anchor.anchor)
                texts = (turn.text for turn in event.interaction)
            case ResponseEvent():
                self._memories.check_response(event, part, anchor.segment)
                self._secrets.said(event, part.place, anchor.anchor)
                texts = (event.text, *(found.text for found in event.retrieved))
            case CommittedEvent():
                self._memories.committed(event, anchor.segment)
                self._secrets.said(event, part.place, anchor.anchor)
                texts = (written.text for written in event.records)
        self._canaries.seen("3", texts, event.stream, anchor.segment, part)

    def _control(self, event: AnyEvent, record: StoredRecord, kept: Kept) -> None:
        self._secrets.control(event, record)
        match event:
            case RunStartedEvent():
                self._began.append(kept)
                if event != self.started:
                    self._book.find(
                        "form",
                        "run_started",
                        "another run_started than the run's first event is in the log",
                        kept,
                    )
            case TrajectoryClosedEvent() if self.started.questions is not None:
                self._asked.closed(event, record)
            case TrajectoryClosedEvent():
                self._trajectories.closed(event, record)
            case LaneFailedEvent():
                self._failed[event.lane] = kept
                if not self._form.is_attached(event.lane):
                    self._book.find(
                        "form",
                        "lane_failed",
                        f"{event.lane} was given up, and its agent is one of ours",
                        kept,
                    )
            case TakenEvent():
                self._form.taken(event, kept)
            case LaneRebuiltEvent():
                self._memories.rebuilt(event, record)
            case SegmentReleasedEvent():
                kept.as_of = event.segment
                last = self._released.get(event.lane)
                if last is not None and (last.as_of or 0) >= event.segment:
                    self._book.find(
                        "form",
                        "release_order",
                        f"{event.id} releases nothing that was not released",
                        kept,
                        last,
                    )
                else:
                    self._released[event.lane] = kept
            case ReplayEndedEvent():
                self._replayed.append((event, kept))
            case RunEndedEvent():
                self._ended.append((event, kept))
            case _:
                pass

    def certificate(self) -> Certificate:
        """What came of it. To be asked once, after all was fed."""
        self._turn_to(getattr(Topics.of(self.started.run), AUDIT_TOPICS[-1]))
        ended, book = self.ended, self._book
        book.checked["6"] += self._events["observations"]
        self._streams.close(ended=ended, replayed=next((kept for _, kept in self._replayed), None))
        self._canaries.close(ended=ended)
        self._memories.close_deltas(frozenset(self._failed), ended=ended)
        self._trajectories.close(ended=ended)
        self._asked.close(ended=ended)
        self._form.close(ended=ended)
        self._close_anchors()
        self._close_run(ended=ended)
        if book.unsettled:
            book.leave_open(
                f"{book.unsettled} records came while the log was read: audit again to have them checked"
            )
        return Certificate(
            run=self.started.run,
            identity=self.started.identity,
            ended=ended,
            events={name: self._events[name] for name in AUDIT_TOPICS},
            checked=dict(book.checked),
            digest=f"{self._sum % 2**_BITS:064x}",
            digest_topics=tuple(name for name in AUDIT_TOPICS if name not in LEFT_OUT),
            digest_left_out=LEFT_OUT,
            found=dict(book.found),
            findings=tuple(book.findings),
            not_shown=book.not_shown,
            open=tuple(book.open),
            open_not_shown=book.open_not_shown,
            unproved=dict(book.unproved),
            ignored=dict(book.ignored),
            buried=self._form.buried,
            canaries=self._canaries.announced,
            rebuilds=self._memories.rebuilds,
        )

    def _close_anchors(self) -> None:
        """Each anchor lies in a segment of the run, at its end."""
        book, started = self._book, self.started
        if len(self._anchors) != started.anchors:
            book.find(
                "form",
                "anchors",
                f"the run began with {started.anchors} anchors, and {len(self._anchors)} are there",
                *(kept for _, kept in self._anchors[:3]),
            )
        for anchor, kept in self._anchors:
            closing = self._streams.closings.get((anchor.stream, anchor.segment))
            if not 0 <= anchor.segment < started.segments.get(anchor.stream, 0):
                book.find(
                    "form",
                    "anchor_segment",
                    f"{anchor.id} lies in segment {anchor.segment}, which the run has not",
                    kept,
                )
            elif closing is not None and closing.event_time_us != anchor.event_time_us:
                book.find(
                    "form", "anchor_time", f"{anchor.id} is not at the end of its segment", kept, closing
                )
        outlined = {outline.stream for outline, _ in self._outlines}
        for stream in sorted({a.stream for a, _ in self._anchors if isinstance(a, ProbeEvent)} - outlined):
            what = f"{stream} has probes, and no outline says where its segments end"
            book.find("form", "outline", what, f"{stream}/outline")
        for outline, kept in self._outlines:
            self._check_outline(outline, kept)

    def _check_outline(self, outline: OutlineEvent, kept: Kept) -> None:
        """It says of segments what the stream says, and its sessions are of these."""
        book, ends_us = self._book, outline.segment_ends_us
        segments = self.started.segments.get(outline.stream, 0)
        if len(ends_us) != segments:
            what = f"{outline.id} is of {len(ends_us)} segments, and {outline.stream} has {segments}"
            book.find("form", "outline", what, kept)
            return
        for segment, end_us in enumerate(ends_us):
            closing = self._streams.closings.get((outline.stream, segment))
            if closing is not None and closing.event_time_us != end_us:
                what = f"{outline.id} says that segment {segment} ends at {end_us} us, and it does not"
                book.find("form", "outline", what, kept, closing)
                break
        passed = -1
        for span in outline.sessions:
            whole = passed < span.first_segment <= span.last_segment < segments
            if not whole or not span.start_time_us < ends_us[span.last_segment] <= span.end_time_us:
                what = f"{outline.id}: session {span.name} is not where its segments are"
                book.find("form", "outline", what, kept)
                break
            passed = span.last_segment

    def _close_run(self, *, ended: bool) -> None:
        """The run is what it says it is, and counted right."""
        book, started = self._book, self.started
        digest = identity_digest(started.identity)
        if started.identity and not started.run.endswith(f"-{digest[:12]}"):
            book.find("form", "run_id", f"{started.run} is not the run of this identity", *self._began[:1])
        if len(self._began) != 1:
            book.find("form", "run_started", f"there are {len(self._began)} run_started events", *self._began)
        for name, events in (("run_ended", self._ended), ("replay_ended", self._replayed)):
            if len(events) > 1:
                book.find(
                    "form", name, f"there are {len(events)} {name} events", *(kept for _, kept in events)
                )
        for replayed, kept in self._replayed:
            if replayed.observations != self._streams.observations:
                book.lacks(
                    "1",
                    "replay_total",
                    f"{replayed.id} counts {replayed.observations} observations; published were "
                    f"{self._streams.observations}",
                    kept,
                )
        if not ended:
            book.leave_open("the run has not ended")
            return
        if not self._replayed:
            book.leave_open("the run has ended, and its replay has not said so yet")
        told = self._trajectories.told.values()
        verdicts = [judged for each in told for judged in each.verdicts.values()]
        counts = (
            len(told) + self._asked.total,
            len(verdicts),
            sum(judged.outcome == "unjudged" for judged in verdicts),
        )
        for run_ended, kept in self._ended:
            said = (run_ended.trajectories, run_ended.verdicts, run_ended.unjudged)
            if said != counts:
                book.find(
                    "7",
                    "run_total",
                    f"{run_ended.id} counts {said[0]} trajectories, {said[1]} verdicts, {said[2]} "
                    f"unjudged; there are {counts[0]}, {counts[1]} and {counts[2]}",
                    kept,
                )
        for lane in self._form.lanes:
            last, segments = self._released.get(lane), started.segments.get(lane.partition("@")[2], 0)
            if segments and lane not in self._failed and (last is None or last.as_of != segments - 1):
                at = "nothing" if last is None else f"segment {last.as_of}"
                book.find(
                    "form",
                    "release_missing",
                    f"the run has ended, and {lane} released only {at}",
                    f"{lane}/released",
                )
