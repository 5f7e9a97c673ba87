"""The protocol of StreamMemBench: T1 → R1 → F → (R_F on `revise`) → commit → committed → T2 → R2.

With the commit ablation T2 is asked twice after the commit, on a branch with the interaction and on one without. Pure.
"""

from __future__ import annotations

from typing import Final

from simulator.errors import InvariantError
from simulator.events import (
    AnchorEvent,
    AnchorMetric,
    Arm,
    CommitEvent,
    CommittedEvent,
    Event,
    FeedbackEvent,
    LaneEvent,
    Metric,
    Outcome,
    ResponseEvent,
    TrajectoryClosedEvent,
    Turn,
    VerdictEvent,
)
from simulator.protocols.trajectory import STEPS, Input, Trajectory

METRICS: Final[tuple[AnchorMetric, ...]] = ("fidelity", "ieu", "fi", "fur", "fur_uncommitted")
"""In the order in which they are judged and shown."""

BASIS: Final[dict[Metric, Input]] = {
    "fidelity": "delta",
    "ieu": "R1",
    "fi": "R_F",
    "fur": "R2",
    "fur_uncommitted": "R2-uncommitted",
}
"""Metric → the input that it is judged on. Without it, the metric can't be judged."""


def expected_metrics(ieu: Outcome | None, *, ablate_commit: bool = False) -> tuple[AnchorMetric, ...]:
    """The metrics that a closed trajectory must have a verdict for, `unjudged` where it could not be judged.
    `fi` is asked only where R1 failed: its denominator counts those anchors alone (docs/metrics.md)."""
    asked = {"fidelity", "ieu", "fur"}
    if ieu == "fail":
        asked.add("fi")
    if ablate_commit:
        asked.add("fur_uncommitted")
    return tuple(metric for metric in METRICS if metric in asked)


class AnchorTrajectory(Trajectory[AnchorEvent], kw_only=True):
    """One lane and one anchor."""

    ablate_commit: bool = False
    turns: tuple[Turn, ...] = ()
    """The interaction so far; empty again once it was handed to the commit."""
    verdict: VerdictEvent | None = None
    """The verdict on R1, held where it came before R1: they travel on two topics."""
    ieu: Outcome | None = None
    """The verdict on R1, once R1 is there too."""

    def _follow(self, name: Input, event: LaneEvent) -> list[Event]:
        match event:
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

    def _first_task(self, cause: str) -> list[Event]:
        self.waiting = ("R1", *(() if "ieu" in self.taken else ("ieu",)))
        return [self._task("T1", "committed", self.anchor.initial_task.user_request, cause)]

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
            **self._common("F", *causes), step=STEPS["F"], type=draft.type, text=draft.text
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
            return [self._follow_up("committed", event.id), self._follow_up("uncommitted", event.id)]
        self._take("committed", event, "R2")
        return [self._follow_up("committed", event.id)]

    def _take_r2(self, event: ResponseEvent, name: Input) -> list[Event]:
        self._take(name, event, *(other for other in self.waiting if other != name))
        if event.error is not None:  # the other arm is still answered: it stands for itself
            self.failures[name] = f"{name} failed: {event.error}"
        if self.waiting:
            return []
        arms: tuple[Input, ...] = ("R2", "R2-uncommitted")
        reason = "; ".join(self.failures[arm] for arm in arms if arm in self.failures)
        return [self._closed(reason, *(self.taken[arm] for arm in arms if arm in self.taken))]

    def _follow_up(self, arm: Arm, cause: str) -> Event:
        return self._task("T2", arm, self.anchor.followup_task.user_request, cause)

    def _commit(self, *causes: str) -> CommitEvent:
        turns, self.turns = self.turns, ()
        return CommitEvent(
            **self._common("commit", *causes),
            step=STEPS["commit"],
            interaction=turns,
            keep_uncommitted=self.ablate_commit,
        )

    def _closed(self, reason: str, *causes: str) -> TrajectoryClosedEvent:
        self.turns, self.verdict = (), None
        return super()._closed(reason, *causes)

    def _unjudged(self, answered: frozenset[Input]) -> tuple[Metric, ...]:
        # Closed before R1's verdict came, that may still come, and fail R1: then `fi` is asked as well.
        expected = expected_metrics(self.ieu or "fail", ablate_commit=self.ablate_commit)
        return tuple(metric for metric in expected if BASIS[metric] not in answered)
