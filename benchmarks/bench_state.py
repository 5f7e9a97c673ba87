"""How many bytes does a run keep of a trajectory that is open, and of one that has finished?

    python benchmarks/bench_state.py [--trajectories 2000]

tracemalloc over the cores of the roles, fed with events as they come from a log (each with strings of its own, answers
of 1 kB): what the process has more of for each trajectory than before the first began. Anchors are made before and not
counted: each role lets go of them as trajectories finish.
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc
from collections.abc import Callable, Iterable

import anyio

from adapters.memory import Answer, Delta, Interaction, Request, Segment
from consumers.lane import Lane
from consumers.scoreboard import Scoreboard
from judges.deterministic import official_feedback
from producers.conductor import Conductor
from simulator.events import (
    AnchorEvent,
    AnchorTask,
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    Limits,
    Metric,
    ObservationEvent,
    ResponseEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
    VerdictEvent,
    decode,
    encode,
)
from simulator.protocols.tally import Tally
from simulator.protocols.trajectory import trajectory_id

LANE, STREAM, ANSWER = "x@A", "A", "I would say that " * 60
PER_SEGMENT = 2


class Memory:
    """Keeps nothing, so that only the lane's own state is counted."""

    async def ingest(self, segment: Segment) -> Delta:
        return Delta()

    async def answer(self, request: Request) -> Answer:
        return Answer(text=ANSWER)

    async def commit(self, interaction: Interaction) -> Delta:
        return Delta()

    def fork(self) -> Memory:
        return Memory()

    async def aclose(self) -> None: ...


def anchor_of(number: int) -> AnchorEvent:
    segment, ordinal = divmod(number, PER_SEGMENT)
    name = f"{STREAM}/s{segment}/e{ordinal}"
    task = AnchorTask(user_request="What shall I drink? " * 5, expected_behavior="Coffee, as always. " * 5)
    return AnchorEvent(
        id=f"{name}/anchor",
        run="run",
        stream=STREAM,
        event_time_us=segment,
        anchor=name,
        segment=segment,
        evidence_id="coffee",
        evidence_statement="She drinks coffee. " * 5,
        evidence_type="stated",
        subject="self",
        initial_task=task,
        followup_task=task,
    )


def delta_of(segment: int) -> DeltaEvent:
    return DeltaEvent(
        id=f"{LANE}/delta/{segment}",
        run="run",
        stream=STREAM,
        event_time_us=segment,
        as_of=segment,
        lane=LANE,
        segment=segment,
    )


def verdict(event: TrajectoryEvent, metric: Metric) -> VerdictEvent:
    feedback = (
        official_feedback(passed=False, evidence="She drinks coffee. " * 5) if metric == "ieu" else None
    )
    return VerdictEvent(
        id=f"{event.trajectory}/{metric}",
        run="run",
        stream=STREAM,
        event_time_us=event.event_time_us,
        as_of=event.as_of,
        causes=(event.id,),
        lane=LANE,
        trajectory=event.trajectory,
        anchor=f"{STREAM}/{event.trajectory.removeprefix(LANE + '/')}",
        metric=metric,
        outcome="fail",
        judge="official-user (evidence>=0.5, behaviour>=0.3)",
        scores={"evidence": 0.1, "behaviour": 0.2},
        feedback=feedback,
    )


def answers(event: Event) -> list[Event]:
    """What agent and judges write about one event of the conductor."""
    if not isinstance(event, TaskEvent | FeedbackEvent | CommitEvent):
        return []
    common = {
        "run": "run",
        "stream": STREAM,
        "event_time_us": event.event_time_us,
        "as_of": event.as_of,
        "causes": (event.id,),
        "lane": LANE,
        "trajectory": event.trajectory,
        "step": event.step + 1,
    }
    if isinstance(event, CommitEvent):
        return [CommittedEvent(id=f"{event.trajectory}/committed", **common)]
    phase = "R_F" if isinstance(event, FeedbackEvent) else "R1" if event.phase == "T1" else "R2"
    response = ResponseEvent(id=f"{event.trajectory}/{phase}", phase=phase, text=ANSWER, **common)
    metrics: dict[str, tuple[Metric, ...]] = {"R1": ("fidelity", "ieu"), "R_F": ("fi",), "R2": ("fur",)}
    return [response, *(verdict(event, metric) for metric in metrics[phase])]


def read(event: Event) -> AnyEvent:
    """The event as a role has it that read it from the log."""
    return decode(encode(event))


