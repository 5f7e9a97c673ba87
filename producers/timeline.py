"""Lifelogs as the events of a replay, in event-time order. Pure: no clock, no log.

Numbers stay those of the lifelog: with `start_us`, a stream begins at a later `seq` and `segment`, and what
is replayed first is the base from which both are gapless. Only whole segments inside [start_us, end_us) are
replayed.

With `loop=n` the same part is replayed n times. Each time all streams are shifted together by as many whole
days as the part touches, so that the time of day stays; `seq` and `segment` go on counting, and `day` with
the shift: after seven days `DAY1` is `DAY8` (a day with another kind of name gets the days added:
`Monday+7`).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from producers.lifelog import DAY_US, Lifelog, SegmentSpan
from simulator.events import Event, ObservationEvent, SegmentClosedEvent, StreamEndedEvent

_DAY = re.compile(r"DAY(\d+)")


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
    parts = [Part.of(lifelog, start_us, end_us) for lifelog in lifelogs]
    spans = [
        lifelog.segments[i] for lifelog, part in zip(lifelogs, parts, strict=True) for i in part.segments
    ]
    days, last_us = _days(spans), max((span.end_time_us for span in spans), default=start_us or 0)
    streams = [
        _stream(lifelog, part, run, days, loop, last_us)
        for lifelog, part in zip(lifelogs, parts, strict=True)
    ]
    return streams[0] if len(streams) == 1 else heapq.merge(*streams, key=attrgetter("event_time_us"))


def _days(spans: Sequence[SegmentSpan]) -> int:
    """How many calendar days (UTC, as all readers date them) the segments touch, at least 1."""
    if not spans:
        return 1
    first_us = min(span.start_time_us for span in spans)
    last_us = max(span.end_time_us for span in spans)
    return max(1, -(-last_us // DAY_US) - first_us // DAY_US)


def _stream(
    lifelog: Lifelog, part: Part, run: str, days: int, loop: int, last_us: int
) -> Iterator[ObservationEvent | SegmentClosedEvent | StreamEndedEvent]:
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
            yield from _observations(lifelog, span, run, shift)
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
            yield closed
    yield StreamEndedEvent(
        id=f"{stream}/ended",
        run=run,
        event_time_us=closed.event_time_us if closed else last_us + (loop - 1) * days * DAY_US,
        stream=stream,
        as_of=closed.segment if closed else -1,
        causes=(closed.id,) if closed else (),
        observations=loop * len(part.seqs),
        segments=loop * len(part.segments),
    )


def _observations(lifelog: Lifelog, span: SegmentSpan, run: str, shift: _Shift) -> Iterator[ObservationEvent]:
    stream, observations = lifelog.stream, lifelog.observations
    _, time_us, shift_seq, _ = shift
    read_day = day = ""
    for read_seq in range(span.first_seq, span.last_seq + 1):
        raw = observations[read_seq]
        if raw.day != read_day:
            read_day, day = raw.day, _shifted_day(raw.day, shift.days)
        seq, end_us = read_seq + shift_seq, raw.end_time_us
        yield ObservationEvent(
            id=f"{stream}/obs/{seq}",
            run=run,
            event_time_us=raw.event_time_us + time_us,
            stream=stream,
            seq=seq,
            source=raw.source,
            text=raw.text,
            day=day,
            stream_index=raw.stream_index,
            end_time_us=None if end_us is None else end_us + time_us,
        )


def _shifted_day(day: str, days: int) -> str:
    if not days:
        return day
    numbered = _DAY.fullmatch(day)
    return f"DAY{int(numbered[1]) + days}" if numbered else f"{day}+{days}"
