"""Lifelogs as the events of a replay, in event-time order. Pure: no clock, no log.

Numbers stay those of the lifelog: with `start_us`, a stream begins at a later `seq` and `segment`, and what
is replayed first is the base from which both are gapless. Only whole segments inside [start_us, end_us) are
replayed.

With `loop=n` the same part is replayed n times. Each time all streams are shifted together by as many whole
days as the part touches, so that the time of day stays; `seq` and `segment` go on counting, and `day` with
the shift: after seven days `DAY1` is `DAY8` (a day with another kind of name gets the days added:
`Monday+7`).

A week has 125,000 events, so they come in stretches: lists of events of one stream that follow each other, of
which only the last may be anything but an observation. What is done to a stretch is not done to each event.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from producers.lifelog import DAY_US, Lifelog, SegmentSpan
from simulator.events import Event, ObservationEvent, SegmentClosedEvent, StreamEndedEvent

_DAY = re.compile(r"DAY(\d+)")
_time_of = attrgetter("event_time_us")

Stretch = list[Event]
"""Events of one stream that follow each other, in order; only the last may be no observation."""


class Part(NamedTuple):
    """What of one stream is replayed once: a range of its segments and of its observations' `seq`."""

    segments: range
    seqs: range

    @classmethod
    def of(cls, lifelog: Lifelog, start_us: int | None = None, end_us: int | None = None) -> Part:
        """The whole segments inside [start_us, end_us); None means no bound."""
        chosen = [
            i
            for i, span in enumerate(lifelog.segments)
            if (start_us is None or span.start_time_us >= start_us)
            and (end_us is None or span.end_time_us <= end_us)
        ]
        if not chosen:
            return cls(range(0), range(0))
        spans = lifelog.segments
        return cls(
            range(chosen[0], chosen[-1] + 1),
            range(spans[chosen[0]].first_seq, spans[chosen[-1]].last_seq + 1),
        )


class _Shift(NamedTuple):
    """What one repetition adds to the numbers of the lifelog."""

    days: int
    time_us: int
    seq: int
    segment: int


def timeline(
    lifelogs: Sequence[Lifelog],
    run: str,
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    loop: int = 1,
) -> Iterator[Event]:
    """Observations, `segment_closed` and one `stream_ended` per stream, merged by event time.

    Within a stream a segment is closed after all its observations and before any later one. Events of two
    streams at the same time come in the order of `lifelogs`. A stream without a segment in range ends with
    the last one.
    """
    return chain.from_iterable(stretches(lifelogs, run, start_us=start_us, end_us=end_us, loop=loop))


def stretches(
    lifelogs: Sequence[Lifelog],
    run: str,
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    loop: int = 1,
) -> Iterator[Stretch]:
    """The `timeline`, cut into stretches: at the end of each segment, and where another stream comes in
    between."""
    parts = [Part.of(lifelog, start_us, end_us) for lifelog in lifelogs]
    spans = [
        lifelog.segments[i] for lifelog, part in zip(lifelogs, parts, strict=True) for i in part.segments
    ]
    days, last_us = _days(spans), max((span.end_time_us for span in spans), default=start_us or 0)
    streams = [
        _stream(lifelog, part, run, days, loop, last_us)
        for lifelog, part in zip(lifelogs, parts, strict=True)
    ]
    return _merged(streams)


class Upcoming:
    """A timeline of which events are taken from the front. `head` is the next one; None at the end."""

    def __init__(self, source: Iterator[Stretch]) -> None:
        self._source = source
        self._stretch: Stretch = []
        self._at = 0
        self.head: Event | None = None
        self._move(0)

    def take(self, horizon_us: float, most: int) -> Stretch:
        """The next events of one stream whose time is no later than `horizon_us`, `most` at most: what is
        left of the stretch, or a beginning of that."""
        stretch, start = self._stretch, self._at
        stop = min(len(stretch), start + most)
        if stop > start and stretch[stop - 1].event_time_us > horizon_us:
            stop = bisect_right(stretch, horizon_us, start, stop, key=_time_of)
        self._move(stop)
        return stretch if stop - start == len(stretch) else stretch[start:stop]

    def put_back(self, stretches: Sequence[Stretch]) -> None:
        """These stretches come next, in their order, before what is left."""
        rest = self._stretch[self._at :]
        self._source = chain(stretches, [rest] if rest else [], self._source)
        self._stretch, self._at = [], 0
        self._move(0)

    def _move(self, to: int) -> None:
        if to == len(self._stretch):
            self._stretch, to = next(self._source, []), 0
        self._at = to
        self.head = self._stretch[to] if self._stretch else None


