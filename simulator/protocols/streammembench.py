"""The protocol of StreamMemBench: T1 → R1 → F → (R_F on `revise`) → commit → committed → T2 → R2.

A `Trajectory` is a fold over the events that it waits for. It does no I/O and knows no clock: each event in
gives the events that follow from it, whole and with deterministic ids, so that a trajectory fed again with
what the log holds gives the same state and the same events. It is a small struct: thousands are open at once.

With the commit ablation T2 is asked twice after the commit, on a branch with the interaction and on one
without.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from simulator.errors import InvariantError
from simulator.events import (
    AnchorEvent,
    Arm,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    LaneEvent,
    Metric,
    Outcome,
    ResponseEvent,
    TaskEvent,
    TaskPhase,
    TrajectoryClosedEvent,
    Turn,
    VerdictEvent,
)

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

METRICS: Final[tuple[Metric, ...]] = ("fidelity", "ieu", "fi", "fur", "fur_uncommitted")
"""In the order in which they are judged and shown."""

BASIS: Final[dict[Metric, Input]] = {
    "fidelity": "delta",
    "ieu": "R1",
    "fi": "R_F",
    "fur": "R2",
    "fur_uncommitted": "R2-uncommitted",
}
"""Metric → the input that it is judged on. Without it, the metric can't be judged."""


def trajectory_id(lane: str, anchor: AnchorEvent) -> str:
    """Lane and anchor, the stream named once: `rag_raw@A1_JAKE/s9/e0`."""
    return f"{lane}/{anchor.anchor.removeprefix(anchor.stream + '/')}"


def expected_metrics(ieu: Outcome | None, *, ablate_commit: bool = False) -> tuple[Metric, ...]:
    """The metrics that a closed trajectory must have a verdict for, `unjudged` where it could not be judged.
    `fi` is asked only where R1 failed: its denominator counts those anchors alone (docs/metrics.md)."""
    asked = {"fidelity", "ieu", "fur"}
    if ieu == "fail":
        asked.add("fi")
    if ablate_commit:
        asked.add("fur_uncommitted")
    return tuple(metric for metric in METRICS if metric in asked)


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


