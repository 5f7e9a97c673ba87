"""What the audit keeps of trajectories."""

from __future__ import annotations

import msgspec

from consumers.audit.certificate import Kept, Place
from simulator.events import (
    CommitEvent,
    FeedbackEvent,
    Metric,
    Outcome,
    ProbeEvent,
    ResponseEvent,
    Subject,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
)


class Judged(Kept, gc=False):
    """What is kept of a verdict."""

    outcome: Outcome = "unjudged"
    draft: tuple[str, bytes] | None = None
    """Type of the feedback, and its text's fingerprint."""


class Part(Kept, gc=False):
    """What is kept of one event of a trajectory."""

    text: bytes = b""
    type: str = ""
    failed: bool = False
    segment: int | None = None
    turns: tuple[tuple[str, bytes], ...] = ()
    keeps_uncommitted: bool = False


class Told(msgspec.Struct):
    """One trajectory: its lane and its anchor or probe, and what the log tells of it."""

    id: str
    lane: str
    anchor: Subject
    parts: dict[str, Part] = msgspec.field(default_factory=dict)
    verdicts: dict[Metric, Judged] = msgspec.field(default_factory=dict)
    closed: TrajectoryClosedEvent | None = None
    closed_at: Place | None = None

    def at_us(self, delta: Kept | None) -> int:
        """The event time of all that happens in it: its segment's end, or when it was due."""
        end_us = self.anchor.event_time_us if delta is None else delta.event_time_us
        return max(end_us, self.anchor.asked_time_us) if isinstance(self.anchor, ProbeEvent) else end_us

    def alive(self, name: str) -> bool:
        """Whether a part is there and did not fail."""
        return name in self.parts and not self.parts[name].failed


def name_of(event: TrajectoryEvent) -> str:
    """`T1`, `R2-uncommitted`, `F`, ... by what the event says it is."""
    match event:
        case TaskEvent() | ResponseEvent():
            return event.phase if event.arm == "committed" else f"{event.phase}-{event.arm}"
        case FeedbackEvent():
            return "F"
        case CommitEvent():
            return "commit"
        case _:
            return "committed"