def _merged(streams: Sequence[Iterator[Stretch]]) -> Iterator[Stretch]:
    """The streams' stretches by event time, cut where another stream comes in between."""
    # (time of the next event, number of the stream, place of that event, its stretch, those after it)
    heads = [
        (stretch[0].event_time_us, i, 0, stretch, s) for i, s in enumerate(streams) for stretch in [next(s)]
    ]
    heapify(heads)
    while len(heads) > 1:
        _, number, start, stretch, later = heads[0]
        until_us, other, *_ = min(heads[1:3])
        cut = bisect_right if number < other else bisect_left
        stop = cut(stretch, until_us, start, key=_time_of)
        yield stretch[start:stop]
        if stop == len(stretch):
            stretch, stop = next(later, []), 0
        if stretch:
            heapreplace(heads, (stretch[stop].event_time_us, number, stop, stretch, later))
        else:
            heappop(heads)
    for _, _, start, stretch, later in heads:
        yield stretch[start:] if start else stretch
        yield from later


def _days(spans: Sequence[SegmentSpan]) -> int:
    """How many calendar days (UTC, as all readers date them) the segments touch, at least 1."""
    if not spans:
        return 1
    first_us = min(span.start_time_us for span in spans)
    last_us = max(span.end_time_us for span in spans)
    return max(1, -(-last_us // DAY_US) - first_us // DAY_US)


def _stream(lifelog: Lifelog, part: Part, run: str, days: int, loop: int, last_us: int) -> Iterator[Stretch]:
    """One stretch for each segment, and one with the end."""
    stream = lifelog.stream
    closed: SegmentClosedEvent | None = None
    for repetition in range(loop):
        shift = _Shift(
            repetition * days,
            repetition * days * DAY_US,
            repetition * len(part.seqs),
            repetition * len(part.segments),
        )
        for i in part.segments:
            span = lifelog.segments[i]
            segment, last_seq = i + shift.segment, span.last_seq + shift.seq
            closed = SegmentClosedEvent(
                id=f"{stream}/segment/{segment}",
                run=run,
                event_time_us=span.end_time_us + shift.time_us,
                stream=stream,
                as_of=segment,
                causes=(f"{stream}/obs/{last_seq}",),
                segment=segment,
                day=_shifted_day(span.day, shift.days),
                segment_id=span.segment_id,
                start_time_us=span.start_time_us + shift.time_us,
                first_seq=span.first_seq + shift.seq,
                last_seq=last_seq,
            )
            yield [*_observations(lifelog, span, run, shift), closed]
    yield [
        StreamEndedEvent(
            id=f"{stream}/ended",
            run=run,
            event_time_us=closed.event_time_us if closed else last_us + (loop - 1) * days * DAY_US,
            stream=stream,
            as_of=closed.segment if closed else -1,
            causes=(closed.id,) if closed else (),
            observations=loop * len(part.seqs),
            segments=loop * len(part.segments),
        )
    ]


def _observations(lifelog: Lifelog, span: SegmentSpan, run: str, shift: _Shift) -> list[ObservationEvent]:
    stream = lifelog.stream
    days, time_us, shift_seq, _ = shift
    read = lifelog.observations[span.first_seq : span.last_seq + 1]
    day_of = {day: _shifted_day(day, days) for day in {raw.day for raw in read}}
    prefix = f"{stream}/obs/"
    return [
        ObservationEvent(
            id=f"{prefix}{seq}",
            run=run,
            event_time_us=raw.event_time_us + time_us,
            stream=stream,
            seq=seq,
            source=raw.source,
            text=raw.text,
            day=day_of[raw.day],
            stream_index=raw.stream_index,
            end_time_us=None if raw.end_time_us is None else raw.end_time_us + time_us,
        )
        for seq, raw in enumerate(read, span.first_seq + shift_seq)
    ]


def _shifted_day(day: str, days: int) -> str:
    if not days:
        return day
    numbered = _DAY.fullmatch(day)
    return f"DAY{int(numbered[1]) + days}" if numbered else f"{day}+{days}"