class Trajectory(msgspec.Struct, kw_only=True):
    """One lane and one anchor. Opened by the lane's delta of the anchor's segment. Two are equal when they
    have taken the same events. All but the first three fields are its state."""

    lane: str
    anchor: AnchorEvent
    ablate_commit: bool = False

    waiting: tuple[Input, ...] = ("delta",)
    """What may come next, in any order; empty once the trajectory has closed."""
    taken: dict[Input, str] = msgspec.field(default_factory=dict)
    """Input → id of the event that was taken."""
    event_time_us: int = 0
    """The end of the segment: all that happens in a trajectory happens at this event time."""
    turns: tuple[Turn, ...] = ()
    """The interaction so far; empty again once it was handed to the commit."""
    verdict: VerdictEvent | None = None
    """The verdict on R1, held where it came before R1: they travel on two topics."""
    ieu: Outcome | None = None
    """The verdict on R1, once R1 is there too."""
    failures: dict[Input, str] = msgspec.field(default_factory=dict)
    """Input that came with an error → what failed and why."""

    @property
    def id(self) -> str:
        """`<lane>/s<segment>/e<n>`."""
        return trajectory_id(self.lane, self.anchor)

    @property
    def closed(self) -> bool:
        """Nothing more will be emitted."""
        return not self.waiting

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
        match event:
            case DeltaEvent():
                return self._take_delta(event)
            case VerdictEvent():
                return self._take_verdict(event)
            case ResponseEvent(phase="R1"):
                return self._take_r1(event)
            case ResponseEvent(phase="R_F"):
                return self._take_r_f(event)
            case ResponseEvent():
                return self._take_r2(event, name)
            case CommittedEvent():
                return self._take_committed(event)
            case _:
                raise AssertionError(f"input_of gave {name} for {event!r}")

    def give_up(self, reason: str) -> list[Event]:
        """Close the trajectory before its last response: what it waits for will not come."""
        if self.closed:
            return []
        self.event_time_us = self.event_time_us or self.anchor.event_time_us
        return [self._closed(reason, *self.taken.values())]

    @property
    def waits_for_agent(self) -> bool:
        """Whether its memory system is to act next."""
        return any(name != "ieu" for name in self.waiting)

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
        self.event_time_us = event.event_time_us
        if event.error is not None:
            return self._fail("delta", event.id, f"ingest failed: {event.error}")
        self._take("delta", event, "R1", *(() if "ieu" in self.taken else ("ieu",)))
        return [self._task("T1", "committed", event.id)]

    def _take_r1(self, event: ResponseEvent) -> list[Event]:
        verdict = self.verdict
        if event.error is not None:
            if verdict is not None and verdict.outcome != "unjudged":
                raise InvariantError(f"{self.id}: R1 failed, and yet it was judged", (event.id, verdict.id))
            return self._fail("R1", event.id, f"R1 failed: {event.error}")
        self._take("R1", event, "ieu")
        request = self.anchor.initial_task.user_request
        self.turns = (Turn(role="user", text=request), Turn(role="assistant", text=event.text))
        return [] if verdict is None else self._give_feedback(verdict)

    def _take_verdict(self, event: VerdictEvent) -> list[Event]:
        draft = event.feedback
        fitting = "affirm" if event.outcome == "pass" else "revise"
        if event.outcome != "unjudged" and (draft is None or draft.type != fitting):
            raise InvariantError(
                f"{self.id}: R1 was judged {event.outcome} without feedback {fitting}", (event.id,)
            )
        self.taken["ieu"] = event.id
        if self.closed:
            return []
        if "R1" in self.taken:
            return self._give_feedback(event)
        self.waiting = tuple(other for other in self.waiting if other != "ieu")
        self.verdict = event
        return []

    def _give_feedback(self, verdict: VerdictEvent) -> list[Event]:
        self.verdict = None
        self.ieu = verdict.outcome
        causes = (self.taken["R1"], verdict.id)
        draft = verdict.feedback
        if verdict.outcome == "unjudged" or draft is None:
            return [self._closed(f"no feedback could be given: {verdict.reason}", *causes)]
        feedback = FeedbackEvent(
            id=f"{self.id}/F",
            run=self.anchor.run,
            stream=self.anchor.stream,
            event_time_us=self.event_time_us,
            as_of=self.anchor.segment,
            causes=causes,
            lane=self.lane,
            trajectory=self.id,
            step=STEPS["F"],
            type=draft.type,
            text=draft.text,
        )
        self.turns += (Turn(role="user", text=draft.text),)
        if draft.type == "revise":
            self.waiting = ("R_F",)
            return [feedback]
        self.waiting = ("committed",)
        return [feedback, self._commit(*causes)]

    def _take_r_f(self, event: ResponseEvent) -> list[Event]:
        if event.error is not None:
            return self._fail("R_F", event.id, f"R_F failed: {event.error}")
        self._take("R_F", event, "committed")
        self.turns += (Turn(role="assistant", text=event.text),)
        return [self._commit(event.id)]

    def _take_committed(self, event: CommittedEvent) -> list[Event]:
        if event.error is not None:
            return self._fail("committed", event.id, f"commit failed: {event.error}")
        if self.ablate_commit:
            self._take("committed", event, "R2", "R2-uncommitted")
            return [self._task("T2", "committed", event.id), self._task("T2", "uncommitted", event.id)]
        self._take("committed", event, "R2")
        return [self._task("T2", "committed", event.id)]

    def _take_r2(self, event: ResponseEvent, name: Input) -> list[Event]:
        self._take(name, event, *(other for other in self.waiting if other != name))
        if event.error is not None:  # the other arm is still answered: it stands for itself
            self.failures[name] = f"{name} failed: {event.error}"
        if self.waiting:
            return []
        arms: tuple[Input, ...] = ("R2", "R2-uncommitted")
        reason = "; ".join(self.failures[arm] for arm in arms if arm in self.failures)
        return [self._closed(reason, *(self.taken[arm] for arm in arms if arm in self.taken))]

    def _task(self, phase: TaskPhase, arm: Arm, cause: str) -> TaskEvent:
        name = phase if arm == "committed" else f"{phase}-{arm}"
        task = self.anchor.initial_task if phase == "T1" else self.anchor.followup_task
        return TaskEvent(
            id=f"{self.id}/{name}",
            run=self.anchor.run,
            stream=self.anchor.stream,
            event_time_us=self.event_time_us,
            as_of=self.anchor.segment,
            causes=(cause,),
            lane=self.lane,
            trajectory=self.id,
            step=STEPS[name],
            phase=phase,
            segment=self.anchor.segment,
            text=task.user_request,
            arm=arm,
        )

    def _commit(self, *causes: str) -> CommitEvent:
        turns, self.turns = self.turns, ()
        return CommitEvent(
            id=f"{self.id}/commit",
            run=self.anchor.run,
            stream=self.anchor.stream,
            event_time_us=self.event_time_us,
            as_of=self.anchor.segment,
            causes=causes,
            lane=self.lane,
            trajectory=self.id,
            step=STEPS["commit"],
            interaction=turns,
            keep_uncommitted=self.ablate_commit,
        )

    def _fail(self, name: Input, event_id: str, reason: str) -> list[Event]:
        self.taken[name] = event_id
        self.failures[name] = reason
        return [self._closed(reason, event_id)]

    def _closed(self, reason: str, *causes: str) -> TrajectoryClosedEvent:
        self.waiting, self.turns, self.verdict = (), (), None
        answered = self.taken.keys() - self.failures.keys()
        # Closed before R1's verdict came, that may still come, and fail R1: then `fi` is asked as well.
        expected = expected_metrics(self.ieu or "fail", ablate_commit=self.ablate_commit)
        return TrajectoryClosedEvent(
            id=f"{self.id}/closed",
            run=self.anchor.run,
            stream=self.anchor.stream,
            event_time_us=self.event_time_us,
            as_of=self.anchor.segment,
            causes=causes,
            lane=self.lane,
            trajectory=self.id,
            anchor=self.anchor.anchor,
            reason=reason,
            unjudged=tuple(metric for metric in expected if BASIS[metric] not in answered),
        )
