"""What every event must be, whatever it says: whole, of this run, in its topic and partition, under its key and
deterministic id, and there once. And what was buried must be what may be buried."""

from __future__ import annotations

import hashlib
from typing import Final

from consumers.audit.certificate import Book, Kept, Place
from simulator.events import (
    AnchorEvent,
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DatasetReportEvent,
    DeadLetterEvent,
    DeltaEvent,
    FeedbackEvent,
    LaneEvent,
    LaneFailedEvent,
    LaneRebuiltEvent,
    LoadCutShortEvent,
    ObservationEvent,
    OutlineEvent,
    ProbeEvent,
    ProcessSampleEvent,
    ReadyEvent,
    ReplayControlEvent,
    ReplayEndedEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    StreamEndedEvent,
    TakenEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
    kind_of,
)
from simulator.log.protocol import StoredRecord
from simulator.topics import Topics, partition_of, wall_of

_REPEATED: Final = (ReadyEvent, DeadLetterEvent, ReplayControlEvent, LaneRebuiltEvent)
"""Every process of a role says that it is ready; a reader that begins anew buries a record again; and an owner that is
being shut out of a lane may count its rebuild as its successor does."""

_OBSERVATION: Final = ("kind", b"observation")
AGAIN: Final = "an attached agent said it again under the same id; the first time counts"
LATE: Final = "an attached agent wrote it too late, when nobody took or buried it any more"


def expected_id(event: AnyEvent) -> str | None:
    """The deterministic id of an event, by what it says; None where a person's hand is in it."""
    match event:
        case ObservationEvent():
            return f"{event.stream}/obs/{event.seq}"
        case SegmentClosedEvent():
            return f"{event.stream}/segment/{event.segment}"
        case StreamEndedEvent():
            return f"{event.stream}/ended"
        case DeltaEvent():
            return f"{event.lane}/delta/{event.segment}"
        case TaskEvent() | ResponseEvent():
            name = event.phase if event.arm == "committed" else f"{event.phase}-{event.arm}"
            return f"{event.trajectory}/{name}"
        case FeedbackEvent():
            return f"{event.trajectory}/F"
        case CommitEvent():
            return f"{event.trajectory}/commit"
        case CommittedEvent():
            return f"{event.trajectory}/committed"
        case AnchorEvent():
            return f"{event.anchor}/anchor"
        case ProbeEvent():
            return f"{event.anchor}/probe"
        case OutlineEvent():
            return f"{event.stream}/outline"
        case VerdictEvent():
            return f"{event.trajectory}/{event.metric}"
        case RunStartedEvent():
            return "run/started"
        case DatasetReportEvent():
            return "dataset/report"
        case ReadyEvent():
            return f"ready/{event.role}"
        case SegmentReleasedEvent():
            return f"{event.lane}/released/{event.segment}"
        case TrajectoryClosedEvent():
            return f"{event.trajectory}/closed"
        case TakenEvent():
            return f"{event.causes[0]}/taken" if event.causes else None
        case LaneFailedEvent():
            return f"{event.lane}/failed"
        case LaneRebuiltEvent():
            return f"{event.lane}/rebuilt/{event.rebuild}" + ("/differs" if event.difference else "")
        case ProcessSampleEvent():
            return f"sample/{event.process}/{event.sample}"
        case ReplayEndedEvent():
            return "replay/ended"
        case RunEndedEvent():
            return "run/ended"
        case LoadCutShortEvent():
            return "load/cut_short"
        case DeadLetterEvent():
            return f"dead/{event.topic}/{event.partition}/{event.offset}"
        case _:
            return None


