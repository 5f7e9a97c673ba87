"""The judges' role: reads anchors, deltas and responses, asks the judges, and publishes one verdict for each
trajectory and metric.

Topics have no order between them, so a delta or response waits here for nothing but its anchor, which is
known before the replay begins. What can't be judged is named by the conductor when it closes the trajectory;
what a judge fails at is unjudged by that judge's reason. Verdicts that the log holds already win over judging
again. What can't be decoded on the topics that both read is buried by the conductor.
"""

from __future__ import annotations

import math
from collections import defaultdict

import anyio
from anyio.abc import TaskGroup

from consumers.calls import CallError, call
from judges.judge import Case, Judgment
from judges.panel import JudgePanel
from simulator.errors import DecodeError, InvariantError
from simulator.events import (
    AnchorEvent,
    AnyEvent,
    DeltaEvent,
    LaneEvent,
    Metric,
    Outcome,
    ReadyEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from simulator.intake import check_readable, decode_records, read_to_end
from simulator.log.protocol import Log, TopicPartition
from simulator.outbox import Outbox, Ticket
from simulator.ownership import Ownership
from simulator.protocols.streammembench import STEPS, trajectory_id
from simulator.topics import Recorder, Topics, partition_of
from simulator.waits import JUDGE_ROLE

_METRIC_OF_RESPONSE: dict[tuple[str, str], Metric] = {
    ("R1", "committed"): "ieu",
    ("R_F", "committed"): "fi",
    ("R2", "committed"): "fur",
    ("R2", "uncommitted"): "fur_uncommitted",
}


async def run_judges(
    log: Log, started: RunStartedEvent, panel: JudgePanel, *, calls_in_flight: int = 64
) -> None:
    """Judge until the run ends. `calls_in_flight` bounds how many cases are with the judges at once."""
    await _Judging(log, started, panel, calls_in_flight).run()


class _Judging:
    def __init__(self, log: Log, started: RunStartedEvent, panel: JudgePanel, calls_in_flight: int) -> None:
        self.log = log
        self.started = started
        self.panel = panel
        self.limiter = anyio.CapacityLimiter(calls_in_flight)
        self.topics = Topics.of(started.run)
        self.recorder = Recorder.for_run(started)
        self.anchors: dict[str, AnchorEvent] = {}
        self.anchors_at: dict[tuple[str, int], list[AnchorEvent]] = defaultdict(list)
        self.taken: set[str] = set()
        """Ids of verdicts that are in the log or on their way there."""
        self.partition = partition_of(started.streams, started.partitions)
        self.lanes = {f"{s}@{stream}": stream for s in started.systems for stream in started.streams}
        self.known: frozenset[int] = frozenset()
        """Partitions that are ours, and whose verdicts in the log are in `taken`."""
        self.last_delta: dict[str, int] = {}
        """Lane → the segment of its newest delta in order."""
        self.early: dict[str, tuple[ResponseEvent, TopicPartition, int]] = {}
        """Trajectory → an R_F that came before R1 was judged, with its place."""
        self.ieu: dict[str, Outcome] = {}
        """Trajectory → what was judged of R1."""
        self.closed: dict[str, TrajectoryClosedEvent] = {}
        """By trajectory."""

    async def run(self) -> None:
        run = self.started.run
        async for record in read_to_end(self.log, [self.topics.anchors]):
            for event, _ in decode_records(run, [record])[0]:
                if isinstance(event, AnchorEvent):
                    self.anchors[event.anchor] = event
                    self.anchors_at[event.stream, event.segment].append(event)
        topics = [self.topics.deltas, self.topics.responses]
        async with (
            self.log.subscribe(topics, group=f"{run}.{JUDGE_ROLE}") as subscription,
            anyio.create_task_group() as tasks,
        ):
            self.ownership = Ownership(subscription, topics)
            self.outbox = Outbox(subscription, self.recorder)
            tasks.start_soon(self.outbox.flush_forever)
            await self._rebalance(*self.ownership.change())
            tasks.start_soon(self._follow_control, tasks)
            ready = ReadyEvent(id=f"ready/{JUDGE_ROLE}", run=run, event_time_us=0, role=JUDGE_ROLE)
            await self.log.append([self.recorder.record(ready)])
            while True:
                records = await subscription.poll(max_records=2000)
                gained, lost = self.ownership.change()
                if gained or lost:
                    await self._rebalance(gained, lost)
                    records = self.ownership.kept(records, gained)
                for event, record in decode_records(run, records)[0]:
                    tp = TopicPartition(record.topic, record.partition)
                    if self.partition.get(event.stream) != record.partition:
                        continue  # the conductor buries it
                    if isinstance(event, ResponseEvent) and event.phase == "R_F":
                        if event.trajectory not in self.ieu:
                            # Nobody can have asked for it. If R1 fails, the conductor may take it all the same.
                            self.early.setdefault(event.trajectory, (event, tp, record.offset))
                            continue
                        if self.ieu[event.trajectory] != "fail":
                            continue
                    self._begin(tasks, event, tp, record.offset)
                self.outbox.offsets.reached_all(records)

    def _begin(self, tasks: TaskGroup, event: AnyEvent, tp: TopicPartition, offset: int) -> None:
        for anchor, metric, text in self._cases(event):
            assert isinstance(event, LaneEvent)
            ticket = self.outbox.offsets.begin(tp, offset)
            tasks.start_soon(self._judge, tasks, event, anchor, metric, text, ticket)

    async def _rebalance(self, gained: frozenset[int], lost: frozenset[int]) -> None:
        """Judge the partitions that came from their first record, but for what the log holds the verdict
        of."""
        self.known -= lost
        if lost:
            self.outbox.rebalanced(lost)
        if not gained:
            return
        first = await self.ownership.take_over(gained)
        if first is None:  # they went on already
            return
        self.outbox.offsets.begin_at(first)
        ours = {stream for stream, partition in self.partition.items() if partition not in gained}
        self.taken = {verdict for verdict in self.taken if _stream_of(verdict) in ours}
        self.early = {name: early for name, early in self.early.items() if early[0].stream in ours}
        self.last_delta = {lane: last for lane, last in self.last_delta.items() if self.lanes[lane] in ours}
        async for record in read_to_end(self.log, [self.topics.verdicts]):
            for event, _ in decode_records(self.started.run, [record])[0]:
                self.taken.add(event.id)
                if isinstance(event, VerdictEvent) and event.metric == "ieu":
                    self.ieu[event.trajectory] = event.outcome
        self.known |= gained
        for event in self.closed.values():
            self._close(event)

    def _cases(self, event: AnyEvent) -> list[tuple[AnchorEvent, Metric, str]]:
        """What one event lets us judge. Failed deltas and responses are not judged: the conductor closes
        their trajectories and names what stays unjudged. It also buries what no agent of this run may write."""
        cases: list[tuple[AnchorEvent, Metric, str]] = []
        if not isinstance(event, LaneEvent) or self.lanes.get(event.lane) != event.stream:
            return cases
        if isinstance(event, DeltaEvent):
            anchors = self.anchors_at.get((event.stream, event.segment), [])
            in_order = event.as_of == event.segment == self.last_delta.get(event.lane, -1) + 1
            if not in_order or any(anchor.event_time_us != event.event_time_us for anchor in anchors):
                return cases
            self.last_delta[event.lane] = event.segment
            if event.error is None:
                text = "\n".join(record.text for record in event.records if record.op != "delete")
                cases.extend((anchor, "fidelity", text) for anchor in anchors)
        elif isinstance(event, ResponseEvent) and event.error is None:
            anchor_key = f"{event.stream}/{event.trajectory.removeprefix(event.lane + '/')}"
            metric = _METRIC_OF_RESPONSE.get((event.phase, event.arm))
            anchor = self.anchors.get(anchor_key)
            if metric is not None and anchor is not None and _is_in_place(event, anchor):
                cases.append((anchor, metric, event.text))
        return [case for case in cases if self._take(event, case[0], case[1])]

    def _take(self, event: AnyEvent, anchor: AnchorEvent, metric: Metric) -> bool:
        assert isinstance(event, LaneEvent)
        verdict_id = f"{trajectory_id(event.lane, anchor)}/{metric}"
        if verdict_id in self.taken:
            return False
        self.taken.add(verdict_id)
        return True

    async def _judge(
        self,
        tasks: TaskGroup,
        event: LaneEvent,
        anchor: AnchorEvent,
        metric: Metric,
        text: str,
        ticket: Ticket,
    ) -> None:
        case = Case(metric=metric, anchor=anchor, text=text)
        judge = self.panel.judge_of(metric).name
        tenure = self.outbox.tenure(ticket[0].partition)
        async with self.limiter:
            try:
                # The panel keeps the deadline. What it lets through is a judgment that is none, or that
                # can't be written.
                judgment = await call(lambda: self.panel.judge(case), Judgment, math.inf)
                check_readable(self._verdict(event, anchor, metric, judgment, judge))
            except (CallError, DecodeError) as failure:
                judgment = Judgment(outcome="unjudged", reason=f"{judge} failed: {failure}")
        verdict = self._verdict(event, anchor, metric, judgment, judge)
        self.outbox.put(verdict, ticket, tenure=tenure)
        if metric == "ieu" and tenure == self.outbox.tenure(ticket[0].partition):
            self.ieu[verdict.trajectory] = verdict.outcome
            early = self.early.pop(verdict.trajectory, None)
            if early is not None and verdict.outcome == "fail":
                self._begin(tasks, *early)
            if verdict.trajectory in self.closed:
                self._close(self.closed[verdict.trajectory])

    def _verdict(
        self, cause: LaneEvent, anchor: AnchorEvent, metric: Metric, judgment: Judgment, judge: str
    ) -> VerdictEvent:
        trajectory = trajectory_id(cause.lane, anchor)
        return VerdictEvent(
            id=f"{trajectory}/{metric}",
            run=self.started.run,
            stream=cause.stream,
            event_time_us=cause.event_time_us,
            as_of=cause.as_of,
            causes=(cause.id,),
            lane=cause.lane,
            trajectory=trajectory,
            anchor=anchor.anchor,
            metric=metric,
            outcome=judgment.outcome,
            reason=judgment.reason,
            judge=judge,
            scores=judgment.scores,
            votes=judgment.votes,
            feedback=judgment.feedback,
        )

    async def _follow_control(self, tasks: TaskGroup) -> None:
        async with self.log.subscribe([self.topics.control]) as subscription:
            while True:
                for event, _ in decode_records(self.started.run, await subscription.poll())[0]:
                    if isinstance(event, TrajectoryClosedEvent):
                        self.closed[event.trajectory] = event
                        self._close(event)
                    elif isinstance(event, RunEndedEvent):
                        await self.outbox.flush()
                        tasks.cancel_scope.cancel()

    def _close(self, event: TrajectoryClosedEvent) -> None:
        """Write what a closed trajectory leaves unjudged, if its partition is ours. R_F is asked for only where R1
        failed: if that is not known yet, this is called again once it is."""
        anchor = self.anchors.get(event.anchor)
        if anchor is None:
            raise InvariantError(f"no anchor {event.anchor} in this run", (event.id,))
        owner = self.partition[event.stream]
        if owner not in self.known:
            return
        for metric in event.unjudged:
            if metric == "fi" and self.ieu.get(event.trajectory) != "fail":
                continue
            if self._take(event, anchor, metric):
                judgment = Judgment(outcome="unjudged", reason=event.reason)
                self.outbox.put(self._verdict(event, anchor, metric, judgment, ""), owner=owner)


def _is_in_place(response: ResponseEvent, anchor: AnchorEvent) -> bool:
    """As the conductor sees it, save that it knows what was asked when."""
    name = response.phase if response.arm == "committed" else f"{response.phase}-{response.arm}"
    return (response.as_of, response.event_time_us, response.step) == (
        anchor.segment,
        anchor.event_time_us,
        STEPS[name],
    )


def _stream_of(verdict_id: str) -> str:
    """The stream in `<label>@<stream>/s<segment>/e<n>/<metric>`: no label holds these marks."""
    return verdict_id.partition("@")[2].split("/")[0]
