"""The agent role in a run: what it does at the same time, in which order, and with what it can't read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import pytest

from adapters.memory import Answer, Delta, Request, Segment
from consumers import agent
from consumers.agent import run_agent
from producers.datasets import read_dataset
from producers.replayer import replay
from simulator.clock import Clock
from simulator.errors import ConfigError, InvariantError
from simulator.events import (
    SCHEMA_VERSION,
    CommittedEvent,
    DeadLetterEvent,
    DeltaEvent,
    Limits,
    ObservationEvent,
    ReadyEvent,
    ResponseEvent,
    RunStartedEvent,
    TrajectoryClosedEvent,
    encode,
)
from simulator.intake import decode_records
from simulator.log import SqliteLog
from simulator.log.protocol import Log, Record
from simulator.topics import Recorder, Topics
from tests.history import History
from tests.roles.harness import RUN, SMALL, run_all, started_for
from tests.roles.systems import Ledger


def ledger(lane: str, stream: str) -> Ledger:
    return Ledger()


async def test_branch_sees_its_snapshot_and_its_own_commit_alone(tmp_path: Path) -> None:
    history = await run_all(tmp_path, {"one": ledger, "two": ledger}, ablate_commit=True)
    assert history.findings == ()
    committed = {e.trajectory: [r.id for r in e.records] for e in history.of(CommittedEvent)}
    for response in history.of(ResponseEvent):
        assert response.as_of is not None
        expected = [f"s{segment}" for segment in range(response.as_of + 1)]
        if response.phase == "R2" and response.arm == "committed":
            expected += committed[response.trajectory]
        assert [record.id for record in response.retrieved] == expected, response.id


async def test_shared_memory_is_one_story_with_the_replayer_waiting(tmp_path: Path) -> None:
    history = await run_all(tmp_path, {"one": ledger, "two": ledger}, isolation="shared")
    assert history.findings == ()
    committed = {e.trajectory: [r.id for r in e.records] for e in history.of(CommittedEvent)}
    order: dict[str, list[str]] = {}
    for closed in history.of(TrajectoryClosedEvent):
        order.setdefault(closed.lane, []).append(closed.trajectory)
    segment_of = {r.trajectory: r.as_of for r in history.of(ResponseEvent)}
    for response in history.of(ResponseEvent):
        # all that was stored up to here, the commits between the segments, each where it happened
        expected: list[str] = []
        assert response.as_of is not None
        for segment in range(response.as_of + 1):
            expected.append(f"s{segment}")
            for trajectory in order[response.lane]:
                if segment_of[trajectory] == segment:
                    if trajectory == response.trajectory:
                        break
                    expected += committed[trajectory]
        if response.phase == "R2":
            expected += committed[response.trajectory]
        assert [record.id for record in response.retrieved] == expected, response.id


async def test_ingest_goes_on_while_trajectories_run(tmp_path: Path) -> None:
    dataset = read_dataset(SMALL)
    last = {stream: len(lifelog.segments) - 1 for stream, lifelog in dataset.lifelogs.items()}
    asked = {stream: anyio.Event() for stream in last}
    done = {stream: anyio.Event() for stream in last}

    class Patient(Ledger):
        """Answers nothing before its stream is ingested to the end, and is asked before that."""

        def __init__(self, stream: str) -> None:
            super().__init__()
            self.stream = stream

        async def ingest(self, segment: Segment) -> Delta:
            if segment.segment == last[self.stream]:
                await asked[self.stream].wait()
            delta = await super().ingest(segment)
            if segment.segment == last[self.stream]:
                done[self.stream].set()
            return delta

        async def answer(self, request: Request) -> Answer:
            asked[self.stream].set()
            await done[self.stream].wait()
            return await super().answer(request)

    history = await run_all(tmp_path, {"patient": lambda _, stream: Patient(stream)}, data=dataset)
    assert history.findings == ()
    assert not any(response.error for response in history.of(ResponseEvent))


async def test_slow_lane_holds_the_replay_and_not_the_other_lanes(tmp_path: Path) -> None:
    segments, max_ahead = 12, 3
    reached = [anyio.Event() for _ in range(segments)]
    ahead = []

    class Fast(Ledger):
        async def ingest(self, segment: Segment) -> Delta:
            reached[segment.segment].set()
            return await super().ingest(segment)

    class Slow(Ledger):
        """Waits for the fast lane to come as far as the replayer may let it, and for all to stand still."""

        async def ingest(self, segment: Segment) -> Delta:
            await reached[min(segment.segment + max_ahead - 1, segments - 1)].wait()
            await anyio.wait_all_tasks_blocked()
            ahead.append(sum(event.is_set() for event in reached) - 1 - segment.segment)
            return await super().ingest(segment)

    memories = {"slow": lambda *_: Slow(), "fast": lambda *_: Fast()}
    data = "synthetic:seed=4,wearers=1,segments_per_day=12,observations_per_segment=3,anchors_per_day=0"
    history = await run_all(tmp_path, memories, data=data, limits=Limits(segments_ahead=max_ahead))
    assert history.findings == ()
    assert max(ahead) == max_ahead - 1


async def test_slow_trajectories_leave_other_lanes_their_share_of_the_places(tmp_path: Path) -> None:
    """Twelve trajectories of a slow lane wait for places before the first of a fast one comes. After the first four,
    the slow lane answers nothing until the fast one has ended them all: first come, first served would never end."""
    segments, per_segment, places = 3, 4, 4
    slow_ingested, fast_ingested, fast_done = anyio.Event(), anyio.Event(), anyio.Event()
    answered: Counter[str] = Counter()

    class Slow(Ledger):
        async def ingest(self, segment: Segment) -> Delta:
            if segment.segment == segments - 1:
                slow_ingested.set()
            return await super().ingest(segment)

        async def answer(self, request: Request) -> Answer:
            await fast_ingested.wait()
            if request.phase == "R1":
                answered["slow"] += 1
                if answered["slow"] > places:
                    answered["blocked"] += not fast_done.is_set()
                    await fast_done.wait()
            return await super().answer(request)

    class Fast(Ledger):
        async def ingest(self, segment: Segment) -> Delta:
            await slow_ingested.wait()
            if segment.segment == segments - 1:
                fast_ingested.set()
            return await super().ingest(segment)

        async def answer(self, request: Request) -> Answer:
            answered["fast"] += request.phase == "R2"
            if answered["fast"] == segments * per_segment:
                fast_done.set()
            return await super().answer(request)

    data = (
        f"synthetic:seed=4,wearers=1,segments_per_day={segments},observations_per_segment=12,"
        f"anchors_per_day={segments * per_segment}"
    )
    memories = {"slow": lambda *_: Slow(), "fast": lambda *_: Fast()}
    limits = Limits(open_trajectories=places, calls_in_flight=2 * places)
    history = await run_all(tmp_path, memories, data=data, limits=limits)
    assert history.findings == ()
    assert not any(response.error for response in history.of(ResponseEvent))
    assert 0 < answered["blocked"] < places


def junk(topics: Topics) -> dict[str, list[bytes]]:
    other = ObservationEvent(
        id="o", run="another", event_time_us=0, stream="A", seq=0, source="dialog", text="not ours"
    )
    newer = encode(other).replace(b'"run":"another"', f'"run":"{RUN}","v":{SCHEMA_VERSION + 1}'.encode())
    values = [b"\xff\x00 no json", b"{}", b'{"kind":"unheard_of"}', encode(other), newer]
    return {topic: values for topic in topics if topic != topics.dead}


async def test_what_nobody_can_decode_is_buried_whole_and_once(tmp_path: Path) -> None:
    topics = Topics.of(RUN)
    written = junk(topics)

    async def write_junk(log: Log, started: RunStartedEvent) -> None:
        for partition in (0, 1):
            await log.append(
                [
                    Record(topic, b"key", value, 1_000, (), partition)
                    for topic, values in written.items()
                    for value in values
                    if partition < topics.partitions(started.partitions)[topic]
                ]
            )

    history = await run_all(tmp_path, {"one": ledger, "two": ledger}, before=write_junk)
    assert history.findings == ()
    letters = history.of(DeadLetterEvent)
    assert max(Counter(letter.id for letter in letters).values()) == 1
    partitions = topics.partitions(2)
    assert Counter((letter.topic, letter.value) for letter in letters) == Counter(
        {(topic, value): partitions[topic] for topic, values in written.items() for value in values}
    )
    assert all(letter.reason and letter.key == b"key" for letter in letters)
    reasons = {letter.value: letter.reason for letter in letters}
    assert (
        reasons[
            encode(
                ObservationEvent(
                    id="o",
                    run="another",
                    event_time_us=0,
                    stream="A",
                    seq=0,
                    source="dialog",
                    text="not ours",
                )
            )
        ]
        == f"belongs to run 'another', not to {RUN!r}"
    )


async def test_error_of_making_a_memory_ends_the_run_with_that_error(tmp_path: Path) -> None:
    def refuses(lane: str, stream: str) -> Ledger:
        if lane.endswith("BORIS"):
            raise ConfigError("no such model")
        return Ledger()

    with pytest.raises(ExceptionGroup) as caught:
        await run_all(tmp_path, {"one": ledger, "two": refuses})
    errors, others = caught.value.split(ConfigError)
    assert errors is not None
    assert others is None
    async with SqliteLog.open(tmp_path / "log.db") as log:  # nothing was replayed to the others
        assert set((await log.end_offsets([Topics.of(RUN).observations])).values()) == {0}


async def test_stream_that_is_not_of_the_run_is_a_broken_invariant(tmp_path: Path) -> None:
    started = started_for(read_dataset(SMALL), ["one"], partitions=1)
    topics = Topics.of(RUN)
    stray = ObservationEvent(
        id="stray", run=RUN, event_time_us=0, stream="NOBODY", seq=0, source="dialog", text="hello"
    )
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(topics.partitions(1))
        await log.append([Recorder(RUN, {"NOBODY": 0}).record(stray)])
        with pytest.raises(ExceptionGroup) as caught:
            await run_agent(log, started, "one", ledger)
        assert caught.group_contains(InvariantError, match="no stream NOBODY")


async def test_lanes_with_no_anchor_end_when_all_is_ingested(tmp_path: Path) -> None:
    data = "synthetic:seed=4,wearers=3,segments_per_day=5,observations_per_segment=3,anchors_per_day=0"
    history = await run_all(tmp_path, {"one": ledger}, data=data)
    assert history.findings == ()
    assert len(history.of(DeltaEvent)) == 15


async def test_an_agent_that_rebuilds_its_lanes_says_that_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_ALIVE_S", 0.0)
    dataset = read_dataset(SMALL)
    started = started_for(dataset, ["one"])
    segments = sum(started.segments.values())
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(Topics.of(RUN).partitions(2))
        recorder = Recorder.for_run(started)
        await log.append([recorder.record(started)])
        await replay(log, recorder, list(dataset.lifelogs.values()), Clock(0, float("inf")))

        async def run_until(kind: type[DeltaEvent | ReadyEvent], count: int) -> None:
            topics = [Topics.of(RUN).deltas, Topics.of(RUN).control]
            async with log.subscribe(topics) as subscription, anyio.create_task_group() as tasks:
                tasks.start_soon(run_agent, log, started, "one", ledger)
                with anyio.fail_after(30):
                    while count > 0:
                        events, _ = decode_records(RUN, await subscription.poll())
                        count -= sum(isinstance(event, kind) for event, _ in events)
                tasks.cancel_scope.cancel()

        await run_until(DeltaEvent, segments)
        assert len((await History.read(log, RUN)).of(ReadyEvent)) == 1
        await run_until(ReadyEvent, 2 + segments)
        assert len((await History.read(log, RUN)).of(DeltaEvent)) == segments
