"""Agents and judges of a run in memory: they do what the log asks of them, in no order of their own."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from judges.deterministic import official_feedback
from simulator.events import (
    AnchorEvent,
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    FeedbackEvent,
    LaneEvent,
    MemoryRecord,
    Metric,
    ObservationEvent,
    Outcome,
    ProbeEvent,
    ResponseEvent,
    RetrievedRecord,
    SegmentClosedEvent,
    Subject,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
    Vote,
)
from simulator.protocols.subjects import RATES
from simulator.protocols.trajectory import common_of, trajectory_id
from tests.protocols.scripted import committed_to, response_to

if TYPE_CHECKING:
    from tests.audit.worlds import World

Store = dict[str, MemoryRecord]


class LaneStandIn:
    """A memory system that adds, changes and deletes records, and rests its answers on some that it sees."""

    def __init__(self, world: World, lane: str, attached: bool) -> None:
        self.world = world
        self.lane = lane
        self.stream = lane.partition("@")[2]
        self.silent_after = world.shape.silent_after if attached else None
        self.done = 0
        self.failed = False
        self.closed = -1
        self.store: Store = {}
        self.snapshots: dict[int, Store] = {}
        self.branches: dict[str, Store] = {}
        self.uncommitted: dict[str, Store] = {}
        self.to_ingest: deque[tuple[SegmentClosedEvent, list[str]]] = deque()
        self.lines: list[str] = []
        self.to_do: list[TaskEvent | FeedbackEvent | CommitEvent] = []

    @property
    def is_silent(self) -> bool:
        return self.silent_after is not None and self.done >= self.silent_after

    def hear(self, event: AnyEvent) -> None:
        if isinstance(event, ObservationEvent):
            self.lines.append(event.text)
        elif isinstance(event, SegmentClosedEvent):
            self.to_ingest.append((event, self.lines))
            self.closed, self.lines = event.segment, []
        elif isinstance(event, TaskEvent | CommitEvent) or (
            isinstance(event, FeedbackEvent) and event.type == "revise"
        ):
            self.to_do.append(event)
        elif isinstance(event, TrajectoryClosedEvent):
            self.to_do = [work for work in self.to_do if work.trajectory != event.trajectory]

    def can_work(self) -> bool:
        return not self.is_silent and bool(self.to_ingest or self.to_do)

    def work(self) -> None:
        self.done += 1
        began_us = self.world.wall_us
        work: list[object] = [*self.to_do, *([self.to_ingest] if self.to_ingest else [])]
        chosen = work[self.world.below(len(work))]
        if chosen is self.to_ingest:
            self.world.append(self._ingest(*self.to_ingest.popleft()), began_us=began_us)
            return
        assert isinstance(chosen, TaskEvent | FeedbackEvent | CommitEvent)
        self.to_do.remove(chosen)
        event = self._commit(chosen) if isinstance(chosen, CommitEvent) else self._answer(chosen)
        self.world.append(event, began_us=began_us)

    def _fails(self) -> bool:
        return self.world.rng.random() < self.world.shape.failing

    def _write(self, store: Store, name: str, text: str, event_time_us: int) -> tuple[MemoryRecord, ...]:
        """Mostly adds; may change or delete what is there."""
        written = [MemoryRecord(id=name, text=text, event_time_us=event_time_us)]
        if store and self.world.below(3) == 0:
            other = list(store)[self.world.below(len(store))]
            op = "delete" if self.world.below(2) else "update"
            changed = MemoryRecord(
                id=other,
                text=f"{store[other].text}, or {name}",
                event_time_us=event_time_us,
                op=op,  # type: ignore[arg-type]  # one of the two
            )
            written.append(changed)
        for record in written:
            if record.op == "delete":
                store.pop(record.id, None)
            else:
                store[record.id] = record
        return tuple(written)

    def _ingest(self, closed: SegmentClosedEvent, lines: list[str]) -> DeltaEvent:
        delta = DeltaEvent(
            id=f"{self.lane}/delta/{closed.segment}",
            run=closed.run,
            stream=closed.stream,
            lane=self.lane,
            event_time_us=closed.event_time_us,
            as_of=closed.segment,
            causes=(closed.id,),
            segment=closed.segment,
        )
        if self._fails():
            return replace(delta, error="out of memory")
        # as a counter would name them: a branch may use the same name for something else
        name = f"m{len(self.store)}/{closed.segment}"
        records = self._write(self.store, name, f"{name}: " + "\n".join(lines), closed.event_time_us)
        self.snapshots[closed.segment] = dict(self.store)
        return replace(delta, records=records)

    def _branch(self, event: TaskEvent | FeedbackEvent | CommitEvent) -> Store:
        if self.world.shape.isolation == "shared":
            return self.store
        if event.trajectory not in self.branches:
            self.branches[event.trajectory] = dict(self.snapshots[event.as_of or 0])
        return self.branches[event.trajectory]

    def _answer(self, event: TaskEvent | FeedbackEvent) -> ResponseEvent:
        if self._fails():
            return response_to(event, "no answer")
        store = self._branch(event)
        if isinstance(event, TaskEvent) and event.arm == "uncommitted":
            store = self.uncommitted[event.trajectory]
        seen = [record for record in store.values() if self.world.below(3)]
        found = tuple(RetrievedRecord(id=r.id, text=r.text, event_time_us=r.event_time_us) for r in seen)
        said = [record.text for record in seen]
        if self.world.shape.probes and self.world.below(2):
            said.insert(0, f"You ask: {event.text}")
        return replace(response_to(event), text="\n".join(said), retrieved=found)

    def _commit(self, event: CommitEvent) -> CommittedEvent:
        store = self._branch(event)
        if event.keep_uncommitted:
            self.uncommitted[event.trajectory] = dict(store)
        if self._fails():
            return committed_to(event, "disk full")
        text = "\n".join(turn.text for turn in event.interaction)
        records = self._write(store, f"c {event.trajectory}", text, event.event_time_us)
        return replace(committed_to(event), records=records)


class JudgeStandIn:
    """As the judges' role: what can be judged is, once; what can't is unjudged once its trajectory has closed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[tuple[LaneEvent, Subject, Metric, str]] = []
        self.taken: set[str] = set()
        self.ieu: dict[str, Outcome] = {}
        self.closed: dict[str, TrajectoryClosedEvent] = {}

    def hear(self, event: AnyEvent) -> None:
        if isinstance(event, DeltaEvent) and event.error is None:
            for anchor in self.world.anchors:
                here = (anchor.stream, anchor.segment) == (event.stream, event.segment)
                if here and isinstance(anchor, AnchorEvent):
                    self._take(event, anchor, "fidelity")
        elif isinstance(event, ResponseEvent) and event.error is None:
            subject = self._anchor(event.lane, event.trajectory)
            if isinstance(subject, ProbeEvent):
                for wanted in subject.metrics:
                    self._take(event, subject, wanted)
                return
            metrics: dict[tuple[str, str], Metric] = {
                ("R1", "committed"): "ieu",
                ("R_F", "committed"): "fi",
                ("R2", "committed"): "fur",
                ("R2", "uncommitted"): "fur_uncommitted",
            }
            self._take(event, subject, metrics[event.phase, event.arm])
        elif isinstance(event, TrajectoryClosedEvent):
            self.closed[event.trajectory] = event
            self._close(event)

    def _anchor(self, lane: str, trajectory: str) -> Subject:
        return next(anchor for anchor in self.world.anchors if trajectory_id(lane, anchor) == trajectory)

    def _take(self, event: LaneEvent, anchor: Subject, metric: Metric, reason: str = "") -> None:
        name = f"{trajectory_id(event.lane, anchor)}/{metric}"
        if name not in self.taken:
            self.taken.add(name)
            self.waiting.append((event, anchor, metric, reason))

    def _close(self, event: TrajectoryClosedEvent) -> None:
        for metric in event.unjudged:
            if metric != "fi" or self.ieu.get(event.trajectory) == "fail":
                self._take(event, self._anchor(event.lane, event.trajectory), metric, event.reason)

    def _rate(self, metric: Metric) -> tuple[Outcome, float | None, tuple[Vote, ...]]:
        """As a judge by a model, or without one. Of three votes at most one failed."""
        marks = (0.0, 1.0) if metric in RATES else (0.0, 0.5, 1.0)
        value = marks[self.world.below(len(marks))]
        outcome: Outcome = "pass" if value == 1 else "fail"
        votes: tuple[Vote, ...] = ()
        if metric in ("open_accuracy", "qa", "helpful", "memory_recall", "gated_score"):
            agreeing = Vote(outcome=outcome, value=value)
            other = marks[self.world.below(len(marks))]
            third = Vote(outcome="pass" if other == 1 else "fail", value=other)
            votes = (agreeing, agreeing, third if self.world.below(2) else Vote(outcome="unjudged"))
        return outcome, None if metric in RATES else value, votes

    def work(self) -> None:
        event, anchor, metric, reason = self.waiting.pop(self.world.below(len(self.waiting)))
        trajectory = trajectory_id(event.lane, anchor)
        outcome: Outcome = "pass" if self.world.below(2) else "fail"
        votes: tuple[Vote, ...] = ()
        value: float | None = None
        if reason or self.world.rng.random() < self.world.shape.outages:
            outcome, reason = "unjudged", reason or "the judge is down"
        elif isinstance(anchor, ProbeEvent):
            outcome, value, votes = self._rate(metric)
        elif self.world.below(2):
            others: tuple[Outcome, ...] = ("pass", "fail", "unjudged")
            votes = (Vote(outcome=outcome), Vote(outcome=outcome), Vote(outcome=others[self.world.below(3)]))
        judged = outcome != "unjudged" and metric == "ieu"
        verdict = VerdictEvent(
            **common_of(event, trajectory, metric),
            anchor=anchor.anchor,
            metric=metric,
            outcome=outcome,
            reason=reason,
            votes=votes,
            feedback=official_feedback(outcome == "pass", anchor.evidence_statement)
            if judged and isinstance(anchor, AnchorEvent)
            else None,
            value=value,
        )
        if metric == "ieu":
            self.ieu[trajectory] = outcome
        self.world.append(verdict)
        if metric == "ieu" and trajectory in self.closed:
            self._close(self.closed[trajectory])
