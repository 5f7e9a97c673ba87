"""The judges' role: reads anchors, deltas and responses, asks the judges, and publishes one verdict for each
trajectory and metric.

Topics have no order between them, so a delta or response waits here for nothing but its anchor, which is
known before the replay begins; what an attached agent wrote also until the conductor has taken it, since it may be
late, or twice there. What can't be judged is named by the conductor when it closes the trajectory;
what a judge fails at is unjudged by that judge's reason. Verdicts that the log holds already win over judging
again. What can't be decoded on the topics that both read is buried by the conductor.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any

import anyio
from anyio.abc import TaskGroup

from adapters.metering import metered
from consumers.calls import CallError, CallLimit, Rank, call
from judges.judge import Case, Judgment, ProbeCase
from judges.panel import JudgePanel
from simulator.errors import DecodeError, InvariantError
from simulator.events import (
    AnchorEvent,
    AnchorMetric,
    DeltaEvent,
    LaneEvent,
    Metric,
    Outcome,
    OutlineEvent,
    ProbeEvent,
    ReadyEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    Subject,
    TakenEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from simulator.eventtime import segment_of
from simulator.intake import check_readable, decode_records, followed, read_events
from simulator.log.protocol import Log, TopicPartition
from simulator.outbox import Outbox, Ticket
from simulator.ownership import Ownership
from simulator.protocols.tally import Tally
from simulator.protocols.trajectory import STEPS, common_of, newer_record, trajectory_id
from simulator.topics import Recorder, Topics, partition_of, wall_us
from simulator.waits import JUDGE_ROLE

_METRIC_OF_RESPONSE: dict[tuple[str, str], AnchorMetric] = {
    ("R1", "committed"): "ieu",
    ("R_F", "committed"): "fi",
    ("R2", "committed"): "fur",
    ("R2", "uncommitted"): "fur_uncommitted",
}

_Judged = tuple[Subject, Case | ProbeCase]
"""Whom something is about, and what is to be judged of it."""


async def run_judges(
    log: Log, started: RunStartedEvent, panel: JudgePanel[Any], *, calls: CallLimit | None = None
) -> None:
    """Judge until the run ends. `calls` bounds how many cases are with the judges at once, by default as the run's
    limits say."""
    await _Judging(log, started, panel, calls or CallLimit(started.limits.calls_in_flight)).run()


class _Judging:
    def __init__(self, log: Log, started: RunStartedEvent, panel: JudgePanel[Any], calls: CallLimit) -> None:
        self.log = log
        self.started = started
        self.panel = panel
        self.calls = calls
        self.topics = Topics.of(started.run)
        self.recorder = Recorder.for_run(started)
        self.anchors_at: dict[tuple[str, int], dict[str, Subject]] = defaultdict(dict)
        """(Stream, segment) → its anchors by name: those of our partitions, until all their trajectories are
        finished."""
        self.segment_ends_us: dict[str, tuple[int, ...]] = {}
        """Stream → where its segments end, in a run with probes."""
        self.unfinished: dict[str, int] = {}
        """Anchor → how many of its trajectories are not finished."""
        self.tally = Tally(ablate_commit=started.ablate_commit)
        """The verdicts that are in the log or on their way there, and what was judged of each R1."""
        self.partition = partition_of(started.streams, started.partitions)
        self.only = frozenset(started.only)
        self.lanes = {f"{s}@{stream}": stream for s in started.systems for stream in started.streams}
        self.attached = {lane for lane in self.lanes if lane.partition("@")[0] in started.attached}
        self.known: frozenset[int] = frozenset()
        """Partitions that are ours, and whose verdicts in the log are in `tally`."""
        self.last_delta: dict[str, int] = {}
        """Lane → the segment of its newest delta in order."""
        self.offered: dict[Ticket, DeltaEvent | ResponseEvent] = {}
        """Where it stands → what an attached agent wrote and the conductor may yet take."""
        self.taken: dict[TopicPartition, set[int]] = defaultdict(set)
        """Where what it has taken stands."""
        self.early: dict[str, tuple[ResponseEvent, TopicPartition, int]] = {}
        """Trajectory → an R_F that came before R1 was judged, with its place."""
        self.closed: dict[str, TrajectoryClosedEvent] = {}
        """By trajectory: those that ended early, which leaves metrics that can't be judged."""

    async def run(self) -> None:
        run = self.started.run
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
                    if not isinstance(event, LaneEvent):
                        continue
                    if event.lane not in self.attached or record.offset in self.taken[tp]:
                        self._meet(tasks, event, tp, record.offset)
                    elif isinstance(event, DeltaEvent | ResponseEvent) and self._may_be_taken(event):
                        self.offered[tp, record.offset] = event
                self.outbox.offsets.reached_all(records)

    def _may_be_taken(self, event: DeltaEvent | ResponseEvent) -> bool:
        """Whether the conductor may yet take what an attached agent wrote, and it would then be judged. What was taken
        before a later delta, or the end of a trajectory, is said on the control topic before that."""
        if isinstance(event, DeltaEvent):
            return bool(self.anchors_at) and event.segment > self.last_delta.get(event.lane, -1)
        return not self.tally.closed(event.trajectory) and self._subject(event) is not None

    def _take_offered(self, tasks: TaskGroup, taken: TakenEvent) -> None:
        tp = TopicPartition(taken.topic, taken.partition)
        self.taken[tp].add(taken.offset)
        event = self.offered.pop((tp, taken.offset), None)
        if event is None:
            return
        if isinstance(event, DeltaEvent):
            lane, segment = event.lane, event.segment
            self._withdraw(lambda e: isinstance(e, DeltaEvent) and e.lane == lane and e.segment <= segment)
        self._meet(tasks, event, tp, taken.offset)

    def _withdraw(self, gone: Callable[[DeltaEvent | ResponseEvent], bool]) -> None:
        """Forget what will not be taken any more."""
        self.offered = {place: event for place, event in self.offered.items() if not gone(event)}

    def _meet(self, tasks: TaskGroup, event: LaneEvent, tp: TopicPartition, offset: int) -> None:
        """Judge what is there, unless it is an R_F that nobody has asked for yet."""
        if isinstance(event, ResponseEvent) and event.phase == "R_F":
            if (ieu := self.tally.ieu(event.trajectory)) is None:
                # If R1 fails, the conductor may take it all the same.
                self.early.setdefault(event.trajectory, (event, tp, offset))
                return
            if ieu != "fail":
                return
        self._begin(tasks, event, tp, offset)

    def _begin(self, tasks: TaskGroup, event: LaneEvent, tp: TopicPartition, offset: int) -> None:
        for anchor, case in self._cases(event):
            ticket = self.outbox.offsets.begin(tp, offset)
            tasks.start_soon(
                self._judge, tasks, event, anchor, case, ticket, self.outbox.tenure(tp.partition)
            )

    async def _rebalance(self, gained: frozenset[int], lost: frozenset[int]) -> None:
        """Judge the partitions that came from their first record, but for what the log holds the verdict
        of."""
        self.known -= lost
        if lost:
            self._forget({stream for stream, partition in self.partition.items() if partition in lost})
        if not await self.outbox.rebalance(self.ownership, gained, lost):
            return
        streams = {stream for stream, partition in self.partition.items() if partition in gained}
        self._forget(streams)
        async for event, _ in read_events(self.log, self.started.run, [self.topics.verdicts]):
            if isinstance(event, VerdictEvent) and event.stream in streams:
                self.tally.add(event.trajectory, event.metric)
                if event.metric == "ieu":
                    self.tally.judge_r1(event.trajectory, event.outcome)
        async for event, _ in read_events(self.log, self.started.run, [self.topics.anchors]):
            if isinstance(event, Subject) and event.stream in streams:
                self._know(event)
            elif isinstance(event, OutlineEvent):
                self.segment_ends_us[event.stream] = event.segment_ends_us
        self.known |= gained
        for closed in self.closed.values():
            self._close(closed)

    def _forget(self, streams: Collection[str]) -> None:
        """Forget what is known of some streams, but for which trajectories have ended: the follower of the control
        topic says that once."""
        self.tally.forget_verdicts(streams)
        self._withdraw(lambda event: event.stream in streams)
        self.early = {name: early for name, early in self.early.items() if early[0].stream not in streams}
        self.last_delta = {n: last for n, last in self.last_delta.items() if self.lanes[n] not in streams}
        for place in [place for place in self.anchors_at if place[0] in streams]:
            for anchor in self.anchors_at.pop(place):
                del self.unfinished[anchor]

    def _know(self, anchor: Subject) -> None:
        trajectories = {trajectory_id(f"{s}@{anchor.stream}", anchor) for s in self.started.systems}
        for trajectory in trajectories:
            self.tally.expect(trajectory, anchor)
        asked = trajectories & self.only if self.only else trajectories
        if unfinished := sum(not self.tally.finished(trajectory) for trajectory in asked):
            self.anchors_at[anchor.stream, anchor.segment][anchor.anchor] = anchor
            self.unfinished[anchor.anchor] = unfinished

    def _finish(self, anchor: Subject) -> None:
        """One of its trajectories has finished; after the last, nobody asks for the anchor's texts."""
        self.unfinished[anchor.anchor] -= 1
        if not self.unfinished[anchor.anchor]:
            del self.unfinished[anchor.anchor]
            del self.anchors_at[anchor.stream, anchor.segment][anchor.anchor]
            if not self.anchors_at[anchor.stream, anchor.segment]:
                del self.anchors_at[anchor.stream, anchor.segment]

    def _anchor(self, event: LaneEvent, name: str) -> Subject | None:
        return self.anchors_at.get((event.stream, event.as_of or 0), {}).get(name)

    def _subject(self, response: ResponseEvent) -> Subject | None:
        """What a response is about."""
        name = response.trajectory.removeprefix(f"{response.lane}/")
        return self._anchor(response, f"{response.stream}/{name}")

    def _cases(self, event: LaneEvent) -> list[_Judged]:
        """What one event lets us judge. Failed deltas and responses are not judged: the conductor closes
        their trajectories and names what stays unjudged. It also buries what no agent of this run may write."""
        cases: list[_Judged] = []
        if self.lanes.get(event.lane) != event.stream:
            return cases
        if isinstance(event, DeltaEvent):
            anchors = list(self.anchors_at.get((event.stream, event.segment), {}).values())
            in_order = event.as_of == event.segment == self.last_delta.get(event.lane, -1) + 1
            if not in_order or any(anchor.event_time_us != event.event_time_us for anchor in anchors):
                return cases
            self.last_delta[event.lane] = event.segment
            if event.error is None:
                text = "\n".join(record.text for record in event.records if record.op != "delete")
                cases.extend(
                    (anchor, Case(metric="fidelity", anchor=anchor, text=text))
                    for anchor in anchors
                    if isinstance(anchor, AnchorEvent)
                )
        elif isinstance(event, ResponseEvent) and event.error is None:
            anchor = self._subject(event)
            if anchor is not None and _is_in_place(event, anchor):
                cases.extend((anchor, case) for case in self._cases_of(event, anchor))
        return [case for case in cases if self._take(event, case[0], case[1].metric)]

    def _cases_of(self, event: ResponseEvent, subject: Subject) -> Iterator[Case | ProbeCase]:
        """What a response in its place is judged by."""
        if isinstance(subject, ProbeEvent):
            if event.phase == "R1":
                ends_us = self.segment_ends_us[event.stream]
                segments = tuple(segment_of(found.event_time_us, ends_us) for found in event.retrieved)
                for wanted in subject.metrics:
                    yield ProbeCase(
                        metric=wanted,
                        probe=subject,
                        text=event.text,
                        retrieved=event.retrieved,
                        segments=segments,
                    )
            return
        metric = _METRIC_OF_RESPONSE.get((event.phase, event.arm))
        if metric is not None and (metric != "fur_uncommitted" or self.started.ablate_commit):
            yield Case(metric=metric, anchor=subject, text=event.text)

    def _take(self, event: LaneEvent, anchor: Subject, metric: Metric) -> bool:
        trajectory = trajectory_id(event.lane, anchor)
        if self.only and trajectory not in self.only:
            return False
        if self.tally.finished(trajectory) or not self.tally.add(trajectory, metric):
            return False
        if self.tally.finished(trajectory):
            self._finish(anchor)
        return True

    def _judge_r1(self, trajectory: str, anchor: Subject, outcome: Outcome) -> None:
        self.tally.judge_r1(trajectory, outcome)
        if self.tally.finished(trajectory):
            self._finish(anchor)

    async def _judge(
        self,
        tasks: TaskGroup,
        event: LaneEvent,
        anchor: Subject,
        case: Case | ProbeCase,
        ticket: Ticket,
        tenure: int,
    ) -> None:
        metric = case.metric
        judge = self.panel.judge_of(metric).name
        async with self.calls.turn(event.lane, Rank.NEW if metric == "fidelity" else Rank.UNDER_WAY):
            began_us = wall_us()
            try:
                # The panel keeps the deadline. What it lets through is a judgment that is none, or that
                # can't be written.
                with metered() as meter:
                    judgment = await call(lambda: self.panel.judge(case), Judgment, math.inf)
                check_readable(self._verdict(event, anchor, metric, judgment, judge))
            except (CallError, DecodeError) as failure:
                judgment = Judgment(outcome="unjudged", reason=f"{judge} failed: {failure}")
            ended_us = wall_us()
        verdict = self._verdict(event, anchor, metric, judgment, judge)
        times_us = {"began_us": began_us, "ended_us": ended_us, **meter.headers()}
        self.outbox.put(verdict, ticket, tenure=tenure, **times_us)
        if metric == "ieu" and tenure == self.outbox.tenure(ticket[0].partition):
            self._judge_r1(verdict.trajectory, anchor, verdict.outcome)
            early = self.early.pop(verdict.trajectory, None)
            if early is not None and verdict.outcome == "fail":
                self._begin(tasks, *early)
            if verdict.trajectory in self.closed:
                self._close(self.closed[verdict.trajectory])

    def _verdict(
        self, cause: LaneEvent, anchor: Subject, metric: Metric, judgment: Judgment, judge: str
    ) -> VerdictEvent:
        return VerdictEvent(
            **common_of(cause, trajectory_id(cause.lane, anchor), metric),
            anchor=anchor.anchor,
            metric=metric,
            outcome=judgment.outcome,
            reason=judgment.reason,
            judge=judge,
            scores=judgment.scores,
            votes=judgment.votes,
            feedback=judgment.feedback,
            value=judgment.value,
        )

    async def _follow_control(self, tasks: TaskGroup) -> None:
        async for event, _ in followed(self.log, self.started.run, [self.topics.control]):
            if isinstance(event, TrajectoryClosedEvent):
                self._note_closed(event)
            elif isinstance(event, TakenEvent):
                self._take_offered(tasks, event)
            elif isinstance(event, RunEndedEvent):
                await self.outbox.flush()
                tasks.cancel_scope.cancel()

    def _note_closed(self, event: TrajectoryClosedEvent) -> None:
        if self.tally.closed(event.trajectory):
            return
        self.tally.close(event.trajectory)
        self._withdraw(lambda e: isinstance(e, ResponseEvent) and e.trajectory == event.trajectory)
        if event.unjudged:
            self.closed[event.trajectory] = event
        if not self.tally.finished(event.trajectory):
            self._close(event)
        elif anchor := self._anchor(event, event.anchor):
            self._finish(anchor)

    def _close(self, event: TrajectoryClosedEvent) -> None:
        """Write what a closed trajectory leaves unjudged, if its partition is ours. R_F is asked for only where R1
        failed: if that is not known yet, this is called again once it is."""
        owner = self.partition[event.stream]
        if owner not in self.known or self.tally.finished(event.trajectory):
            return
        anchor = self._anchor(event, event.anchor)
        if anchor is None:
            raise InvariantError(f"no anchor {event.anchor} in this run", (event.id,))
        for metric in event.unjudged:
            if metric == "fi" and self.tally.ieu(event.trajectory) != "fail":
                continue
            if self._take(event, anchor, metric):
                if metric == "ieu":
                    self._judge_r1(event.trajectory, anchor, "unjudged")
                    self.early.pop(event.trajectory, None)
                judgment = Judgment(outcome="unjudged", reason=event.reason)
                self.outbox.put(self._verdict(event, anchor, metric, judgment, ""), owner=owner)


def _is_in_place(response: ResponseEvent, anchor: Subject) -> bool:
    """As the conductor sees it, save that it knows what was asked when. What it buries must not be judged either."""
    if newer_record(response) is not None:
        return False
    name = response.phase if response.arm == "committed" else f"{response.phase}-{response.arm}"
    return (response.as_of, response.event_time_us, response.step) == (
        anchor.segment,
        anchor.task_time_us,
        STEPS[name],
    )
