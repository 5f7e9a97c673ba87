"""How a run stands: whatever is said to be owed at any moment of a run is what comes later in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.status import FINISHED, HELD, Status, StatusFold
from consumers.watchdog import silent, watch
from producers.conductor import Conductor
from simulator.cli.status import fold_status
from simulator.errors import StallError
from simulator.events import (
    AnyEvent,
    Isolation,
    Limits,
    ReplayControlEvent,
    ReplayEndedEvent,
    RunStartedEvent,
    Subject,
)
from simulator.intake import decode_records, read_to_end
from simulator.log import SqliteLog, open_log
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import log_path
from simulator.topics import Recorder, Topics
from simulator.waits import CONDUCTOR_ROLE, JUDGE_ROLE, REPLAYER_ROLE, missing_of
from tests.probes.helpers import LIFEDIAL
from tests.protocols.scripted import LANE, anchor_of, delta_of
from tests.roles.test_conductor import started_with

SPOILT = "slow=tests.workers.slow_memory:SlowMemory:ms=0,spoilt=true"
DATA = "synthetic:seed=5,wearers=2,segments_per_day=8,observations_per_segment=4,anchors_per_day=8"


class Ran:
    """A run's events with their wall times, in the order in which they were written."""

    def __init__(self, out: Path, **more: Any) -> None:
        options = RunOptions(**{"data": DATA, "systems": ("null", SPOILT), "out": out, **more})
        plan = plan_run(options)
        anyio.run(execute, plan)
        self.started: RunStartedEvent = plan.started
        self.events: list[tuple[int, AnyEvent]] = []
        self.status: Status
        anyio.run(self._read, str(log_path(out)))
        self.events.sort(key=lambda pair: pair[0])
        self.anchors = [event for _, event in self.events if isinstance(event, Subject)]
        self.ids = {event.id for _, event in self.events}

    async def _read(self, path: str) -> None:
        async with open_log(path) as log:
            self.status = await fold_status(log, self.started)
            async for record in read_to_end(log, Topics.of(self.started.run)):
                for event, _ in decode_records(self.started.run, [record])[0]:
                    self.events.append((int(dict(record.headers)["wall_us"]), event))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    asked: tuple[dict[str, Any], ...] = (
        {},
        {"ablate_commit": True},
        {"benchmark": "lifedialbench", "data": LIFEDIAL, "asked": "both"},
    )
    return [Ran(tmp_path_factory.mktemp("run"), **more) for more in asked]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_is_owed_comes_later(runs: list[Ran], data: st.DataObject) -> None:
    ran = data.draw(st.sampled_from(runs))
    begun = next(i for i, (_, event) in enumerate(ran.events) if isinstance(event, RunStartedEvent))
    cut = data.draw(st.integers(begun + 1, len(ran.events)))
    fold = StatusFold(ran.started, ran.anchors)
    for wall_us, event in ran.events[:cut]:
        fold.feed(event, wall_us)
    seen = {event.id for _, event in ran.events[:cut]}
    status = fold.status()
    for owed in status.owed:
        assert owed.event in ran.ids - seen
        assert not owed.cause or owed.cause in seen
    assert [owed.since_us for owed in status.owed] == sorted(owed.since_us for owed in status.owed)
    assert sum(status.trajectories.values()) == len(ran.anchors) * 2
    for role in status.roles:
        assert not role.waits_for or role.waits_for in ran.ids - seen
        assert not role.last_event or role.last_event in seen
    if cut == len(ran.events):
        assert status.trajectories == {FINISHED: len(ran.anchors) * 2}
        assert status.state == "ended"


def test_something_is_owed_until_the_end(runs: list[Ran]) -> None:
    """Between the first observation and the end, somebody owes something or the replayer goes on."""
    for ran in runs:
        fold = StatusFold(ran.started, ran.anchors)
        for number, (wall_us, event) in enumerate(ran.events):
            fold.feed(event, wall_us)
            if number % 50 == 0 and not fold.ended:
                assert fold.owed() or fold.next_published() is not None or fold.replayed


