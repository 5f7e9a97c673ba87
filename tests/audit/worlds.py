"""Whole runs in memory: the real conductor, and stand-ins for replayer, agents and judges, whose steps come in a
random order that the log allows. Some hundreds a second, so that a thousand random runs can be audited."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from random import Random

import msgspec
from msgspec.structs import replace

from consumers.audit import AUDIT_TOPICS, Auditor, Certificate
from judges.deterministic import official_feedback
from producers.canaries import plant_canaries
from producers.conductor import Conductor
from producers.lifelog import Lifelog, RawObservation, SegmentSpan
from producers.timeline import timeline
from simulator.events import (
    AnchorEvent,
    AnchorTask,
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    Isolation,
    LaneEvent,
    LaneFailedEvent,
    MemoryRecord,
    Metric,
    ObservationEvent,
    Outcome,
    ReadyEvent,
    ReplayEndedEvent,
    ResponseEvent,
    RetrievedRecord,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
    Vote,
    decode,
    identity_digest,
)
from simulator.intake import dead_letter, decode_records
from simulator.log.protocol import Record, StoredRecord
from simulator.protocols.streammembench import trajectory_id
from simulator.topics import Recorder, Topics
from tests.protocols.scripted import committed_to, response_to

DAY_US = 1_755_302_400_000_000
WORDS = (
    "amber",
    "barge",
    "cedar",
    "drum",
    "ember",
    "fjord",
    "grove",
    "haven",
    "inlet",
    "jolly",
    "kettle",
    "maple",
)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a random run is like. `failing`: share of calls that fail; `outages`: share of judgments without outcome;
    `silent_after`: how many things an attached agent does before it falls silent."""

    seed: int = 0
    streams: int = 1
    segments: int = 3
    anchors: int = 2
    systems: int = 1
    partitions: int = 1
    isolation: Isolation = "branch"
    ablate: bool = False
    failing: float = 0.0
    outages: float = 0.0
    attached: bool = False
    silent_after: int | None = None
    canaries: int = 0
    restarts: bool = False
    rubbish: bool = False


