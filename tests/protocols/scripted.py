"""Scripted agents and judges: what they would publish for a trajectory with a given fate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec
import pytest

from simulator.errors import InvariantError
from simulator.events import (
    AnchorEvent,
    AnchorTask,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    FeedbackDraft,
    FeedbackEvent,
    Outcome,
    ResponseEvent,
    Subject,
    TaskEvent,
    TrajectoryEvent,
    VerdictEvent,
)
from simulator.protocols.streammembench import AnchorTrajectory
from simulator.protocols.subjects import AnyTrajectory
from simulator.protocols.trajectory import Input, common_of

END_US = 1_755_302_700_000_000
LANE = "rag_raw@A1_JAKE"


def anchor_of(stream: str = "A1_JAKE", segment: int = 9, number: int = 0) -> AnchorEvent:
    name = f"{stream}/s{segment}/e{number}"
    return AnchorEvent(
        id=f"anchor/{name}",
        run="run",
        stream=stream,
        event_time_us=END_US,
        anchor=name,
        segment=segment,
        evidence_id="shure_coffee",
        evidence_statement="Shure brews coffee",
        evidence_type="stated",
        subject="Shure",
        initial_task=AnchorTask(user_request=f"first {name}", expected_behavior="gold one"),
        followup_task=AnchorTask(user_request=f"second {name}", expected_behavior="gold two"),
    )


def delta_of(anchor: Subject, lane: str = LANE, error: str | None = None) -> DeltaEvent:
    return DeltaEvent(
        id=f"{lane}/delta/{anchor.segment}",
        run="run",
        stream=anchor.stream,
        lane=lane,
        segment=anchor.segment,
        event_time_us=END_US,
        as_of=anchor.segment,
        error=error,
    )


def response_to(event: TrajectoryEvent, error: str | None = None) -> ResponseEvent:
    """What an agent answers to a task or to feedback."""
    arm: Literal["committed", "uncommitted"] = event.arm if isinstance(event, TaskEvent) else "committed"
    phase: Literal["R1", "R_F", "R2"] = "R_F"
    if isinstance(event, TaskEvent):
        phase = "R1" if event.phase == "T1" else "R2"
    name = phase if arm == "committed" else f"{phase}-{arm}"
    return ResponseEvent(
        **common_of(event, event.trajectory, name),
        step=event.step + 1,
        phase=phase,
        arm=arm,
        text="" if error else f"answer {name}",
        error=error,
    )


def committed_to(event: CommitEvent, error: str | None = None) -> CommittedEvent:
    return CommittedEvent(
        **common_of(event, event.trajectory, "committed"),
        step=event.step + 1,
        error=error,
    )


def ieu_of(trajectory: str, lane: str, anchor: AnchorEvent, outcome: Outcome) -> VerdictEvent:
    feedback = None
    if outcome != "unjudged":
        feedback = FeedbackDraft(type="affirm" if outcome == "pass" else "revise", text=f"F {outcome}")
    return VerdictEvent(
        id=f"{trajectory}/ieu",
        run="run",
        stream=anchor.stream,
        lane=lane,
        event_time_us=END_US,
        as_of=anchor.segment,
        trajectory=trajectory,
        anchor=anchor.anchor,
        metric="ieu",
        outcome=outcome,
        reason="judge down" if outcome == "unjudged" else "",
        feedback=feedback,
    )


class Fate(NamedTuple):
    """How one trajectory goes: which input fails, and the verdict on R1."""

    fails: Input | None
    outcome: Outcome


def answers(fate: Fate, lane: str, anchor: AnchorEvent, event: Event) -> list[Event]:
    """What agent and judge do about one event of the conductor."""

    def error(name: str) -> str | None:
        return "out of memory" if fate.fails == name else None

    match event:
        case TaskEvent(phase="T1"):
            outcome: Outcome = "unjudged" if fate.fails == "R1" else fate.outcome
            return [response_to(event, error("R1")), ieu_of(event.trajectory, lane, anchor, outcome)]
        case TaskEvent():
            return [response_to(event, error("R2" if event.arm == "committed" else "R2-uncommitted"))]
        case FeedbackEvent(type="revise"):
            return [response_to(event, error("R_F"))]
        case CommitEvent():
            return [committed_to(event, error("committed"))]
        case _:
            return []


def run_through(
    fate: Fate, *, ablate: bool = False, lane: str = LANE, anchor: AnchorEvent | None = None
) -> tuple[AnchorTrajectory, list[Event], list[Event]]:
    """One trajectory in its natural order: it, what it took, what it gave."""
    anchor = anchor or anchor_of()
    trajectory = AnchorTrajectory(lane=lane, anchor=anchor, ablate_commit=ablate)
    waiting: list[Event] = [delta_of(anchor, lane, "disk full" if fate.fails == "delta" else None)]
    took: list[Event] = []
    gave: list[Event] = []
    while waiting:
        event = waiting.pop(0)
        took.append(event)
        out = trajectory.feed(event)
        gave += out
        waiting += [answer for given in out for answer in answers(fate, lane, anchor, given)]
    return trajectory, took, gave


def refuses_each(trajectory: AnyTrajectory, wrong: Iterable[Event]) -> None:
    """What it can't take it names, and stays as it was."""
    before = msgspec.json.encode(trajectory)
    for event in wrong:
        with pytest.raises(InvariantError) as refused:
            trajectory.feed(event)
        assert event.id in refused.value.events
        assert msgspec.json.encode(trajectory) == before
