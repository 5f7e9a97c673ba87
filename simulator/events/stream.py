"""Topic observations: what the replayer says of a stream."""

from __future__ import annotations

from simulator.events.base import Event
from simulator.events.values import Source


class ObservationEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="observation"):
    """One caption or utterance. `seq` is gapless from 0 within the stream."""

    seq: int
    source: Source
    text: str
    day: str = ""
    stream_index: int | None = None
    """Position within the day, as the StreamMemBench release counts."""
    end_time_us: int | None = None


class SegmentClosedEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="segment_closed"):
    """A segment is complete: observations `first_seq`..`last_seq` (both inside). Published on observations.

    `segment` counts from 0 over the whole stream; `segment_id` is the dataset's own number within `day`.
    `event_time_us` is the end of the segment.
    """

    segment: int
    day: str
    segment_id: int
    start_time_us: int
    first_seq: int
    last_seq: int


class StreamEndedEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="stream_ended"):
    """Nothing of this stream follows. Published on observations, after the last segment closed."""

    observations: int
    segments: int