def play(anchors: list[AnchorEvent]) -> list[list[AnyEvent]]:
    """All events of a run in rounds: deltas, then one step of every trajectory after the other."""
    conductor = Conductor(started_for(len(anchors)), anchors)
    rounds: list[list[AnyEvent]] = [[delta_of(segment) for segment in range(len(anchors) // PER_SEGMENT)]]
    while rounds[-1]:
        came: list[AnyEvent] = []
        for event in rounds[-1]:
            given = [event] if isinstance(event, TaskEvent | FeedbackEvent | CommitEvent) else []
            if not given:
                came += [read(out) for out in conductor.feed(event)]
            came += [read(answer) for out in given for answer in answers(out)]
        rounds.append(came)
    return rounds


def started_for(trajectories: int) -> RunStartedEvent:
    return RunStartedEvent(
        id="run/started",
        run="run",
        event_time_us=0,
        identity={},
        streams=(STREAM,),
        segments={STREAM: trajectories // PER_SEGMENT},
        systems=("x",),
        privileged=(),
        anchors=trajectories,
        partitions=1,
        isolation="branch",
        limits=Limits(open_trajectories=trajectories),
    )


class Meter:
    """Bytes that are there now and were not at the beginning, for each trajectory."""

    def __init__(self, trajectories: int) -> None:
        self.trajectories = trajectories
        gc.collect()
        tracemalloc.start()
        self.before = tracemalloc.get_traced_memory()[0]

    def read(self) -> float:
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - self.before) / self.trajectories

    def stop(self) -> float:
        figure = self.read()
        tracemalloc.stop()
        return figure


def is_input(event: Event) -> bool:
    return isinstance(event, DeltaEvent | ResponseEvent | CommittedEvent | VerdictEvent)


def conductor_state(anchors: list[AnchorEvent], rounds: Iterable[list[AnyEvent]]) -> tuple[float, float]:
    conductor = Conductor(started_for(len(anchors)), anchors)
    meter = Meter(len(anchors))
    most = 0.0
    for events in rounds:
        for event in events:
            if is_input(event):
                conductor.feed(read(event))
        most = max(most, meter.read())
    assert conductor.complete
    return most, meter.stop()


def fold_state(
    feed: Callable[[AnyEvent], object], trajectories: int, rounds: Iterable[list[AnyEvent]]
) -> tuple[float, float]:
    meter = Meter(trajectories)
    most = 0.0
    for events in rounds:
        for event in events:
            feed(read(event))
        most = max(most, meter.read())
    return most, meter.stop()


def tally_feed(tally: Tally) -> Callable[[AnyEvent], None]:
    def feed(event: AnyEvent) -> None:
        if isinstance(event, VerdictEvent):
            tally.add(event.trajectory, event.metric)
            if event.metric == "ieu":
                tally.judge_r1(event.trajectory, event.outcome)
        elif isinstance(event, TrajectoryClosedEvent):
            tally.close(event.trajectory)

    return feed


async def lane_state(anchors: list[AnchorEvent], rounds: Iterable[list[AnyEvent]]) -> tuple[float, float]:
    lane = Lane(LANE, STREAM, "run", Memory(), "branch")
    for segment in range(len(anchors) // PER_SEGMENT):
        lane.open_observations.append(
            ObservationEvent(
                id=f"o{segment}",
                run="run",
                event_time_us=segment,
                stream=STREAM,
                seq=segment,
                source="dialog",
                text=".",
            )
        )
        closed = SegmentClosedEvent(
            id=f"c{segment}",
            run="run",
            event_time_us=segment,
            stream=STREAM,
            segment=segment,
            day="DAY1",
            segment_id=segment,
            start_time_us=0,
            first_seq=segment,
            last_seq=segment,
        )
        await lane.ingest(lane.close_segment(closed), closed.id)
    meter = Meter(len(anchors))
    most = 0.0
    for events in rounds:
        for event in map(read, events):
            if isinstance(event, TaskEvent):
                await lane.answer_task(event)
            elif isinstance(event, FeedbackEvent):
                await lane.answer_feedback(event)
            elif isinstance(event, CommitEvent):
                await lane.commit(event)
            elif isinstance(event, TrajectoryClosedEvent):
                await lane.end_trajectory(event.trajectory)
        most = max(most, meter.read())
    return most, meter.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="How many bytes does a run keep of a trajectory?")
    parser.add_argument("--trajectories", type=int, default=2000, help="all open at once (default 2000)")
    count = parser.parse_args().trajectories // PER_SEGMENT * PER_SEGMENT
    anchors = [anchor_of(number) for number in range(count)]
    rounds = play(anchors)
    names = {trajectory_id(LANE, anchor) for anchor in anchors}
    assert {
        e.trajectory for events in rounds for e in events if isinstance(e, TrajectoryClosedEvent)
    } == names
    wire = sum(len(encode(event)) for events in rounds for event in events) / count
    print(f"{count:,} trajectories, all open at once; each is {wire:,.0f} bytes of events in the log")
    print(f"{'bytes a trajectory':28} {'at most':>10} {'finished':>10}")
    for name, (most, finished) in {
        "conductor": conductor_state(anchors, rounds),
        "agent (its lane)": anyio.run(lane_state, anchors, rounds),
        "judges (tally)": fold_state(tally_feed(Tally()), count, rounds),
        "scoreboard without texts": fold_state(Scoreboard(texts=False).feed, count, rounds),
        "scoreboard with texts": fold_state(Scoreboard().feed, count, rounds),
    }.items():
        print(f"{name:28} {most:10,.0f} {finished:10,.0f}")


if __name__ == "__main__":
    main()
