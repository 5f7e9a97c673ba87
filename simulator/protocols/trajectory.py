"""What every protocol's trajectory is: a fold over the events that it waits for, about one lane and one subject.

It does no I/O and knows no clock: each event in gives the events that follow from it, whole and with deterministic
ids, so that a trajectory fed again with what the log holds gives the same state and the same events. It is a small
struct: thousands are open at once.
"""

from __future__ import annotations

from typing import Final, Generic, Literal, TypedDict, TypeVar

import msgspec

from simulator.errors import InvariantError
from simulator.events import (
    AnchorEvent,
    Arm,
    CommittedEvent,
    DeltaEvent,
    Event,
    LaneEvent,
    Metric,
    ProbeEvent,
    ResponseEvent,
    RetrievedRecord,
    Subject,
    TaskEvent,
    TaskPhase,
    TrajectoryClosedEvent,
    VerdictEvent,
)

S = TypeVar("S", AnchorEvent, ProbeEvent)

Input = Literal["delta", "R1", "ieu", "R_F", "committed", "R2", "R2-uncommitted"]
"""What a trajectory waits for; `ieu` is the verdict on R1."""

INPUTS: Final[tuple[Input, ...]] = ("delta", "R1", "ieu", "R_F", "committed", "R2", "R2-uncommitted")
"""In causal order: sort one trajectory's events by `INPUTS.index(input_of(event))` to replay it from a log,
whose topics have no order between them."""

STEPS: Final = {
    "T1": 0,
    "R1": 1,
    "F": 2,
    "R_F": 3,
    "commit": 4,
    "committed": 5,
    "T2": 6,
    "R2": 7,
    "T2-uncommitted": 8,
    "R2-uncommitted": 9,
}
"""The `step` of every event inside a trajectory."""


def trajectory_id(lane: str, subject: Subject) -> str:
    """Lane and anchor or probe, the stream named once: `rag_raw@A1_JAKE/s9/e0`."""
    return f"{lane}/{subject.anchor.removeprefix(subject.stream + '/')}"


def input_of(event: Event) -> Input | None:
    """Which input of a trajectory an event is; None for events that don't drive one. Raises InvariantError
    for a response that no trajectory has (R1 or R_F of the uncommitted arm)."""
    match event:
        case DeltaEvent():
            return "delta"
        case ResponseEvent(phase="R2", arm="uncommitted"):
            return "R2-uncommitted"
        case ResponseEvent(arm="committed"):
            return event.phase
        case ResponseEvent():
            raise InvariantError(f"{event.phase} has no arm {event.arm}", (event.id,))
        case VerdictEvent(metric="ieu"):
            return "ieu"
        case CommittedEvent():
            return "committed"
        case _:
            return None


def name_of(event: DeltaEvent | ResponseEvent | CommittedEvent) -> str:
    """The id that what an agent writes must have, by what it says. Raises InvariantError as `input_of`."""
    if isinstance(event, DeltaEvent):
        return f"{event.lane}/delta/{event.segment}"
    return f"{event.trajectory}/{input_of(event)}"


def newer_record(response: ResponseEvent) -> RetrievedRecord | None:
    """The first record that a response rests on that is newer than its task: there may be none (invariant 3)."""
    return next((r for r in response.retrieved if r.event_time_us > response.event_time_us), None)


class OfLane(TypedDict):
    """The fields that all events of a lane have."""

    id: str
    run: str
    stream: str
    event_time_us: int
    as_of: int | None
    causes: tuple[str, ...]
    lane: str


class Common(OfLane):
    """The fields that all events of a trajectory have, its end and its verdicts as well."""

    trajectory: str


def about(cause: LaneEvent, name: str) -> OfLane:
    """These fields, of the event `name` that is said of another one of its lane: at the same time, and by one who had
    seen as much."""
    return {
        "id": name,
        "run": cause.run,
        "stream": cause.stream,
        "event_time_us": cause.event_time_us,
        "as_of": cause.as_of,
        "causes": (cause.id,),
        "lane": cause.lane,
    }


def common_of(cause: LaneEvent, trajectory: str, name: str) -> Common:
    """As `about`, of the event `name` of a trajectory that follows from another event of its lane."""
    return {**about(cause, f"{trajectory}/{name}"), "trajectory": trajectory}