class Form:
    """Keeps the id of every event but the observations (their sequence says it), and what was buried."""

    def __init__(self, started: RunStartedEvent, book: Book) -> None:
        self._book = book
        self._started = started
        self._attached = frozenset(started.attached)
        self.lanes = {f"{system}@{s}": s for system in started.systems for s in started.streams}
        self._partition = partition_of(started.streams, started.partitions)
        self._places = {stream: (number, stream.encode()) for stream, number in self._partition.items()}
        topics = Topics.of(started.run)
        self._unkeyed = frozenset((topics.anchors, topics.control, topics.dead))
        self._ids: dict[str, Place] = {}
        self._kinds: dict[type[AnyEvent], bytes] = {}
        self._buried: dict[Place, tuple[bytes, str]] = {}
        self._found: set[Place] = set()
        self._unburied: dict[Place, str] = {}
        self._last: dict[tuple[str, int], int] = {}
        """Where there are attached agents: partition → the last offset that counts."""

    @property
    def buried(self) -> int:
        """How many records were buried."""
        return len(self._buried)

    def is_attached(self, lane: str) -> bool:
        """Whether an agent that is not ours writes for this lane."""
        return lane.partition("@")[0] in self._attached

    def is_theirs(self, event: AnyEvent) -> bool:
        """Whether an agent that is not ours wrote this."""
        return isinstance(event, DeltaEvent | ResponseEvent | CommittedEvent) and self.is_attached(event.lane)

    def bury(self, letter: DeadLetterEvent, place: Place) -> None:
        """Take a dead letter: all are taken before what they bury."""
        buried = Place(letter.topic, letter.partition, letter.offset)
        value = hashlib.sha256(letter.value).digest()
        self._book.checked["form"] += 1
        known = self._buried.setdefault(buried, (value, letter.id))
        if known[0] != value:
            self._book.find(
                "form",
                "dead_letter",
                f"two dead letters say different things of one record: {letter.id}",
                (letter.id, place),
            )

    def taken(self, event: TakenEvent, kept: Kept) -> None:
        """What was taken is somebody else's agent's, and was not buried. All dead letters were fed before."""
        place = Place(event.topic, event.partition, event.offset)
        if not self.is_attached(event.lane):
            self._book.find("form", "taken", f"{event.id}: the agent of {event.lane} is one of ours", kept)
        elif place in self._buried:
            self._book.find("form", "taken", f"{event.id}: what it says was taken was buried", kept)

    def unreadable(self, letter: DeadLetterEvent) -> None:
        """A record that is no event of this run, as the dead letter that it would get."""
        place = Place(letter.topic, letter.partition, letter.offset)
        self._book.checked["form"] += 1
        if not self._is_buried(place, letter.value):
            self._unburied[place] = letter.reason

    def passes_over(self, event: AnyEvent, record: StoredRecord) -> bool:
        """Whether an event was buried, or is what an attached agent had said before: it is no part of the run."""
        if self._buried and self._is_buried(place := Place.of(record), record.value):
            if not self._may_be_buried(event):
                self._book.find(
                    "form",
                    "buried",
                    f"{event.id} is in order and of our own, and yet it was buried",
                    (event.id, place),
                )
            return True
        if self._attached and event.id in self._ids and self.is_theirs(event):
            self._book.ignored[AGAIN] += 1
            return True
        return False

    def counts(self, event: AnyEvent, record: StoredRecord) -> bool:
        """Check an event's form; gives whether it is of a lane or stream of the run."""
        book = self._book
        book.checked["form"] += 1
        if type(event) is ObservationEvent and self._is_sound(event, record):
            return True
        if event.id != expected_id(event) and type(event) is not ReplayControlEvent:
            book.find(
                "form",
                "id",
                f"this {kind_of(event)} should have the id {expected_id(event)}, by what it says",
                (event.id, Place.of(record)),
            )
        if not isinstance(event, (ObservationEvent, *_REPEATED)):
            if event.id in self._ids:
                book.find(
                    "form",
                    "duplicate",
                    f"two events are called {event.id}",
                    (event.id, Place.of(record)),
                    (event.id, self._ids[event.id]),
                )
            else:
                self._ids[event.id] = Place.of(record)
        return self._in_place(event, record)

    def _is_sound(self, event: ObservationEvent, record: StoredRecord) -> bool:
        """All of what follows in a moment: a week has 125,000 observations. What is not sound is looked at closely."""
        known = self._places.get(event.stream)
        return (
            known is not None
            and record.partition == known[0]
            and record.key == known[1]
            and record.timestamp_ms == event.event_time_us // 1000
            and event.id == f"{event.stream}/obs/{event.seq}"
            and _OBSERVATION in record.headers
        )

    def _in_place(self, event: AnyEvent, record: StoredRecord) -> bool:
        book, stream = self._book, event.stream
        of_lane = isinstance(event, LaneEvent)
        key = event.lane if isinstance(event, LaneEvent) else stream
        wrong: list[tuple[str, str]] = []
        if (of_lane or record.topic not in self._unkeyed or stream) and stream not in self._partition:
            wrong.append(("stream", f"the run has no stream {stream!r}"))
        elif isinstance(event, LaneEvent) and self.lanes.get(event.lane) != stream:
            wrong.append(("lane", f"the run has no lane {event.lane} on stream {stream}"))
        else:
            partition = 0 if record.topic in self._unkeyed else self._partition[stream]
            if record.partition != partition:
                wrong.append(("partition", f"it belongs in partition {partition}"))
        counts = not wrong
        if self._attached and counts:
            self._last[record.topic, record.partition] = record.offset
        if record.key != key.encode():
            wrong.append(("key", f"its record's key is {record.key!r}, not {key!r}"))
        if record.timestamp_ms != event.event_time_us // 1000:
            wrong.append(("stamp", "its record's stamp is not its event time"))
        kind = self._kinds.setdefault(type(event), kind_of(event).encode())
        for name, value in record.headers:
            if name == "kind":
                if value != kind:
                    wrong.append(("header", f"its record's headers call it {value!r}"))
                break
        else:
            wrong.append(("header", "its record's headers don't say what kind it is"))
        for rule, what in wrong:
            book.find("form", rule, f"{event.id}: {what}", (event.id, Place.of(record)))
        return counts

    def _is_buried(self, place: Place, value: bytes) -> bool:
        known = self._buried.get(place)
        if known is None:
            return False
        self._found.add(place)
        if known[0] != hashlib.sha256(value).digest():
            self._book.find(
                "form",
                "dead_letter",
                f"{known[1]} does not hold the record that it says was buried",
                known[1],
            )
        return True

    def _may_be_buried(self, event: AnyEvent) -> bool:
        """Only what somebody else's agent wrote: of ours, whatever can be read is part of the run."""
        return (
            isinstance(event, DeltaEvent | ResponseEvent | CommittedEvent)
            and bool(self._attached)
            and (self.is_attached(event.lane) or event.lane.partition("@")[0] not in self._started.systems)
        )

    def close(self, *, ended: bool) -> None:
        """What was buried was there, and what had to be buried was. Whoever does that may not have come to it yet;
        and after the end of a run nobody does, whatever an attached agent goes on to write."""
        for place, (_, name) in self._buried.items():
            if place not in self._found:
                self._book.lacks(
                    "form", "dead_letter", f"{name} buries a record that is not there", (name, place)
                )
        for place, reason in self._unburied.items():
            name = f"{place.topic}/{place.partition}/{place.offset}"
            what = f"record {name} is no event of this run ({reason}), and nobody buried it"
            if not ended:
                self._book.leave_open(what)
            elif self._attached and place.offset > self._last.get((place.topic, place.partition), -1):
                self._book.ignored[LATE] += 1
            else:
                self._book.find("form", "unburied", what, (name, place))

    def knows(self, name: str) -> bool:
        """Whether an event of that id was taken (observations aside)."""
        return name in self._ids


def is_late(record: StoredRecord, ended_us: int | None) -> bool:
    """Whether a record was written after the run had ended, by its own word."""
    wall_us = wall_of(record.headers)
    return ended_us is not None and wall_us is not None and wall_us > ended_us
