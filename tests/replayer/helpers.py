"""What the tests of the replayer share: a lifelog, a clock by hand, and what a lane says."""

from __future__ import annotations

from producers.lifelog import DAY1_US, SEGMENT_US, Lifelog, RawObservation, SegmentSpan
from simulator.clock import Clock
from simulator.events import DeltaEvent, SegmentReleasedEvent
from simulator.topics import Recorder, Topics
from tests.test_clock import HandReal

RUN = "r"
TOPICS = Topics.of(RUN)
RECORDER = Recorder(RUN, {"A": 0, "B": 1})


def even_lifelog(stream: str, segments: int, per_segment: int) -> Lifelog:
    """Observations at an even pace, from DAY1 00:00 on."""
    step_us = SEGMENT_US // per_segment
    observations = [
        RawObservation(DAY1_US + i * step_us, "dialog", f"{stream} says {i}", "DAY1")
        for i in range(segments * per_segment)
    ]
    spans = [
        SegmentSpan(
            "DAY1",
            i,
            DAY1_US + i * SEGMENT_US,
            DAY1_US + (i + 1) * SEGMENT_US,
            i * per_segment,
            (i + 1) * per_segment - 1,
        )
        for i in range(segments)
    ]
    return Lifelog(stream, observations, spans)


def hand_clock(rate: float) -> tuple[Clock, HandReal]:
    real = HandReal()
    return Clock(0, rate, real=real), real


def delta(lane: str, segment: int) -> DeltaEvent:
    stream = lane.partition("@")[2]
    return DeltaEvent(
        id=f"{lane}/delta/{segment}", run=RUN, event_time_us=0, stream=stream, lane=lane, segment=segment
    )


def released(lane: str, segment: int) -> SegmentReleasedEvent:
    stream = lane.partition("@")[2]
    return SegmentReleasedEvent(
        id=f"{lane}/released/{segment}", run=RUN, event_time_us=0, stream=stream, lane=lane, segment=segment
    )
