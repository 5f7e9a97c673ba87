"""Whole runs in memory: the real conductor, and stand-ins for replayer, agents and judges, whose steps come in a
random order that the log allows. Some hundreds a second, so that a thousand random runs can be audited."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from random import Random

import msgspec
from msgspec.structs import replace

from consumers.audit import AUDIT_TOPICS, Auditor, Certificate
from consumers.rebuild import Rebuild
from producers.canaries import plant_canaries
from producers.conductor import Conductor
from producers.lifelog import Lifelog, RawObservation, SegmentSpan
from producers.timeline import timeline
from simulator.events import (
    AnchorEvent,
    AnchorTask,
    AnyEvent,
    DeltaEvent,
    Event,
    Gold,
    Isolation,
    LaneEvent,
    LaneFailedEvent,
    ObservationEvent,
    OutlineEvent,
    ProbeEvent,
    ProbeMetric,
    ReadyEvent,
    ReplayEndedEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    SessionSpan,
    Subject,
    decode,
    identity_digest,
)
from simulator.intake import dead_letter, decode_records
from simulator.log.protocol import Record, StoredRecord
from simulator.topics import Recorder, Topics
from tests.audit.stand_ins import JudgeStandIn, LaneStandIn

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


METRIC_SETS: tuple[tuple[ProbeMetric, ...], ...] = (
    ("recall_any@10", "ndcg@10", "qa", "memory_recall", "helpful"),
    ("decision", "gated_score"),
    ("mcq_accuracy",),
    ("open_accuracy",),
)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a random run is like. `failing`: share of calls that fail; `outages`: share of judgments without outcome;
    `silent_after`: how many things an attached agent does before it falls silent; `probes`: these, and no anchors."""

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
    probes: bool = False


class World:
    """One run. `records`: topic and partition → what the log holds there."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.rng = Random(shape.seed)
        self.records: dict[tuple[str, int], list[StoredRecord]] = defaultdict(list)
        self.wall_us = 1_700_000_000_000_000
        names = [f"S{i}" for i in range(shape.streams)]
        lifelogs = {name: self._lifelog(name) for name in names}
        make = self._probe if shape.probes else self._anchor
        anchors = [make(lifelogs, number) for number in range(shape.anchors)]
        outlines = [self._outline(lifelog) for lifelog in lifelogs.values()] if shape.probes else []
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
            protocol="realmem" if shape.probes else "streammembench",
        )
        self.anchors: list[Subject] = [replace(anchor, run=self.started.run) for anchor in anchors]
        self.outlines = [replace(outline, run=self.started.run) for outline in outlines]
        self.recorder = Recorder.for_run(self.started)
        self.topics = Topics.of(self.started.run)
        self.upcoming = deque(timeline(list(lifelogs.values()), self.started.run))
        self.conductor = Conductor(self.started, self.anchors)
        self.lanes = {
            f"{label}@{stream}": LaneStandIn(self, f"{label}@{stream}", label in attached)
            for label in labels
            for stream in names
        }
        self.judge = JudgeStandIn(self)
        self.unread: dict[tuple[str, int], deque[AnyEvent]] = defaultdict(deque)
        self.ended = False
        self.released: dict[str, int] = {}
        self.rebuilds: Counter[str] = Counter()

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

    def _probe(self, lifelogs: dict[str, Lifelog], number: int) -> ProbeEvent:
        stream = sorted(lifelogs)[self.below(len(lifelogs))]
        spans = lifelogs[stream].segments
        segment = self.below(len(spans))
        name = f"{stream}/s{segment}/p{number}"
        secret = f"{name} {self.words(self.below(8))}".strip()
        question = (
            "Would you please tell me what to bring for the evening?",  # the same for many
            f"What shall I do about the thing of {number} today?",
            f"On Monday. What shall I do about the thing of {number - 1} today?",  # another's is in it
        )[self.below(3)]
        end_us = spans[segment].end_time_us
        metrics = METRIC_SETS[self.below(len(METRIC_SETS))]
        options = ("here", f"where one knows {secret} and says so") if "mcq_accuracy" in metrics else ()
        return ProbeEvent(
            id=f"{name}/probe",
            run="",
            stream=stream,
            event_time_us=end_us,
            anchor=name,
            segment=segment,
            source_id=f"source {number}",
            asked_time_us=end_us + (self.below(3) - 1) * 90_000_000,
            question=question,
            options=options,
            text="\n".join((question, *options)),
            gold=Gold(
                answer=options[1] if options else f"Says, as one who knows {secret}, what it is",
                memories=(f"It was {secret} that was said in the evening",),
                segments=(0,),
            ),
            metrics=metrics,
        )

    def _outline(self, lifelog: Lifelog) -> OutlineEvent:
        spans = lifelog.segments
        whole = SessionSpan(
            name="all",
            first_segment=0,
            last_segment=len(spans) - 1,
            start_time_us=spans[0].start_time_us,
            end_time_us=spans[-1].end_time_us,
        )
        return OutlineEvent(
            id=f"{lifelog.stream}/outline",
            run="",
            stream=lifelog.stream,
            event_time_us=spans[-1].end_time_us,
            segment_ends_us=tuple(span.end_time_us for span in spans),
            sessions=(whole,) if self.below(2) else (),
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
            self.append(*self.outlines, *self.anchors, self.started)
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
                self._rebuild()
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

    def _rebuild(self) -> None:
        """A lane is built again, and comes to what it was."""
        lane = list(self.lanes)[self.below(len(self.lanes))]
        partition = self.started.streams.index(lane.partition("@")[2]) % self.shape.partitions
        written = decode_records(self.started.run, self.records.get((self.topics.deltas, partition), ()))[0]
        deltas = [event for event, _ in written if isinstance(event, DeltaEvent) and event.lane == lane]
        self.rebuilds[lane] += 1
        rebuild = Rebuild(self.rebuilds[lane])
        for delta in deltas:
            rebuild.expect(delta)
        self.append(*(said for delta in deltas if (said := rebuild.compare(delta)) is not None))

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