class World:
    """One run. `records`: topic and partition → what the log holds there."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.rng = Random(shape.seed)
        self.records: dict[tuple[str, int], list[StoredRecord]] = defaultdict(list)
        self.wall_us = 1_700_000_000_000_000
        names = [f"S{i}" for i in range(shape.streams)]
        lifelogs = {name: self._lifelog(name) for name in names}
        anchors = [self._anchor(lifelogs, number) for number in range(shape.anchors)]
        identity = {"seed": "3", "shape": str(shape.seed)}
        if canaries := min(shape.canaries, sum(len(log.observations) for log in lifelogs.values())):
            identity["canaries"] = str(canaries)
            lifelogs = plant_canaries(lifelogs, canaries, 3)
        labels = tuple(f"sys{i}" for i in range(shape.systems))
        attached = labels[-1:] if shape.attached else ()
        self.started = RunStartedEvent(
            id="run/started",
            run=f"run-{identity_digest(identity)[:12]}",
            event_time_us=DAY_US,
            identity=identity,
            streams=tuple(names),
            segments={name: len(lifelog.segments) for name, lifelog in lifelogs.items()},
            systems=labels,
            privileged=(),
            anchors=len(anchors),
            partitions=shape.partitions,
            isolation=shape.isolation,
            ablate_commit=shape.ablate,
            attached=attached,
        )
        self.anchors = [replace(anchor, run=self.started.run) for anchor in anchors]
        self.recorder = Recorder.for_run(self.started)
        self.topics = Topics.of(self.started.run)
        self.upcoming = deque(timeline(list(lifelogs.values()), self.started.run))
        self.conductor = Conductor(self.started, self.anchors)
        self.lanes = {
            f"{label}@{stream}": _Lane(self, f"{label}@{stream}", label in attached)
            for label in labels
            for stream in names
        }
        self.judge = _Judge(self)
        self.unread: dict[tuple[str, int], deque[AnyEvent]] = defaultdict(deque)
        self.ended = False
        self.released: dict[str, int] = {}

    # --- what is lived through ------------------------------------------------------------------------

    def words(self, count: int) -> str:
        return " ".join(WORDS[int(self.rng.random() * len(WORDS))] for _ in range(count))

    def below(self, number: int) -> int:
        return int(self.rng.random() * number)

    def _lifelog(self, stream: str) -> Lifelog:
        observations: list[RawObservation] = []
        spans: list[SegmentSpan] = []
        time_us = DAY_US + self.below(10) * 1_000_000
        for segment in range(self.below(self.shape.segments) + 1):
            start_us, first = time_us, len(observations)
            for _ in range(self.below(4) + 1):
                time_us += self.below(3) * 10_000_000  # some at the same time
                text = self.words(self.below(6))
                observations.append(RawObservation(time_us, "dialog", text, "DAY1"))
            end_us = max(time_us, start_us + 300_000_000)
            spans.append(SegmentSpan("DAY1", segment, start_us, end_us, first, len(observations) - 1))
            time_us = end_us + self.below(2) * 60_000_000
        return Lifelog(stream, observations, spans)

    def _anchor(self, lifelogs: dict[str, Lifelog], number: int) -> AnchorEvent:
        stream = sorted(lifelogs)[self.below(len(lifelogs))]
        spans = lifelogs[stream].segments
        segment = self.below(len(spans))
        name = f"{stream}/s{segment}/e{number}"
        secret = f"{name} {self.words(self.below(8))}".strip()
        asked = "Would you please tell me what to bring for the evening?"  # the same for many
        return AnchorEvent(
            id=f"{name}/anchor",
            run="",
            stream=stream,
            event_time_us=spans[segment].end_time_us,
            anchor=name,
            segment=segment,
            evidence_id=f"evidence {number}",
            evidence_statement=f"Evidence {secret}",
            evidence_type="stated",
            subject="X",
            initial_task=AnchorTask(
                user_request=asked
                if self.below(3) == 0
                else f"What shall I do about the thing of {number} today?",
                expected_behavior=f"Behaves as one who knows {secret} by heart and says so",
            ),
            followup_task=AnchorTask(
                user_request=f"And what then is to be done about the other of {number}?",
                expected_behavior=f"Behaves as one who still knows {secret} and acts on it",
            ),
        )

    # --- the log --------------------------------------------------------------------------------------

    def append(self, *events: Event, began_us: int | None = None) -> None:
        self.wall_us += 1000
        for event in events:
            walls = {"wall_us": self.wall_us} | ({} if began_us is None else {"began_us": began_us})
            self.write(self.recorder.record(event, **walls))

    def write(self, record: Record) -> StoredRecord:
        place = (record.topic, record.partition or 0)
        stored = StoredRecord(
            record.topic,
            place[1],
            len(self.records[place]),
            record.key,
            record.value,
            record.timestamp_ms,
            record.headers,
        )
        self.records[place].append(stored)
        for event, _ in decode_records(self.started.run, [stored])[0]:
            self._deliver(event, place)
        return stored

    def _deliver(self, event: AnyEvent, place: tuple[str, int]) -> None:
        if place[0] in (self.topics.deltas, self.topics.responses, self.topics.verdicts, self.topics.control):
            self.unread[place].append(event)
        if isinstance(event, LaneEvent) and event.lane in self.lanes:
            self.lanes[event.lane].hear(event)
        elif isinstance(event, SegmentClosedEvent | ObservationEvent):
            for lane in self.lanes.values():
                if lane.stream == event.stream:
                    lane.hear(event)
        self.judge.hear(event)
        if isinstance(event, SegmentReleasedEvent):
            self.released[event.lane] = event.segment
        self.ended |= isinstance(event, RunEndedEvent)

    # --- running --------------------------------------------------------------------------------------

    def run(self, steps: int | None = None) -> World:
        """To the end, or so many steps."""
        if not self.records:
            self.append(*self.anchors, self.started)
        done = 0
        while (self.upcoming or not self.ended) and (steps is None or done < steps):
            done += 1
            actions = self._actions()
            if not actions:
                self._give_up()
                continue
            getattr(self, actions[self.below(len(actions))])()
            if self.shape.restarts and self.below(20) == 0:
                self.append(ReadyEvent(id="ready/judge", run=self.started.run, event_time_us=0, role="judge"))
            if self.shape.rubbish and self.below(15) == 0:
                self._rubbish()
        return self

    def _actions(self) -> list[str]:
        actions = []
        if self.upcoming and self._may_replay():
            actions.append("_replay")
        if any(self.unread.values()):
            actions.append("_conduct")
        if any(lane.can_work() for lane in self.lanes.values()):
            actions += ["_work", "_work"]
        if self.judge.waiting:
            actions.append("_judge")
        return actions

    def _may_replay(self) -> bool:
        event = self.upcoming[0]
        if self.shape.isolation == "branch" or not isinstance(event, ObservationEvent):
            return True
        return all(
            lane.stream != event.stream or lane.closed == self.released.get(lane.lane, -1) or lane.failed
            for lane in self.lanes.values()
        )

    def _replay(self) -> None:
        self.append(self.upcoming.popleft())
        if not self.upcoming:
            observations = sum(isinstance(event, ObservationEvent) for event in self.events() if event.stream)
            self.append(
                ReplayEndedEvent(
                    id="replay/ended", run=self.started.run, event_time_us=DAY_US, observations=observations
                )
            )

    def _conduct(self) -> None:
        queues = [queue for queue in self.unread.values() if queue]
        queue = queues[self.below(len(queues))]
        out: list[Event] = []
        for _ in range(self.below(len(queue)) + 1):
            out += self.conductor.feed(queue.popleft())
        self.append(*out, *self.conductor.settle())

    def _work(self) -> None:
        able = [lane for lane in self.lanes.values() if lane.can_work()]
        able[self.below(len(able))].work()

    def _judge(self) -> None:
        self.judge.work()

    def _give_up(self) -> None:
        """Nothing moves: an attached agent is silent."""
        out: list[Event] = []
        for trajectory in list(self.conductor.owing_agents()):
            out += self.conductor.give_up(trajectory.id, trajectory.lane, "no answer within 1 s")
        if not out:
            lane = next(lane for lane in self.lanes.values() if lane.is_silent and not lane.failed)
            failed = LaneFailedEvent(
                id=f"{lane.lane}/failed",
                run=self.started.run,
                event_time_us=0,
                stream=lane.stream,
                lane=lane.lane,
                reason="the agent wrote no delta",
            )
            lane.failed = True
            out = [failed, *self.conductor.feed(failed)]
        self.append(*out, *self.conductor.settle())

    def _rubbish(self) -> None:
        """Bytes that are no event, and their dead letter."""
        topic = (self.topics.responses, self.topics.tasks, self.topics.verdicts)[self.below(3)]
        stored = self.write(Record(topic, b"x", b"{no", 0, (), self.below(self.started.partitions)))
        self.append(dead_letter(self.started.run, stored, "no JSON"))

    # --- reading --------------------------------------------------------------------------------------

    def events(self) -> Iterator[AnyEvent]:
        for records in self.records.values():
            for record in records:
                if record.value != b"{no":
                    yield decode(record.value)

    def audit(self) -> Certificate:
        return audit_records(self.started, self.records)


def audit_records(
    started: RunStartedEvent, records: dict[tuple[str, int], list[StoredRecord]]
) -> Certificate:
    """The certificate of a log in memory."""
    auditor = Auditor(started)
    topics = Topics.of(started.run)
    for name in AUDIT_TOPICS:
        for partition in range(started.partitions):
            events, dead = decode_records(started.run, records.get((getattr(topics, name), partition), ()))
            for letter in dead:
                auditor.unreadable(letter)
            for event, record in events:
                auditor.feed(event, record)
    return auditor.certificate()


Store = dict[str, MemoryRecord]


class _Lane:
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
        return replace(response_to(event), text="\n".join(record.text for record in seen), retrieved=found)

    def _commit(self, event: CommitEvent) -> CommittedEvent:
        store = self._branch(event)
        if event.keep_uncommitted:
            self.uncommitted[event.trajectory] = dict(store)
        if self._fails():
            return committed_to(event, "disk full")
        text = "\n".join(turn.text for turn in event.interaction)
        records = self._write(store, f"c {event.trajectory}", text, event.event_time_us)
        return replace(committed_to(event), records=records)


class _Judge:
    """As the judges' role: what can be judged is, once; what can't is unjudged once its trajectory has closed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[tuple[LaneEvent, AnchorEvent, Metric, str]] = []
        self.taken: set[str] = set()
        self.ieu: dict[str, Outcome] = {}
        self.closed: dict[str, TrajectoryClosedEvent] = {}
        self.early: list[tuple[LaneEvent, AnchorEvent, Metric, str]] = []

    def hear(self, event: AnyEvent) -> None:
        if isinstance(event, DeltaEvent) and event.error is None:
            for anchor in self.world.anchors:
                if (anchor.stream, anchor.segment) == (event.stream, event.segment):
                    self._take(event, anchor, "fidelity")
        elif isinstance(event, ResponseEvent) and event.error is None:
            metrics: dict[tuple[str, str], Metric] = {
                ("R1", "committed"): "ieu",
                ("R_F", "committed"): "fi",
                ("R2", "committed"): "fur",
                ("R2", "uncommitted"): "fur_uncommitted",
            }
            self._take(event, self._anchor(event.lane, event.trajectory), metrics[event.phase, event.arm])
        elif isinstance(event, TrajectoryClosedEvent):
            self.closed[event.trajectory] = event
            self._close(event)

    def _anchor(self, lane: str, trajectory: str) -> AnchorEvent:
        return next(anchor for anchor in self.world.anchors if trajectory_id(lane, anchor) == trajectory)

    def _take(self, event: LaneEvent, anchor: AnchorEvent, metric: Metric, reason: str = "") -> None:
        name = f"{trajectory_id(event.lane, anchor)}/{metric}"
        if name not in self.taken:
            self.taken.add(name)
            self.waiting.append((event, anchor, metric, reason))

    def _close(self, event: TrajectoryClosedEvent) -> None:
        for metric in event.unjudged:
            if metric != "fi" or self.ieu.get(event.trajectory) == "fail":
                self._take(event, self._anchor(event.lane, event.trajectory), metric, event.reason)

    def work(self) -> None:
        event, anchor, metric, reason = self.waiting.pop(self.world.below(len(self.waiting)))
        trajectory = trajectory_id(event.lane, anchor)
        outcome: Outcome = "pass" if self.world.below(2) else "fail"
        votes: tuple[Vote, ...] = ()
        if reason or self.world.rng.random() < self.world.shape.outages:
            outcome, reason = "unjudged", reason or "the judge is down"
        elif self.world.below(2):
            others: tuple[Outcome, ...] = ("pass", "fail", "unjudged")
            votes = (Vote(outcome=outcome), Vote(outcome=outcome), Vote(outcome=others[self.world.below(3)]))
        judged = outcome != "unjudged" and metric == "ieu"
        verdict = VerdictEvent(
            id=f"{trajectory}/{metric}",
            run=event.run,
            event_time_us=event.event_time_us,
            stream=event.stream,
            as_of=event.as_of,
            causes=(event.id,),
            lane=event.lane,
            trajectory=trajectory,
            anchor=anchor.anchor,
            metric=metric,
            outcome=outcome,
            reason=reason,
            votes=votes,
            feedback=official_feedback(outcome == "pass", anchor.evidence_statement) if judged else None,
        )
        if metric == "ieu":
            self.ieu[trajectory] = outcome
        self.world.append(verdict)
        if metric == "ieu" and trajectory in self.closed:
            self._close(self.closed[trajectory])
