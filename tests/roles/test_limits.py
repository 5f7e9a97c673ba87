"""Limits of the conductor and the replayer together, without a log: whatever they are, everything ends, nothing
exceeds them, and they change no event."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import NamedTuple, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from producers.conductor import Conductor
from producers.pacing import LaneProgress
from simulator.events import (
    AnchorEvent,
    AnyEvent,
    CommitEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    Isolation,
    LaneFailedEvent,
    Limits,
    Metric,
    Outcome,
    ReplayEndedEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentReleasedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
    VerdictEvent,
)
from simulator.protocols.trajectory import INPUTS, Input, input_of, trajectory_id
from tests.protocols.scripted import Fate, anchor_of, answers, delta_of, ieu_of

STREAMS, SYSTEMS = ("A", "B"), ("x", "y")
FATES = [
    Fate(None, "pass"),
    Fate(None, "fail"),
    Fate("R1", "pass"),
    Fate("R_F", "fail"),
    Fate("R2", "unjudged"),
]


class World(NamedTuple):
    """Anchors of each segment of each stream, and the isolation."""

    anchors: dict[str, list[int]]
    isolation: Isolation

    def started(self, limits: Limits) -> RunStartedEvent:
        return RunStartedEvent(
            id="run/started",
            run="run",
            event_time_us=0,
            identity={},
            streams=STREAMS,
            segments={stream: len(counts) for stream, counts in self.anchors.items()},
            systems=SYSTEMS,
            privileged=(),
            anchors=sum(sum(counts) for counts in self.anchors.values()),
            partitions=1,
            isolation=self.isolation,
            limits=limits,
        )

    def all_anchors(self) -> list[AnchorEvent]:
        return [
            anchor_of(stream, segment, number)
            for stream, counts in self.anchors.items()
            for segment, count in enumerate(counts)
            for number in range(count)
        ]


class Play:
    """One run: agents and judges answer in any order, the replayer goes on when it may."""

    def __init__(self, world: World, limits: Limits, seed: int) -> None:
        self.world, self.limits = world, limits
        self.random = random.Random(seed)
        self.anchors = {anchor.anchor: anchor for anchor in world.all_anchors()}
        self.lanes = {stream: [f"{system}@{stream}" for system in SYSTEMS] for stream in STREAMS}
        self.conductor = Conductor(world.started(limits), self.anchors.values())
        self.progress = self._new_progress()
        self.published = dict.fromkeys(STREAMS, 0)
        self.ingested = dict.fromkeys([lane for lanes in self.lanes.values() for lane in lanes], 0)
        self.pending: list[Event] = []
        self.taken: list[Event] = []
        self.log: dict[str, Event] = {}
        self.open: set[str] = set()
        self.ended = False

    def _new_progress(self) -> LaneProgress:
        return LaneProgress(
            self.lanes,
            isolation=self.world.isolation,
            max_ahead=self.limits.segments_ahead,
            max_unreleased=self.limits.unreleased_segments,
        )

    def steps(self) -> list[tuple[str, str]]:
        """All that could happen now."""
        steps = [
            ("publish", stream)
            for stream, counts in self.world.anchors.items()
            if self.published[stream] < len(counts)
            and self.progress.may_publish(stream, self.published[stream])
        ]
        steps += [
            ("ingest", lane)
            for lane, done in self.ingested.items()
            if done < self.published[lane.partition("@")[2]]
        ]
        return steps + [("deliver", "")] * bool(self.pending)

    def play(self, most: int | None = None) -> None:
        """Until nothing can happen, or so many steps."""
        for _ in range(100_000 if most is None else most):
            if not (steps := self.steps()):
                return
            what, name = self.random.choice(steps)
            if what == "publish":
                self.published[name] += 1
                if all(self.published[s] == len(counts) for s, counts in self.world.anchors.items()):
                    self.feed(ReplayEndedEvent(id="replay/ended", run="run", event_time_us=0, observations=0))
            elif what == "ingest":
                stream, segment = name.partition("@")[2], self.ingested[name]
                self.ingested[name] += 1
                delta = delta_of(anchor_of(stream, segment), name)
                self.progress.apply(delta)
                self.feed(delta)
                for anchor in self.anchors_of(stream, segment):
                    self.pending.append(verdict(trajectory_id(name, anchor), name, anchor, "fidelity"))
            else:
                self.feed(self.pending.pop(self.random.randrange(len(self.pending))))

    def anchors_of(self, stream: str, segment: int) -> list[AnchorEvent]:
        return [a for a in self.anchors.values() if (a.stream, a.segment) == (stream, segment)]

    def feed(self, event: Event) -> None:
        self.taken.append(event)
        assert isinstance(event, get_args(AnyEvent))
        self.write(self.conductor.feed(event))  # type: ignore[arg-type]  # just asserted

    def write(self, out: list[Event]) -> None:
        for event in [*out, *self.conductor.settle()]:
            if event.id in self.log:
                continue  # a conductor that was begun again says it again, and does not publish it
            self.log[event.id] = event
            self.ended |= isinstance(event, RunEndedEvent)
            self.progress.apply(event)
            if isinstance(event, TrajectoryEvent):
                if isinstance(event, TaskEvent) and event.phase == "T1":
                    self.open.add(event.trajectory)
                anchor = self.anchors[f"{event.stream}/{event.trajectory.removeprefix(event.lane + '/')}"]
                fate = FATES[hash_of(event.trajectory) % len(FATES)]
                for answer in answers(fate, event.lane, anchor, event):
                    self.pending.append(answer)
                    metric = metric_of(answer)
                    if metric is not None:
                        self.pending.append(verdict(event.trajectory, event.lane, anchor, metric))
            elif isinstance(event, TrajectoryClosedEvent):
                self.open.discard(event.trajectory)
                anchor = self.anchors[event.anchor]
                fate = FATES[hash_of(event.trajectory) % len(FATES)]
                for metric in event.unjudged:
                    if metric == "ieu" and fate.fails == "R1":
                        continue  # said with R1
                    if metric != "fi" or fate == Fate("R_F", "fail"):
                        self.pending.append(verdict(event.trajectory, event.lane, anchor, metric, "unjudged"))
        assert len(self.open) <= self.limits.open_trajectories
        if self.world.isolation == "shared":
            lanes = [name.partition("/")[0] for name in self.open]
            assert len(set(lanes)) == len(lanes)
        for stream, published in self.published.items():
            allowed = 1 if self.world.isolation == "shared" else self.limits.unreleased_segments
            assert self.progress.unreleased(stream, published) <= allowed
            assert self.progress.lag(stream, published) <= self.limits.segments_ahead

    def begin_again(self) -> None:
        """As a conductor does that takes over: deltas as they come, the rest of each trajectory in causal order."""
        begun = {
            e.trajectory: e.lane for e in self.log.values() if isinstance(e, TaskEvent) and e.phase == "T1"
        }
        closed = {e.trajectory for e in self.log.values() if isinstance(e, TrajectoryClosedEvent)}
        taken: set[str] = set()
        released: dict[str, int] = defaultdict(lambda: -1)
        for event in self.log.values():
            if isinstance(event, TaskEvent | FeedbackEvent | CommitEvent | TrajectoryClosedEvent):
                taken.update(event.causes)
            if isinstance(event, SegmentReleasedEvent):
                released[event.lane] = max(released[event.lane], event.segment)
        self.conductor = Conductor(
            self.world.started(self.limits),
            self.anchors.values(),
            closed=closed,
            taken=taken,
            begun=begun,
            released=released,
        )
        out: list[Event] = []
        deltas = [event for event in self.taken if isinstance(event, DeltaEvent)]
        others = [event for event in self.taken if not isinstance(event, DeltaEvent)]
        for event in [*deltas, *sorted(others, key=stage_of)]:
            out += self.conductor.feed(event)  # type: ignore[arg-type]  # asserted when it was taken
        self.write(out)


def stage_of(event: Event) -> int:
    name = input_of(event)
    return len(INPUTS) if name is None else INPUTS.index(name)


def hash_of(name: str) -> int:
    return sum(name.encode())


def metric_of(answer: Event) -> Metric | None:
    if isinstance(answer, ResponseEvent) and answer.error is None:
        metrics: dict[Input, Metric] = {"R_F": "fi", "R2": "fur"}
        return metrics.get(answer.phase)
    return None


def verdict(
    trajectory: str, lane: str, anchor: AnchorEvent, metric: Metric, outcome: Outcome = "pass"
) -> VerdictEvent:
    like = ieu_of(trajectory, lane, anchor, outcome)
    return replace(like, id=f"{trajectory}/{metric}", metric=metric, feedback=None)


worlds = st.builds(
    World,
    st.fixed_dictionaries(
        {stream: st.lists(st.integers(0, 3), min_size=1, max_size=5) for stream in STREAMS}
    ),
    st.sampled_from(["branch", "shared"]),
)
limits = st.builds(
    Limits,
    open_trajectories=st.integers(1, 4),
    unreleased_segments=st.integers(1, 4),
    segments_ahead=st.integers(1, 4),
)


@settings(deadline=None)
@given(worlds, limits, st.integers(0, 2**32))
def test_every_trajectory_ends_and_limits_are_kept_and_change_no_event(
    world: World, limited: Limits, seed: int
) -> None:
    plays = [Play(world, limited, seed), Play(world, Limits(), seed + 1)]
    for play in plays:
        play.play()
        assert play.ended
        assert not play.open
        closed = [event for event in play.log.values() if isinstance(event, TrajectoryClosedEvent)]
        assert len(closed) == len(play.anchors) * len(SYSTEMS)
    same, other = (
        {name: event for name, event in play.log.items() if not isinstance(event, SegmentReleasedEvent)}
        for play in plays
    )
    assert same == other


@settings(deadline=None)
@given(worlds, limits, st.integers(0, 2**32), st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_a_conductor_that_is_begun_again_keeps_the_limits_too(
    world: World, limited: Limits, seed: int, moments: list[int]
) -> None:
    play = Play(world, limited, seed)
    for moment in moments:
        play.play(moment)
        play.begin_again()
    play.play()
    assert play.ended
    assert not play.open


def test_a_lower_limit_after_a_restart_lets_what_has_begun_go_on_and_no_other_begin() -> None:
    world = World({"A": [3, 3], "B": [0]}, "branch")
    play = Play(world, Limits(open_trajectories=4), 1)
    for lane in ("x@A", "y@A"):
        play.feed(delta_of(anchor_of("A", 0), lane))
    begun = set(play.open)
    assert len(begun) == 4
    play.limits = Limits(open_trajectories=2)
    play.conductor = Conductor(
        world.started(play.limits),
        play.anchors.values(),
        begun={name: name.partition("/")[0] for name in begun},
    )
    out = [e for lane in ("x@A", "y@A") for e in play.conductor.feed(delta_of(anchor_of("A", 0), lane))]
    assert {event.trajectory for event in out if isinstance(event, TaskEvent)} == begun


def test_a_failed_lane_gives_its_places_to_the_others() -> None:
    world = World({"A": [2], "B": [0]}, "branch")
    play = Play(world, Limits(open_trajectories=1), 1)
    for lane in ("x@A", "y@A"):
        play.feed(delta_of(anchor_of("A", 0), lane))
    (first,) = play.open
    lane = first.partition("/")[0]
    failed = LaneFailedEvent(
        id=f"{lane}/failed", run="run", event_time_us=0, stream="A", lane=lane, reason="gone"
    )
    play.feed(failed)
    (second,) = play.open
    assert second.partition("/")[0] != lane
    closed = [e.trajectory for e in play.log.values() if isinstance(e, TrajectoryClosedEvent)]
    assert sorted(closed) == [f"{lane}/s0/e0", f"{lane}/s0/e1"]
