"""What all events have, all of a lane, and all of a trajectory."""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """What every event has. They hold no cycles, so the garbage collector need not look at them."""

    id: str
    run: str
    event_time_us: int
    stream: str = ""
    as_of: int | None = None
    causes: tuple[str, ...] = ()
    v: int = SCHEMA_VERSION


class LaneEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An event of one lane: one memory system configuration on one stream."""

    lane: str


class TrajectoryEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True):
    """An event of one trajectory. `step` orders the events inside it: topics have no order between them."""

    trajectory: str
    step: int
