"""What corruptions choose from a log."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from simulator.events import (
    AnchorEvent,
    CommittedEvent,
    DeltaEvent,
    FeedbackEvent,
    MemoryRecord,
    ObservationEvent,
    ResponseEvent,
    RetrievedRecord,
    SegmentClosedEvent,
    TaskEvent,
)
from simulator.marks import mark_of
from tests.audit.forgery import Forgery

Corruption = Callable[[Forgery], str]
"""Corrupts a log and gives the id of the event that is to blame."""


def same_stream(log: Forgery, count: int) -> list[ObservationEvent]:
    first = log.one(ObservationEvent)
    return log.all(ObservationEvent, lambda o: o.stream == first.stream)[:count]


def late_delta(log: Forgery) -> DeltaEvent:
    return log.one(DeltaEvent, lambda d: d.segment == 1)


def answer(log: Forgery, phase: str = "R1", arm: str = "committed") -> ResponseEvent:
    return log.one(ResponseEvent, lambda r: r.phase == phase and r.arm == arm)


def rests_on(log: Forgery, response: ResponseEvent, record: MemoryRecord, **fields: object) -> str:
    found = RetrievedRecord(id=record.id, text=record.text, event_time_us=record.event_time_us)
    return log.change(response, retrieved=(replace(found, **fields),)).id  # type: ignore[arg-type]  # names of fields


def rests_on_later(log: Forgery) -> str:
    """A response on a record of a later segment, whose time would have been right."""
    response = log.one(
        ResponseEvent,
        lambda r: bool(log.all(DeltaEvent, lambda d: d.lane == r.lane and d.segment > (r.as_of or 0))),
    )
    later = log.one(DeltaEvent, lambda d: d.lane == response.lane and d.segment > (response.as_of or 0))
    return rests_on(log, response, later.records[0], event_time_us=response.event_time_us)


def revised(log: Forgery) -> FeedbackEvent:
    return log.one(FeedbackEvent, lambda f: f.type == "revise")


def affirmed(log: Forgery) -> FeedbackEvent:
    return log.one(FeedbackEvent, lambda f: f.type == "affirm")


def commit_elsewhere(log: Forgery) -> tuple[CommittedEvent, str]:
    """A commit, and another trajectory of its lane."""
    for committed in log.all(CommittedEvent):
        for task in log.all(TaskEvent):
            if task.lane == committed.lane and task.trajectory != committed.trajectory:
                return committed, task.trajectory
    raise LookupError


def anchor_of(log: Forgery, trajectory: str) -> AnchorEvent:
    return log.one(
        AnchorEvent,
        lambda a: (
            trajectory.endswith(a.anchor.removeprefix(f"{a.stream}/")) and f"@{a.stream}/" in trajectory
        ),
    )


def planted(log: Forgery) -> tuple[str, str, int]:
    """A mark that was planted after some segment, its stream, and that segment."""
    for observation in log.all(ObservationEvent, lambda o: "canary" in o.text):
        closed = log.one(
            SegmentClosedEvent, lambda c, o=observation: c.stream == o.stream and c.last_seq >= o.seq
        )
        if closed.segment > 0:
            return mark_of(3, observation.stream, observation.seq), observation.stream, closed.segment
    raise LookupError
