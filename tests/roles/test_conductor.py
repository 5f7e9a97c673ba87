"""The conductor without agents: what it lets go of, whom it waits for, and what it does not accept."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from producers.conduct import conduct
from producers.conductor import Conductor
from simulator.errors import InvariantError, StallError
from simulator.events import (
    AnchorEvent,
    AnyEvent,
    DeadLetterEvent,
    Event,
    Isolation,
    LaneFailedEvent,
    ReadyEvent,
    ReplayEndedEvent,
    RetrievedRecord,
    RunEndedEvent,
    RunStartedEvent,
    SegmentReleasedEvent,
    TakenEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
    kind_of,
)
from simulator.intake import decode_records, read_events
from simulator.log import Record, SqliteLog
from simulator.topics import Recorder, Topics
from tests.protocols.scripted import LANE, Fate, anchor_of, answers, delta_of, response_to


def started_with(segments: int, anchors: int, isolation: Isolation = "branch") -> RunStartedEvent:
    return RunStartedEvent(
        id="run/started",
        run="run",
        event_time_us=0,
        identity={},
        streams=("A1_JAKE",),
        segments={"A1_JAKE": segments},
        systems=("rag_raw",),
        privileged=(),
        anchors=anchors,
        partitions=1,
        isolation=isolation,
    )


def verdict(trajectory: str, anchor: AnchorEvent, metric: str) -> VerdictEvent:
    return VerdictEvent(
        id=f"{trajectory}/{metric}",
        run="run",
        stream="A1_JAKE",
        lane=LANE,
        event_time_us=anchor.event_time_us,
        trajectory=trajectory,
        anchor=anchor.anchor,
        metric=metric,  # type: ignore[arg-type]  # the caller's literals
        outcome="pass",
    )


def go_on(conductor: Conductor, anchor: AnchorEvent, out: list[Event], taken: list[Event]) -> None:
    """Answer what the conductor asks until it asks nothing more of this anchor."""
    waiting = [e for given in out for e in answers(Fate(None, "pass"), LANE, anchor, given)]
    while waiting:
        event = waiting.pop(0)
        taken.append(event)
        given = conductor.feed(event)  # type: ignore[arg-type]  # scripted events are of known kinds
        waiting += [e for g in given for e in answers(Fate(None, "pass"), LANE, anchor, g)]


def released(out: list[Event]) -> list[int]:
    return [event.segment for event in out if isinstance(event, SegmentReleasedEvent)]


def test_snapshots_without_trajectories_are_released_at_once_and_others_after_r1() -> None:
    anchor = anchor_of(segment=1)
    conductor = Conductor(started_with(4, 1), [anchor])
    out: list[Event] = []
    for segment in range(3):
        out += conductor.feed(replace(delta_of(replace(anchor, segment=segment)), segment=segment))
    assert released(conductor.settle()) == [0]
    task = next(event for event in out if isinstance(event, TaskEvent))
    conductor.feed(response_to(task))
    assert released(conductor.settle()) == [2]
    assert released(conductor.settle()) == []


def test_shared_trajectories_take_turns_and_release_when_all_have_closed() -> None:
    first, second = anchor_of(segment=0, number=0), anchor_of(segment=0, number=1)
    conductor = Conductor(started_with(1, 2, "shared"), [first, second])
    out = conductor.feed(delta_of(first))
    assert [event.id for event in out] == [f"{LANE}/s0/e0/T1"]
    taken: list[Event] = []
    waiting = [e for given in out for e in answers(Fate(None, "pass"), LANE, first, given)]
    begun = []
    while waiting:
        event = waiting.pop(0)
        given = conductor.feed(event)  # type: ignore[arg-type]  # scripted events are of known kinds
        begun += [e.id for e in given if isinstance(e, TaskEvent) and e.phase == "T1"]
        mine = [e for e in given if getattr(e, "trajectory", "").endswith("e0")]
        waiting += [e for g in mine for e in answers(Fate(None, "pass"), LANE, first, g)]
        assert released(conductor.settle()) == []
        if begun:
            break
    assert begun == [f"{LANE}/s0/e1/T1"]
    assert not waiting  # the first had closed
    go_on(conductor, second, [e for e in given if isinstance(e, TaskEvent)], taken)
    assert released(conductor.settle()) == [0]


def test_run_ends_with_the_last_verdict_and_once() -> None:
    anchor = anchor_of(segment=0)
    conductor = Conductor(started_with(1, 1), [anchor])
    taken: list[Event] = []
    go_on(conductor, anchor, conductor.feed(delta_of(anchor)), taken)
    assert [str(owed) for owed in conductor.waits_for()] == [
        f"{LANE}/s0/e0/fidelity of judge (after {LANE}/delta/0)",
        f"{LANE}/s0/e0/fur of judge (after {LANE}/s0/e0/R2)",
    ]
    conductor.settle()
    for metric in ("fidelity", "fur"):
        assert not conductor.complete
        conductor.feed(verdict(f"{LANE}/s0/e0", anchor, metric))
    ended = [event for event in conductor.settle() if isinstance(event, RunEndedEvent)]
    assert [(e.trajectories, e.verdicts, e.unjudged) for e in ended] == [(1, 3, 0)]
    assert conductor.settle() == []
    assert conductor.waits_for() == []


def test_what_can_not_be_right_is_refused() -> None:
    anchor = anchor_of(segment=0)
    task = Conductor(started_with(2, 1), [anchor]).feed(delta_of(anchor))[0]
    assert isinstance(task, TaskEvent)
    response = response_to(task)
    newer = RetrievedRecord(id="r", text="t", event_time_us=task.event_time_us + 1)
    early = delta_of(anchor_of(segment=1))
    wrong: dict[str, list[AnyEvent]] = {
        "no lane": [delta_of(anchor, "other@A1_JAKE")],
        "after that of 0": [delta_of(anchor), delta_of(anchor)],
        "after that of -1": [early],
        "no open trajectory": [response],
        "newer than the": [delta_of(anchor), replace(response, retrieved=(newer,))],
        "two verdicts": [
            delta_of(anchor),
            verdict(task.trajectory, anchor, "fidelity"),
            verdict(task.trajectory, anchor, "fidelity"),
        ],
    }
    for reason, events in wrong.items():
        conductor = Conductor(started_with(2, 1), [anchor])
        for event in events[:-1]:
            conductor.feed(event)
        with pytest.raises(InvariantError, match=reason):
            conductor.feed(events[-1])


def test_a_lane_owes_the_delta_that_could_not_be_taken_until_it_writes_one_that_can() -> None:
    anchor = anchor_of(segment=0)
    conductor = Conductor(started_with(3, 1), [anchor])
    conductor.refuse(replace(delta_of(anchor), segment=2))  # nobody counts one out of order
    conductor.refuse(delta_of(anchor, "ghost@A1_JAKE"))
    assert conductor.owing_deltas() == {}
    conductor.refuse(delta_of(anchor))
    assert conductor.owing_deltas() == {LANE: 0}
    conductor.feed(delta_of(anchor))
    assert conductor.owing_deltas() == {}
    conductor.refuse(delta_of(anchor))  # a second one of what it gave is nothing that it owes
    assert conductor.owing_deltas() == {}


async def test_stall_names_what_is_owed(tmp_path: Path) -> None:
    anchor = anchor_of(segment=0)
    started = started_with(2, 1)
    recorder = Recorder.for_run(started)
    replayed = ReplayEndedEvent(id="replay/ended", run="run", event_time_us=0, observations=0)
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(Topics.of("run").partitions(1))
        await log.append([recorder.record(event) for event in (anchor, delta_of(anchor), replayed)])
        with pytest.raises(StallError) as caught:
            await conduct(log, started, stall_timeout_s=0.05)
    message = str(caught.value)
    assert f"{LANE}/s0/e0/R1 of agent.rag_raw (after {LANE}/s0/e0/T1)" in message
    assert f"{LANE}/delta/1 of agent.rag_raw (after A1_JAKE/segment/1)" in message


def test_an_answer_to_what_had_closed_before_a_restart_is_refused_unless_it_was_taken() -> None:
    anchor = anchor_of(segment=0)
    task = Conductor(started_with(1, 1), [anchor]).feed(delta_of(anchor))[0]
    assert isinstance(task, TaskEvent)
    response = response_to(task)
    for taken in ([], ["other"]):
        conductor = Conductor(started_with(1, 1), [anchor], closed={task.trajectory}, taken=taken)
        assert conductor.feed(delta_of(anchor)) == []
        with pytest.raises(InvariantError, match="no open trajectory"):
            conductor.feed(response)
    conductor = Conductor(started_with(1, 1), [anchor], closed={task.trajectory}, taken={response.id})
    assert conductor.feed(response) == []


async def conduct_until(
    log: SqliteLog, started: RunStartedEvent, kind: type[Event], count: int
) -> list[Event]:
    """Conduct until there are so many events of a kind on control or dead; then stop conducting. Gives those."""
    topics = Topics.of(started.run)
    found: list[Event] = []
    async with (
        anyio.create_task_group() as tasks,
        log.subscribe([topics.control, topics.dead]) as subscription,
    ):
        tasks.start_soon(partial(conduct, log, started, stall_timeout_s=30))
        with anyio.fail_after(30):
            while len(found) < count:
                events = decode_records(started.run, await subscription.poll())[0]
                found += [event for event, _ in events if isinstance(event, kind)]
        tasks.cancel_scope.cancel()
    return found


async def begin_again(log: SqliteLog, started: RunStartedEvent) -> None:
    """Conduct until all that the log holds has been dealt with."""
    control = Topics.of(started.run).control
    ready = [e async for e, _ in read_events(log, started.run, [control]) if isinstance(e, ReadyEvent)]
    await conduct_until(log, started, ReadyEvent, len(ready) + 1)


async def buried_when_closed(
    log: SqliteLog, started: RunStartedEvent, letter: Record, closed: int
) -> list[Event]:
    """Write a record once so many trajectories have closed, and conduct until something is buried. Gives that."""

    async def be_late() -> None:
        left = closed
        async with log.subscribe([Topics.of("run").control]) as subscription:
            while left > 0:
                events = decode_records("run", await subscription.poll())[0]
                left -= sum(isinstance(event, TrajectoryClosedEvent) for event, _ in events)
        await log.append([letter])

    async with anyio.create_task_group() as together:
        together.start_soon(be_late)
        return await conduct_until(log, started, DeadLetterEvent, 1)


@pytest.mark.parametrize("restart", [False, True])
async def test_late_answers_are_buried_also_after_a_restart(tmp_path: Path, restart: bool) -> None:
    """One trajectory is given up; the other goes through, so that its answers must be known again."""
    late, sound = anchor_of(segment=0, number=0), anchor_of(segment=0, number=1)
    started = replace(started_with(1, 2), attached=("rag_raw",), answer_timeout_s=0.5)
    recorder = Recorder.for_run(started)
    conductor = Conductor(started, [late, sound])
    asked = [event for event in conductor.feed(delta_of(late)) if isinstance(event, TaskEvent)]
    taken: list[Event] = []
    go_on(conductor, sound, [asked[1]], taken)
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(Topics.of("run").partitions(1))
        first = [late, sound, delta_of(late), *taken]
        await log.append([recorder.record(event) for event in first])
        letter = recorder.record(response_to(asked[0]))
        if restart:
            assert len(await conduct_until(log, started, TrajectoryClosedEvent, 2)) == 2
            await log.append([letter])
            dead = await conduct_until(log, started, DeadLetterEvent, 1)
        else:
            dead = await buried_when_closed(log, started, letter, 2)
    assert [event.reason for event in dead if isinstance(event, DeadLetterEvent)] == [
        f"no open trajectory {LANE}/s0/e0 (events: {LANE}/s0/e0/R1)"
    ]


async def test_a_delta_that_came_too_late_is_not_taken_after_a_restart_either(tmp_path: Path) -> None:
    """The conductor that begins again reads deltas first; the one before had read that the lane was given up."""
    anchor = anchor_of(segment=0)
    started = replace(started_with(1, 1), attached=("rag_raw",))
    recorder = Recorder.for_run(started)
    failed = LaneFailedEvent(
        id=f"{LANE}/failed", run="run", event_time_us=0, stream="A1_JAKE", lane=LANE, reason="gone"
    )
    topics = Topics.of("run")
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(topics.partitions(1))
        await log.append([recorder.record(event) for event in (anchor, failed)])
        await buried_when_closed(log, started, recorder.record(delta_of(anchor)), 1)
        await begin_again(log, started)
        written = [e async for e, _ in read_events(log, "run", [topics.control, topics.tasks, topics.dead])]
    kinds = sorted(kind_of(event) for event in written if not isinstance(event, ReadyEvent))
    assert kinds == ["dead_letter", "lane_failed", "trajectory_closed"]


async def test_what_an_attached_agent_says_again_was_taken_once(tmp_path: Path) -> None:
    anchor = anchor_of(segment=0)
    started = replace(started_with(1, 1), attached=("rag_raw",))
    recorder = Recorder.for_run(started)
    response = response_to(Conductor(started, [anchor]).feed(delta_of(anchor))[0])  # type: ignore[arg-type]
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(Topics.of("run").partitions(1))
        written = [anchor, replace(response, as_of=7), delta_of(anchor), delta_of(anchor)]
        written += [replace(response, text=text) for text in ("first", "second")]
        await log.append([recorder.record(event) for event in written])
        for _ in range(2):
            await begin_again(log, started)
        taken = [e async for e, _ in read_events(log, "run", [Topics.of("run").control])]
    assert [(e.id, e.offset) for e in taken if isinstance(e, TakenEvent)] == [
        (f"{LANE}/delta/0/taken", 0),
        (f"{LANE}/s0/e0/R1/taken", 1),
    ]


async def test_a_lane_whose_delta_was_refused_is_given_up_also_after_a_restart(tmp_path: Path) -> None:
    """The replayer may have counted it, and wait for its release."""
    anchor = anchor_of(segment=0)
    started = replace(started_with(2, 1), attached=("rag_raw",), answer_timeout_s=60.0)
    recorder = Recorder.for_run(started)
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(Topics.of("run").partitions(1))
        await log.append([recorder.record(e) for e in (anchor, replace(delta_of(anchor), event_time_us=7))])
        await conduct_until(log, started, DeadLetterEvent, 1)
        hasty = replace(started, answer_timeout_s=0.5)
        assert len(await conduct_until(log, hasty, LaneFailedEvent, 1)) == 1


async def test_what_an_attached_agent_says_under_another_s_id_is_buried(tmp_path: Path) -> None:
    anchor = anchor_of(segment=0)
    started = replace(started_with(1, 1), systems=("rogue", "rag_raw"), attached=("rogue", "rag_raw"))
    recorder, topics = Recorder.for_run(started), Topics.of("run")
    stolen = replace(delta_of(anchor, "rogue@A1_JAKE"), id=f"{LANE}/delta/0")
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(topics.partitions(1))
        await log.append([recorder.record(event) for event in (anchor, stolen, delta_of(anchor))])
        await begin_again(log, started)
        written = [e async for e, _ in read_events(log, "run", [topics.dead, topics.control])]
    assert [(e.offset, e.lane) for e in written if isinstance(e, TakenEvent)] == [(1, LANE)]
    (dead,) = [event for event in written if isinstance(event, DeadLetterEvent)]
    assert dead.offset == 0
    assert "must have the id rogue@A1_JAKE/delta/0" in dead.reason
