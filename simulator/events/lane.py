"""Topics deltas, tasks, responses, feedback and commits: what a lane is told and asked, what it stored and answered."""

from __future__ import annotations

from simulator.events.base import LaneEvent, TrajectoryEvent
from simulator.events.values import (
    Arm,
    FeedbackType,
    MemoryRecord,
    Replayed,
    ResponsePhase,
    RetrievedRecord,
    TaskPhase,
    Turn,
    Usage,
)


class DeltaEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="delta"):
    """What a lane newly wrote or changed for one segment. `error` set: ingest failed, and says why."""

    segment: int
    records: tuple[MemoryRecord, ...] = ()
    stored_bytes: int = 0
    usage: Usage = Usage()
    error: str | None = None


class TaskEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="task"):
    """T1 or T2: what the person asks, on the memory as it was after `segment`."""

    phase: TaskPhase
    segment: int
    text: str
    arm: Arm = "committed"


class ResponseEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="response"):
    """R1, R_F or R2. `error` set: the memory system gave no answer, and says why; `text` is then empty."""

    phase: ResponsePhase
    text: str = ""
    arm: Arm = "committed"
    retrieved: tuple[RetrievedRecord, ...] = ()
    usage: Usage = Usage()
    error: str | None = None
    replayed: Replayed = Replayed()
    """R1: for the branch that the trajectory runs on."""


class FeedbackEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="feedback"):
    """F: what the person says to R1. `revise` asks for R_F; `affirm` asks for nothing."""

    type: FeedbackType
    text: str


class CommitEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="commit"):
    """Asks the lane to take the interaction into the trajectory's branch of its memory.

    `keep_uncommitted`: also keep the branch as it was before, for T2 with arm `uncommitted`.
    """

    interaction: tuple[Turn, ...]
    keep_uncommitted: bool = False


class CommittedEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="committed"):
    """The lane's answer to a commit: what the branch newly wrote or changed. Published on deltas."""

    records: tuple[MemoryRecord, ...] = ()
    stored_bytes: int = 0
    usage: Usage = Usage()
    error: str | None = None
    replayed: Replayed = Replayed()
    """With `keep_uncommitted`: for the branch without the commit."""
