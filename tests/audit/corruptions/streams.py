"""Corruptions of streams and deltas: invariants 1 and 2. Each with the rule under which it is found."""

from __future__ import annotations

from msgspec.structs import replace

from simulator.events import (
    DeltaEvent,
    LaneRebuiltEvent,
    ObservationEvent,
    ReplayEndedEvent,
    SegmentClosedEvent,
    StreamEndedEvent,
)
from simulator.protocols.trajectory import about
from tests.audit.corruptions.common import (
    Corruption,
    late_delta,
    same_stream,
)
from tests.audit.forgery import Forgery


def swap_two_observations(log: Forgery) -> str:
    one, two = same_stream(log, 2)
    log.swap(one, two)
    return one.id


def drop_an_observation(log: Forgery) -> str:
    _, two, three = same_stream(log, 3)
    log.drop(two)
    return three.id


def duplicate_an_observation(log: Forgery) -> str:
    one = log.one(ObservationEvent)
    log.add(one, one)
    return one.id


def shift_an_event_time(log: Forgery) -> str:
    late = same_stream(log, 2)[1]
    return log.change(late, event_time_us=late.event_time_us - 3_600_000_000).id


def shift_bounds(log: Forgery) -> str:
    closed = log.one(SegmentClosedEvent, lambda e: e.segment == 1)
    return log.change(closed, first_seq=closed.first_seq + 1).id


def skip_a_segment_number(log: Forgery) -> str:
    closed = log.one(SegmentClosedEvent, lambda e: e.segment == 1)
    number = closed.segment + 7
    return log.change(closed, segment=number, as_of=number, id=f"{closed.stream}/segment/{number}").id


def drop_a_segment_end(log: Forgery) -> str:
    closed = log.one(SegmentClosedEvent, lambda e: e.segment == 0)
    log.drop(closed)
    return f"sys0@{closed.stream}/delta/0"


def observation_after_the_end(log: Forgery) -> str:
    ended = log.one(StreamEndedEvent)
    last = log.all(ObservationEvent, lambda o: o.stream == ended.stream)[-1]
    more = replace(
        last, seq=last.seq + 1, id=f"{last.stream}/obs/{last.seq + 1}", event_time_us=ended.event_time_us
    )
    log.add(more, ended)
    return more.id


def miscount_a_stream(log: Forgery) -> str:
    ended = log.one(StreamEndedEvent)
    return log.change(ended, observations=ended.observations + 1).id


def drop_the_end_of_a_stream(log: Forgery) -> str:
    log.drop(log.one(StreamEndedEvent))
    return "replay/ended"


def miscount_the_replay(log: Forgery) -> str:
    return log.change(log.one(ReplayEndedEvent), observations=1).id


def drop_a_delta(log: Forgery) -> str:
    delta = late_delta(log)
    log.drop(delta)
    return delta.id


def two_deltas(log: Forgery) -> str:
    delta = late_delta(log)
    log.add(delta, delta)
    return delta.id


def swap_two_deltas(log: Forgery) -> str:
    delta = late_delta(log)
    before = log.one(DeltaEvent, lambda d: d.lane == delta.lane and d.segment == 0)
    log.swap(before, delta)
    return before.id


def forge_as_of_of_a_delta(log: Forgery) -> str:
    return log.change(late_delta(log), as_of=0).id


def forge_the_causes_of_a_delta(log: Forgery) -> str:
    return log.change(late_delta(log), causes=("S0/segment/0",)).id


def delta_at_another_time(log: Forgery) -> str:
    delta = late_delta(log)
    return log.change(delta, event_time_us=delta.event_time_us + 1_000_000).id


def delta_before_its_segment_closed(log: Forgery) -> str:
    delta = late_delta(log)
    log.set_wall(delta, "began_us", log.world.wall_us - 3_600_000_000)
    return delta.id


def delta_newer_than_its_segment(log: Forgery) -> str:
    delta = late_delta(log)
    record = replace(delta.records[0], event_time_us=delta.event_time_us + 1)
    return log.change(delta, records=(record,)).id


def rebuilt(log: Forgery, **fields: object) -> str:
    delta = late_delta(log)
    said = LaneRebuiltEvent(**about(delta, f"{delta.lane}/rebuilt/1"), rebuild=1, segments=2)
    said = replace(said, **fields)  # type: ignore[arg-type]  # names of fields
    log.append(said)
    return said.id


def rebuilt_to_another_memory(log: Forgery) -> str:
    delta = late_delta(log)
    name = f"{delta.lane}/rebuilt/1"
    assert rebuilt(log, id=f"{name}/differs", difference="record 1 of 1 has another id") == f"{name}/differs"
    return delta.id


def rebuilt_from_more_than_there_is(log: Forgery) -> str:
    return rebuilt(log, segments=17)


def rebuilt_and_called_otherwise(log: Forgery) -> str:
    return rebuilt(log, difference="record 1 of 1 has another id")


CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("seq_order", swap_two_observations),
    ("seq_gap", drop_an_observation),
    ("seq_order", duplicate_an_observation),
    ("time_order", shift_an_event_time),
    ("segment_bounds", shift_bounds),
    ("segment_order", skip_a_segment_number),
    ("delta_without_segment", drop_a_segment_end),
    ("after_end", observation_after_the_end),
    ("stream_end", miscount_a_stream),
    ("stream_missing", drop_the_end_of_a_stream),
    ("replay_total", miscount_the_replay),
    ("delta_missing", drop_a_delta),
    ("delta_twice", two_deltas),
    ("delta_order", swap_two_deltas),
    ("delta_as_of", forge_as_of_of_a_delta),
    ("delta_causes", forge_the_causes_of_a_delta),
    ("delta_time", delta_at_another_time),
    ("delta_early", delta_before_its_segment_closed),
    ("delta_newer", delta_newer_than_its_segment),
    ("rebuilt_otherwise", rebuilt_to_another_memory),
    ("rebuilt_of_nothing", rebuilt_from_more_than_there_is),
    ("id", rebuilt_and_called_otherwise),
]
