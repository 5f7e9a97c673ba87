"""Invariant 1: a stream's observations are in event-time order and gapless in sequence, and its segments partition
them."""

from __future__ import annotations

from consumers.audit.certificate import Book, Kept, Place
from simulator.events import ObservationEvent, RunStartedEvent, SegmentClosedEvent, StreamEndedEvent
from simulator.log.protocol import StoredRecord
from simulator.topics import wall_of


class _Stream:
    """How far one stream has come."""

    __slots__ = (
        "ended",
        "first_seq",
        "first_us",
        "last",
        "observations",
        "segment",
        "segments",
        "seq",
        "time_us",
    )

    def __init__(self) -> None:
        self.seq: int | None = None
        """The next observation's; None before the first."""
        self.segment: int | None = None
        self.first_seq = 0
        self.first_us: int | None = None
        """Event time of the first observation of the segment that is open."""
        self.time_us = 0
        self.last = ""
        self.observations = 0
        self.segments = 0
        self.ended: Kept | None = None


class Streams:
    """Keeps a few numbers for each stream, and the end of each segment."""

    def __init__(self, started: RunStartedEvent, book: Book) -> None:
        self._book = book
        self._started = started
        self._streams = {stream: _Stream() for stream in started.streams}
        self.closings: dict[tuple[str, int], Kept] = {}
        """(stream, segment) → its `segment_closed`."""
        self._ends_us: dict[str, int] = {}

    @property
    def observations(self) -> int:
        """How many there are."""
        return sum(stream.observations for stream in self._streams.values())

    def open_segment(self, stream: str) -> int:
        """The segment that comes next to be closed."""
        return self._streams[stream].segment or 0

    def observation(self, event: ObservationEvent, record: StoredRecord) -> None:
        """Take an observation, in offset order."""
        state = self._streams[event.stream]
        self._book.checked["1"] += 1
        due = state.seq
        if due is None:  # a part of a lifelog begins at a later number; a run with systems at the first
            due = 0 if self._started.systems else event.seq
            state.first_seq = due
        if event.seq != due or event.event_time_us < state.time_us or state.ended is not None:
            self._misplaced(state, event, record, due)
        state.seq = max(due, event.seq + 1)
        state.time_us = max(state.time_us, event.event_time_us)
        state.last = event.id
        state.observations += 1
        if state.first_us is None:
            state.first_us = event.event_time_us

    def _misplaced(
        self, state: _Stream, event: ObservationEvent | SegmentClosedEvent, record: StoredRecord, due: int
    ) -> None:
        find, place = self._book.find, (event.id, Place.of(record))
        if isinstance(event, ObservationEvent) and event.seq > due:
            find(
                "1",
                "seq_gap",
                f"{event.stream}: observation {event.seq} comes where {due} was due; "
                f"{event.seq - due} between them are missing or come later",
                place,
            )
        elif isinstance(event, ObservationEvent) and event.seq < due:
            find(
                "1",
                "seq_order",
                f"{event.stream}: observation {event.seq} comes again or too late, after {due - 1}",
                place,
            )
        if event.event_time_us < state.time_us:
            find("1", "time_order", f"{event.id} goes back in event time", place)
        if state.ended is not None:
            find("1", "after_end", f"{event.id} comes after its stream had ended", place, state.ended)

    def closed(self, event: SegmentClosedEvent, record: StoredRecord) -> None:
        """Take the end of a segment."""
        state, find = self._streams[event.stream], self._book.find
        self._book.checked["1"] += 1
        kept = Kept(
            event.id,
            Place.of(record),
            event.causes,
            event.as_of,
            event.event_time_us,
            wall_us=wall_of(record.headers),
        )
        if event.event_time_us < state.time_us or state.ended is not None:
            self._misplaced(state, event, record, 0)
        due = state.segment
        if due is None:
            due = 0 if self._started.systems else event.segment
        next_seq = state.seq or 0
        if event.segment != due:
            find(
                "1",
                "segment_order",
                f"{event.stream}: segment {event.segment} closes where {due} was due",
                kept,
            )
        if (event.first_seq, event.last_seq) != (
            state.first_seq,
            next_seq - 1,
        ) or next_seq <= state.first_seq:
            find(
                "1",
                "segment_bounds",
                f"{event.id} says that it holds observations {event.first_seq}.."
                f"{event.last_seq}; published since the last segment were {state.first_seq}..{next_seq - 1}",
                kept,
            )
        starts_us = max(self._ends_us.get(event.stream, event.start_time_us), event.start_time_us)
        if starts_us != event.start_time_us or (state.first_us is not None and state.first_us < starts_us):
            find(
                "1",
                "segment_time",
                f"{event.id} begins after its first observation, or before the last segment's end",
                kept,
            )
        if event.as_of != event.segment:
            find(
                "1", "as_of", f"{event.id} says that it is as of {event.as_of}, not of its own segment", kept
            )
        if event.causes != (f"{event.stream}/obs/{event.last_seq}",):
            find("form", "causes", f"{event.id} should name its last observation as its cause", kept)
        self.closings.setdefault((event.stream, event.segment), kept)
        self._ends_us[event.stream] = max(self._ends_us.get(event.stream, 0), event.event_time_us)
        state.segment = max(due, event.segment + 1)
        state.segments += 1
        state.first_seq, state.first_us = next_seq, None
        state.time_us = max(state.time_us, event.event_time_us)
        state.last = event.id

    def stream_ended(self, event: StreamEndedEvent, record: StoredRecord) -> None:
        """Take the end of a stream."""
        state = self._streams[event.stream]
        self._book.checked["1"] += 1
        kept = Kept(event.id, Place.of(record))
        if state.ended is not None:
            self._book.find("1", "after_end", f"{event.stream} ends twice", kept, state.ended)
            return
        state.ended = kept
        published = (state.observations, state.segments)
        if (event.observations, event.segments) != published or state.first_us is not None:
            self._book.find(
                "1",
                "stream_end",
                f"{event.id} counts {event.observations} observations in {event.segments} segments; "
                f"published were {published[0]} in {published[1]}"
                + (", and the last segment is not closed" if state.first_us is not None else ""),
                kept,
            )

    def close(self, *, ended: bool, replayed: Kept | None) -> None:
        """All segments are there, if the run has ended, and all streams have ended, if the replay has. The last may
        say so after the run's end, for which only its segments are needed."""
        for name, state in self._streams.items():
            due = self._started.segments.get(name, 0)
            self._book.checked["1"] += 1
            if state.segments != due and (ended or state.ended is not None):
                self._book.find(
                    "1",
                    "segments",
                    f"{name} has {state.segments} segments; the run began with {due}",
                    *((state.ended,) if state.ended is not None else (state.last or name,)),
                )
            elif state.ended is None and replayed is not None:
                self._book.lacks(
                    "1", "stream_missing", f"the replay has ended, and stream {name} has not", replayed
                )
            elif state.ended is None:
                self._book.leave_open(f"{name}: {state.segments} of {due} segments are published, and no end")