class Trajectory(msgspec.Struct, Generic[S], kw_only=True):
    """One lane and one anchor or probe. Opened by the lane's delta of its segment. Two are equal when they have taken
    the same events. All but what it is made with is its state. A protocol says what follows: `_follow`, `_unjudged`."""

    lane: str
    anchor: S
    waiting: tuple[Input, ...] = ("delta",)
    """What may come next, in any order; empty once the trajectory has closed."""
    taken: dict[Input, str] = msgspec.field(default_factory=dict)
    """Input → id of the event that was taken."""
    event_time_us: int = 0
    """All that happens in a trajectory happens at this event time: the end of the segment, or when it was due."""
    failures: dict[Input, str] = msgspec.field(default_factory=dict)
    """Input that came with an error → what failed and why."""

    @property
    def id(self) -> str:
        """`<lane>/s<segment>/e<n>`; of a probe, `p<n>`."""
        return trajectory_id(self.lane, self.anchor)

    @property
    def closed(self) -> bool:
        """Nothing more will be emitted."""
        return not self.waiting

    @property
    def waits_for_agent(self) -> bool:
        """Whether its memory system is to act next."""
        return any(name != "ieu" for name in self.waiting)

    def feed(self, event: Event) -> list[Event]:
        """Take one event; return what follows from it, in order. Duplicates of what was taken, and events
        that don't drive a trajectory, change nothing. Raises InvariantError, and changes nothing, for an
        event that can't be right now: before what it answers, of another lane, segment or trajectory, or a
        second answer."""
        name = input_of(event)
        if name is None:
            return []
        assert isinstance(event, LaneEvent)
        self._check_place(event, name)
        if self.taken.get(name) == event.id:
            return []
        if name in self.taken:
            raise InvariantError(f"{self.id} has two of {name}", (self.taken[name], event.id))
        if event.id in self.taken.values():
            raise InvariantError(f"{self.id}: {name} has the id of an earlier event", (event.id,))
        # A judge may learn of a failure before or after this trajectory does: that verdict is never out of
        # place.
        nothing_to_judge = isinstance(event, VerdictEvent) and event.outcome == "unjudged"
        if name not in self.waiting and not nothing_to_judge:
            awaited = ", ".join(self.waiting) or "nothing: it has closed"
            raise InvariantError(
                f"{self.id} can't take {name} now; it waits for {awaited}", (*self.taken.values(), event.id)
            )
        if isinstance(event, DeltaEvent):
            return self._take_delta(event)
        return self._follow(name, event)

    def give_up(self, reason: str) -> list[Event]:
        """Close the trajectory before its last response: what it waits for will not come."""
        if self.closed:
            return []
        self.event_time_us = self.event_time_us or self.anchor.task_time_us
        return [self._closed(reason, *self.taken.values())]

    def _follow(self, name: Input, event: LaneEvent) -> list[Event]:
        """What follows from an input other than the delta."""
        raise NotImplementedError

    def _first_task(self, cause: str) -> list[Event]:
        """T1. Waits for what answers it."""
        raise NotImplementedError

    def _unjudged(self, answered: frozenset[Input]) -> tuple[Metric, ...]:
        """The metrics that can't be judged where only these inputs came, and none of them failed."""
        raise NotImplementedError

    def _check_place(self, event: LaneEvent, name: Input) -> None:
        """The event is this trajectory's, and its author had seen what the trajectory stands on."""
        anchor = self.anchor
        expected: dict[str, object] = {"lane": self.lane, "stream": anchor.stream, "run": anchor.run}
        if isinstance(event, DeltaEvent):
            expected["segment"] = anchor.segment
        else:
            expected["trajectory"] = self.id
        if isinstance(event, ResponseEvent | CommittedEvent):
            expected |= {
                "as_of": anchor.segment,
                "step": STEPS[name],
                "event_time_us": self.event_time_us,
            }
        for field, value in expected.items():
            if getattr(event, field) != value:
                raise InvariantError(
                    f"{name} of {self.id} has {field} {getattr(event, field)!r}, not {value!r}", (event.id,)
                )

    def _take(self, name: Input, event: Event, *then: Input) -> None:
        self.taken[name] = event.id
        self.waiting = then

    def _take_delta(self, event: DeltaEvent) -> list[Event]:
        self.event_time_us = max(event.event_time_us, self.anchor.task_time_us)
        if event.error is not None:
            return self._fail("delta", event.id, f"ingest failed: {event.error}")
        self.taken["delta"] = event.id
        return self._first_task(event.id)

    def _task(self, phase: TaskPhase, arm: Arm, text: str, cause: str) -> TaskEvent:
        name = phase if arm == "committed" else f"{phase}-{arm}"
        return TaskEvent(
            **self._common(name, cause),
            step=STEPS[name],
            phase=phase,
            segment=self.anchor.segment,
            text=text,
            arm=arm,
        )

    def _common(self, name: str, *causes: str) -> Common:
        """The fields that all events have, of what it gives by this name."""
        return {
            "id": f"{self.id}/{name}",
            "run": self.anchor.run,
            "stream": self.anchor.stream,
            "event_time_us": self.event_time_us,
            "as_of": self.anchor.segment,
            "causes": causes,
            "lane": self.lane,
            "trajectory": self.id,
        }

    def _fail(self, name: Input, event_id: str, reason: str) -> list[Event]:
        self.taken[name] = event_id
        self.failures[name] = reason
        return [self._closed(reason, event_id)]

    def _closed(self, reason: str, *causes: str) -> TrajectoryClosedEvent:
        self.waiting = ()
        return TrajectoryClosedEvent(
            **self._common("closed", *causes),
            anchor=self.anchor.anchor,
            reason=reason,
            unjudged=self._unjudged(frozenset(self.taken.keys() - self.failures.keys())),
        )