def test_the_log_says_the_same(runs: list[Ran]) -> None:
    for ran in runs:
        assert ran.status.state == "ended"
        assert {role.state for role in ran.status.roles} == {"ended"}
        assert {role.lane for role in ran.status.roles if role.lane} == {
            f"{system}@{stream}" for system in ran.started.systems for stream in ran.started.streams
        }
        assert {role.last_event for role in ran.status.roles if role.role == REPLAYER_ROLE} == {
            "replay/ended"
        }


def test_who_is_silent() -> None:
    anchor = anchor_of(segment=0)
    started = started_with(2, 1)
    fold = StatusFold(started, [anchor])
    fold.feed(started, 0)
    assert silent(fold, {}, 10, 5, replayer=False) == []
    assert [m.event for m in silent(fold, {}, 10, 5, replayer=True)] == ["A1_JAKE/segment/0"]
    pause = ReplayControlEvent(id="p", run="run", event_time_us=0, action="pause")
    fold.feed(pause, 1)
    assert silent(fold, {}, 10, 5, replayer=True) == []
    fold.feed(delta_of(anchor), 20)
    owed = [missing_of(f"{LANE}/s0/e0", "T1", f"{LANE}/delta/0")]
    assert silent(fold, {}, 26, 5, replayer=False) == owed
    assert owed[0].role == CONDUCTOR_ROLE
    assert silent(fold, {CONDUCTOR_ROLE: 22}, 26, 5, replayer=False) == []  # slow, and it moves
    assert silent(fold, {JUDGE_ROLE: 22}, 26, 5, replayer=False) == owed


@pytest.mark.parametrize("isolation", ["branch", "shared"])
def test_nobody_owes_what_waits_for_its_turn(isolation: Isolation) -> None:
    anchors = [anchor_of(segment=0, number=0), anchor_of(segment=0, number=1)]
    limits = Limits(open_trajectories=1 if isolation == "branch" else 9)
    started = replace(started_with(1, 2), limits=limits, isolation=isolation)
    fold = StatusFold(started, anchors)
    for event in (started, delta_of(anchors[0])):
        fold.feed(event, 1)
    assert [owed.phase for owed in fold.owed()] == ["T1", "T1"]
    conductor = Conductor(started, anchors)
    (task,) = conductor.feed(delta_of(anchors[0]))
    fold.feed(task, 2)
    assert [owed.event for owed in fold.owed()] == [f"{LANE}/s0/e0/R1"]
    status = fold.status()
    assert status.trajectories == {"waiting for R1": 1, HELD: 1}
    assert [role.owes for role in status.roles if role.role == CONDUCTOR_ROLE] == [0]
    assert silent(fold, {}, 100, 5, replayer=False) == [missing_of(f"{LANE}/s0/e0", "R1")]


async def watched(path: Path, limit_s: float, for_s: float, *events: AnyEvent) -> None:
    started = started_with(1, 1)
    async with SqliteLog.open(path) as log:
        await log.create_topics(Topics.of("run").partitions(1))
        recorder = Recorder.for_run(started)
        await log.append([recorder.record(event, wall_us=1) for event in (started, *events)])
        with anyio.move_on_after(for_s):
            await watch(log, started, limit_s)


async def test_the_watchdog_names_what_is_missing_and_counts_from_when_it_looks(tmp_path: Path) -> None:
    anchor = anchor_of(segment=0)
    replayed = ReplayEndedEvent(id="replay/ended", run="run", event_time_us=0, observations=0)
    with pytest.raises(StallError, match=rf"missing: {LANE}/s0/e0/T1 of conductor \(after {LANE}/delta/0\)$"):
        await watched(tmp_path / "log.db", 1.0, 60, anchor, delta_of(anchor), replayed)
    await watched(tmp_path / "idle.db", 0.5, 1.5, anchor)  # nobody owes anything
