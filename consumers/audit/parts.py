"""What the audit keeps of trajectories."""

from __future__ import annotations

from typing import Final

import msgspec

from consumers.audit.certificate import Kept, Place
from simulator.events import (
    AnchorEvent,
    CommitEvent,
    FeedbackEvent,
    Metric,
    Outcome,
    ResponseEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
)
from simulator.protocols.streammembench import BASIS

METRIC_OF: Final[dict[str, Metric]] = {name: metric for metric, name in BASIS.items()}
"""Part → the metric that is judged on it."""


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
    """One trajectory: its lane and anchor, and what the log tells of it."""

    id: str
    lane: str
    anchor: AnchorEvent
    parts: dict[str, Part] = msgspec.field(default_factory=dict)
    verdicts: dict[Metric, Judged] = msgspec.field(default_factory=dict)
    closed: TrajectoryClosedEvent | None = None
    closed_at: Place | None = None

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
