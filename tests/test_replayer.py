"""The replayer: what it publishes and when, what it waits for, and what a cut leaves behind."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.lanes import ReplayOptions
from producers.lifelog import DAY1_US, SEGMENT_US, Lifelog, RawObservation, SegmentSpan
from producers.pacing import LaneProgress, LatenessMeter
from producers.replayer import ReplayProgress, ReplayStats, replay
from producers.timeline import timeline
from simulator.clock import Clock
from simulator.errors import ConfigError, InvariantError, StallError
from simulator.events import (
    DeltaEvent,
    Event,
    ObservationEvent,
    ReadyEvent,
    ReplayEndedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    decode,
)
from simulator.intake import read_to_end
from simulator.log.protocol import Log, Record, StoredRecord, Subscription, TopicPartition
from simulator.log.sqlite import SqliteLog
from simulator.topics import Recorder, Topics
from tests.test_clock import HandReal

RUN = "r"
TOPICS = Topics.of(RUN)
RECORDER = Recorder(RUN, {"A": 0, "B": 1})


def even_lifelog(stream: str, segments: int, per_segment: int) -> Lifelog:
    """Observations at an even pace, from DAY1 00:00 on."""
    step_us = SEGMENT_US // per_segment
    observations = [
        RawObservation(DAY1_US + i * step_us, "dialog", f"{stream} says {i}", "DAY1")
        for i in range(segments * per_segment)
    ]
    spans = [
        SegmentSpan(
            "DAY1",
            i,
            DAY1_US + i * SEGMENT_US,
            DAY1_US + (i + 1) * SEGMENT_US,
            i * per_segment,
            (i + 1) * per_segment - 1,
        )
        for i in range(segments)
    ]
    return Lifelog(stream, observations, spans)


class MemorySubscription:
    """Reads a `MemoryLog` from the beginning."""

    def __init__(self, log: MemoryLog, topics: Sequence[str]) -> None:
        self._log = log
        self._next = {
            TopicPartition(topic, partition): 0 for topic in topics for partition in range(log.partitions)
        }
        self.assignment = frozenset(self._next)
        self._gained = self.assignment

    def gained(self) -> frozenset[TopicPartition]:
        gained, self._gained = self._gained, frozenset()
        return gained

    async def poll(self, *, max_records: int = 1000, timeout_s: float = 1.0) -> Sequence[StoredRecord]:
        await anyio.lowlevel.checkpoint()
        if not (found := self._take(max_records)) and timeout_s:
            with anyio.move_on_after(timeout_s):
                await self._log.appended.wait()
            found = self._take(max_records)
        return found

    def _take(self, max_records: int) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        for tp, position in self._next.items():
            new = self._log.records.get(tp, [])[position : position + max_records - len(found)]
            self._next[tp] += len(new)
            found += new
        return found

    async def position(self, tp: TopicPartition) -> int:
        return self._next[tp]

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        self._next[tp] = offset

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        raise NotImplementedError

    async def transact(self, records: Sequence[Record], offsets: Mapping[TopicPartition, int]) -> None:
        if records:
            raise NotImplementedError

    async def guard(self, topics: Iterable[str]) -> None:
        pass

    async def append(self, records: Sequence[Record]) -> None:
        await self._log.append(records)


class MemoryLog:
    """What the replayer needs of a log, in memory; keeps batches apart; `cost` is called in each append."""

    partitions = 2

    def __init__(self, cost: Callable[[Sequence[Record]], None] = lambda records: None) -> None:
        self._cost = cost
        self.batches: list[list[Record]] = []
        self.records: dict[TopicPartition, list[StoredRecord]] = {}
        self.appended = anyio.Event()

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        raise NotImplementedError

    async def topics(self) -> dict[str, int]:
        raise NotImplementedError

    async def exists(self, topic: str) -> bool:
        raise NotImplementedError

    async def append(self, records: Sequence[Record]) -> None:
        await anyio.lowlevel.checkpoint()
        self._cost(records)
        self.batches.append(list(records))
        for topic, key, value, timestamp_ms, headers, partition in records:
            place = TopicPartition(topic, partition or 0)
            stored = self.records.setdefault(place, [])
            stored.append(StoredRecord(topic, partition or 0, len(stored), key, value, timestamp_ms, headers))
        self.appended.set()
        self.appended = anyio.Event()

    async def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        wanted = set(topics)
        return {tp: len(stored) for tp, stored in self.records.items() if tp.topic in wanted}

    async def offset_for_time(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        raise NotImplementedError

    async def committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        group: str | None = None,
        start: Literal["earliest", "latest"] | Mapping[TopicPartition, int] = "earliest",
        exclusive: bool = False,
    ) -> AbstractAsyncContextManager[Subscription]:
        @asynccontextmanager
        async def subscribed() -> AsyncIterator[Subscription]:
            yield MemorySubscription(self, tuple(topics))

        return subscribed()

    async def aclose(self) -> None:
        raise NotImplementedError

    def events(self, topic: str) -> list[Event]:
        """Everything on a topic, in the order in which it was appended."""
        return [decode(r.value) for batch in self.batches for r in batch if r.topic == topic]


def hand_clock(rate: float) -> tuple[Clock, HandReal]:
    real = HandReal()
    return Clock(0, rate, real=real), real


async def published(log: Log) -> list[Event]:
    events = [decode(r.value) async for r in read_to_end(log, (TOPICS.observations,))]
    return sorted(events, key=lambda event: (event.event_time_us, event.stream))


def delta(lane: str, segment: int) -> DeltaEvent:
    stream = lane.partition("@")[2]
    return DeltaEvent(
        id=f"{lane}/delta/{segment}", run=RUN, event_time_us=0, stream=stream, lane=lane, segment=segment
    )


def released(lane: str, segment: int) -> SegmentReleasedEvent:
    stream = lane.partition("@")[2]
    return SegmentReleasedEvent(
        id=f"{lane}/released/{segment}", run=RUN, event_time_us=0, stream=stream, lane=lane, segment=segment
    )


class TestPacing:
    @pytest.mark.parametrize("cost_us", [0, 90, 400, 3_000, 20_000])
    async def test_10_000_observations_end_on_time_whatever_each_append_costs(self, cost_us: int) -> None:
        """Ideal: 10,000 observations in 10 s, one each millisecond."""
        clock, real = hand_clock(300)
        began_s = real.now()

        def cost(records: Sequence[Record]) -> None:
            real.s += cost_us / 1e6

        log = MemoryLog(cost)
        stats = await replay(log, RECORDER, [even_lifelog("A", 10, 1000)], clock)
        assert stats.observations == 10_000
        took_s = real.now() - began_s
        assert 10.0 - 1e-6 <= took_s <= 10.0 * 1.01
        assert stats.wall_s == pytest.approx(took_s)
        assert stats.achieved_rate == pytest.approx(300, rel=0.01)
        # an event waits for the append under way and then for its own
        assert stats.lateness is not None
        assert stats.lateness.n == 10_011
        # what is due within two milliseconds shares an append
        assert stats.lateness.max_us <= 2 * cost_us + 2_001

    async def test_nothing_is_published_before_it_is_due(self) -> None:
        clock, real = hand_clock(60)
        began_s = real.now()
        early: list[Record] = []

        def cost(records: Sequence[Record]) -> None:
            real.s += 0.7
            due_ms = DAY1_US // 1000 + (real.s - began_s) * 1000 * 60
            early.extend(record for record in records if record.timestamp_ms > due_ms)

        await replay(MemoryLog(cost), RECORDER, [even_lifelog("A", 4, 50)], clock)
        assert not early

    async def test_records_say_when_they_were_due(self) -> None:
        clock, real = hand_clock(300)

        def cost(records: Sequence[Record]) -> None:
            real.s += 0.01

        log = MemoryLog(cost)
        await replay(log, RECORDER, [even_lifelog("A", 1, 1000)], clock)
        observed = [
            record for batch in log.batches for record in batch if record.topic == TOPICS.observations
        ]
        headers = [{name: int(value) for name, value in r.headers if name != "kind"} for r in observed]
        assert all(h["due_us"] <= h["wall_us"] <= h["due_us"] + 20_001 for h in headers)

    async def test_an_infinite_rate_fills_batches_and_has_no_due_times(self) -> None:
        log = MemoryLog()
        clock, real = hand_clock(math.inf)
        stats = await replay(log, RECORDER, [even_lifelog("A", 5, 500)], clock, ReplayOptions(max_batch=1000))
        assert [len(batch) for batch in log.batches] == [1000, 1000, 506, 1]
        assert stats.lateness is None
        assert all(name != "due_us" for batch in log.batches for r in batch for name, _ in r.headers)
        assert clock.now_us() == DAY1_US + 5 * SEGMENT_US
        assert real.s == 1000.0

    async def test_pause_rate_and_jump_while_it_runs(self) -> None:
        """Whatever is done to the clock, everything is published once and in order."""
        clock, real = hand_clock(300)
        appends = 0

        def cost(records: Sequence[Record]) -> None:
            nonlocal appends
            appends += 1
            match appends:
                case 50:
                    clock.set_rate(3000)
                case 100:
                    clock.pause()
                    real.s += 5
                    clock.resume()
                case 150:
                    clock.jump(clock.now_us() - 60_000_000)
                case 200:
                    clock.jump(clock.now_us() + 600_000_000)
                case 250:
                    clock.set_rate(math.inf)

        log = MemoryLog(cost)
        lifelog = even_lifelog("A", 10, 100)
        stats = await replay(log, RECORDER, [lifelog], clock)
        assert stats.events == 1011
        assert appends > 250
        assert log.events(TOPICS.observations) == list(timeline([lifelog], RUN))

    async def test_progress_tells_the_end_and_keeps_to_ten_a_second(self) -> None:
        clock, real = hand_clock(300)
        told: list[tuple[float, ReplayProgress]] = []
        await replay(
            MemoryLog(),
            RECORDER,
            [even_lifelog("A", 10, 100)],
            clock,
            progress=lambda p: told.append((real.s, p)),
        )
        assert 90 <= len(told) <= 102
        assert told[-1][1] == ReplayProgress(1000, 1000, DAY1_US + 10 * SEGMENT_US, 0)
        done = [p.observations for _, p in told]
        assert done == sorted(done)


class TestEvents:
    async def test_the_whole_timeline_then_the_end(self, tmp_path: Path) -> None:
        lifelogs = [even_lifelog("A", 3, 7), even_lifelog("B", 2, 5)]
        async with SqliteLog.open(tmp_path / "log.db") as log:
            await log.create_topics(TOPICS.partitions(2))
            stats = await replay(log, RECORDER, lifelogs, Clock(0, math.inf))
            expected = sorted(timeline(lifelogs, RUN), key=lambda e: (e.event_time_us, e.stream))
            assert await published(log) == expected
            control = [decode(r.value) async for r in read_to_end(log, (TOPICS.control,))]
        assert control == [
            ReplayEndedEvent(
                id="replay/ended",
                run=RUN,
                event_time_us=DAY1_US + 3 * SEGMENT_US,
                causes=("B/ended", "A/ended"),
                observations=31,
            )
        ]
        assert (stats.observations, stats.segments, stats.events) == (31, 5, 38)
        assert stats.simulated_s == 900

    async def test_nothing_in_range_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match="no whole segment"):
            await replay(
                MemoryLog(),
                RECORDER,
                [even_lifelog("A", 3, 7)],
                Clock(0, math.inf),
                ReplayOptions(start_us=DAY1_US + 3 * SEGMENT_US),
            )

    @pytest.mark.parametrize("rate", [300_000.0, math.inf])
    async def test_cancelled_it_leaves_whole_batches_and_goes_on_after_them(
        self, tmp_path: Path, rate: float
    ) -> None:
        lifelogs = [even_lifelog("A", 40, 100), even_lifelog("B", 40, 90)]
        options = ReplayOptions(max_batch=64)
        counts: list[int] = []
        async with SqliteLog.open(tmp_path / "log.db") as log:
            await log.create_topics(TOPICS.partitions(2))
            for stop_after in (500, 3000, math.inf):
                with anyio.CancelScope() as scope:

                    def stop(
                        p: ReplayProgress, scope: anyio.CancelScope = scope, stop_after: float = stop_after
                    ) -> None:
                        if p.observations >= stop_after:
                            scope.cancel()

                    await replay(log, RECORDER, lifelogs, Clock(0, rate), options, progress=stop)
                counts.append(len(await published(log)))
            expected = sorted(timeline(lifelogs, RUN), key=lambda e: (e.event_time_us, e.stream))
            assert await published(log) == expected
            assert counts == sorted(counts)
            again = await replay(log, RECORDER, lifelogs, Clock(0, rate), options)
            assert again.events == 0
            assert (await log.end_offsets((TOPICS.control,)))[TopicPartition(TOPICS.control, 0)] == 1

    async def test_goes_on_where_a_batch_is_there_in_part(self, tmp_path: Path) -> None:
        lifelogs = [even_lifelog("A", 4, 10), even_lifelog("B", 4, 9)]
        expected = sorted(timeline(lifelogs, RUN), key=lambda e: (e.event_time_us, e.stream))
        async with SqliteLog.open(tmp_path / "log.db") as log:
            await log.create_topics(TOPICS.partitions(2))
            # Kafka writes each partition by itself: B's part of a batch is in the log, A's is not
            there = [e for e in expected if e.stream == "A"][:13] + [e for e in expected if e.stream == "B"][
                :25
            ]
            await log.append(RECORDER.records(there))
            await replay(log, RECORDER, lifelogs, Clock(0, math.inf))
            found = await published(log)
        for stream in "AB":
            assert [e for e in found if e.stream == stream] == [e for e in expected if e.stream == stream]

    async def test_refuses_to_go_on_with_another_replay(self) -> None:
        log = MemoryLog()
        await replay(log, RECORDER, [even_lifelog("A", 3, 7)], Clock(0, math.inf))
        with pytest.raises(InvariantError, match="another replay"):
            await replay(log, RECORDER, [even_lifelog("A", 2, 7)], Clock(0, math.inf))


class TestBarrier:
    async def test_waits_for_every_required_role(self) -> None:
        log = MemoryLog()
        options = ReplayOptions(required=("agent a", "judge"))
        finished: list[ReplayStats] = []

        async def run() -> None:
            finished.append(
                await replay(log, RECORDER, [even_lifelog("A", 1, 5)], Clock(0, math.inf), options)
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            for role in ("judge", "agent a"):
                await anyio.wait_all_tasks_blocked()
                assert not log.events(TOPICS.observations)
                ready = ReadyEvent(id=f"ready/{role}", run=RUN, event_time_us=0, role=role)
                await log.append([RECORDER.record(ready)])
        assert finished[0].observations == 5

    async def test_names_who_is_missing(self) -> None:
        log = MemoryLog()
        ready = ReadyEvent(id="ready/judge", run=RUN, event_time_us=0, role="judge")
        await log.append([RECORDER.record(ready)])
        options = ReplayOptions(required=("agent a", "judge", "agent b"), ready_timeout_s=0.01)
        with pytest.raises(StallError, match=r"missing: ready/agent a of agent a .*ready/agent b"):
            await replay(log, RECORDER, [even_lifelog("A", 1, 5)], Clock(0, math.inf), options)
        assert not log.events(TOPICS.observations)


async def lane(log: MemoryLog, name: str, segments: int, *, release: bool) -> int:
    """A lane that answers each closed segment of its stream once nobody else has anything left to do; gives
    the most closed segments that it saw waiting."""
    stream, most = name.partition("@")[2], 0
    for i in range(segments):
        await anyio.wait_all_tasks_blocked()
        closed = [
            e
            for e in log.events(TOPICS.observations)
            if isinstance(e, SegmentClosedEvent) and e.stream == stream
        ]
        most = max(most, len(closed) - i)
        assert len(closed) > i
        await log.append([RECORDER.record(delta(name, i))])
        if release:
            await anyio.wait_all_tasks_blocked()
            opened = [
                e
                for e in log.events(TOPICS.observations)
                if isinstance(e, ObservationEvent) and e.stream == stream and e.seq >= (i + 1) * 5
            ]
            assert not opened
            await log.append([RECORDER.record(released(name, i))])
    return most


class TestHold:
    @pytest.mark.parametrize("rate", [3000.0, math.inf])
    async def test_lanes_are_never_further_behind_than_max_ahead(self, rate: float) -> None:
        clock, _ = hand_clock(rate)
        log, most = MemoryLog(), 0
        options = ReplayOptions(lanes={"A": ["x@A"]}, max_ahead=3)
        finished: list[ReplayStats] = []

        async def run() -> None:
            finished.append(await replay(log, RECORDER, [even_lifelog("A", 12, 5)], clock, options))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            most = await lane(log, "x@A", 12, release=False)
        assert most == 3
        assert finished[0].max_lag_segments == 2
        assert finished[0].segments == 12

    @pytest.mark.parametrize("rate", [3000.0, math.inf])
    async def test_segments_that_nobody_releases_hold_the_replay_or_are_only_counted(
        self, rate: float
    ) -> None:
        for policy in ("hold", "run"):
            log = MemoryLog()
            await log.append([RECORDER.record(delta("x@A", segment)) for segment in range(12)])
            options = ReplayOptions(
                lanes={"A": ["x@A"]}, max_unreleased=3, policy=policy, stall_timeout_s=0.001
            )
            clock, _ = hand_clock(rate)
            if policy == "hold":
                with pytest.raises(
                    StallError, match=r"missing: x@A/released/0 of conductor \(after x@A/delta/0\)"
                ):
                    await replay(log, RECORDER, [even_lifelog("A", 12, 5)], clock, options)
            else:
                stats = await replay(log, RECORDER, [even_lifelog("A", 12, 5)], clock, options)
                assert (stats.segments, stats.max_lag_segments, stats.max_unreleased_segments) == (12, 0, 11)

    async def test_shared_publishes_a_segment_after_the_release_of_the_one_before(self) -> None:
        log = MemoryLog()
        options = ReplayOptions(lanes={"A": ["x@A"]}, isolation="shared")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replay, log, RECORDER, [even_lifelog("A", 4, 5)], Clock(0, math.inf), options)
            assert await lane(log, "x@A", 4, release=True) == 1

    async def test_time_waits_and_held_time_is_no_lateness(self) -> None:
        clock, real = hand_clock(300)
        log = MemoryLog()
        options = ReplayOptions(lanes={"A": ["x@A"]}, max_ahead=1)
        finished: list[ReplayStats] = []

        async def run() -> None:
            finished.append(await replay(log, RECORDER, [even_lifelog("A", 3, 300)], clock, options))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            for i in range(3):
                await anyio.wait_all_tasks_blocked()
                if i < 2:
                    assert clock.paused
                    real.s += 100
                await log.append([RECORDER.record(delta("x@A", i))])
        stats = finished[0]
        assert not clock.paused
        assert stats.held_s == pytest.approx(200)
        assert stats.wall_s == pytest.approx(203)
        assert stats.lateness is not None
        assert stats.lateness.max_us <= 1

    async def test_a_lane_that_stands_is_named(self) -> None:
        log = MemoryLog()
        options = ReplayOptions(lanes={"A": ["x@A", "y@A"]}, max_ahead=2, stall_timeout_s=0.01)
        await log.append([RECORDER.record(delta("x@A", i)) for i in range(9)])
        clock = Clock(0, math.inf)
        with pytest.raises(StallError, match=r"missing: y@A/delta/0 of agent.y \(after A/segment/0\)$"):
            await replay(log, RECORDER, [even_lifelog("A", 9, 5)], clock, options)
        assert not clock.paused

    async def test_a_lane_that_is_rebuilt_does_not_stand(self) -> None:
        log, finished = MemoryLog(), []
        options = ReplayOptions(lanes={"A": ["x@A"]}, max_ahead=1, stall_timeout_s=0.8)
        ready = ReadyEvent(id="ready/agent.x", run=RUN, event_time_us=0, role="agent.x")

        async def run() -> None:
            finished.append(
                await replay(log, RECORDER, [even_lifelog("A", 2, 5)], Clock(0, math.inf), options)
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            for _ in range(12):
                await anyio.sleep(0.1)
                await log.append([RECORDER.record(ready)])
            await log.append([RECORDER.record(delta("x@A", i)) for i in range(2)])
        assert finished[0].segments == 2

    async def test_run_lets_time_go_on_and_reports_the_lag(self) -> None:
        clock, _ = hand_clock(3000)
        options = ReplayOptions(policy="run", lanes={"A": ["x@A"]}, max_ahead=2)
        stats = await replay(MemoryLog(), RECORDER, [even_lifelog("A", 9, 5)], clock, options)
        assert stats.segments == 9
        assert stats.max_lag_segments == 8
        assert stats.held_s == 0

    async def test_a_later_start_waits_for_its_own_segments_only(self) -> None:
        options = ReplayOptions(lanes={"A": ["x@A"]}, max_ahead=2, start_us=DAY1_US + 7 * SEGMENT_US)
        stats = await replay(MemoryLog(), RECORDER, [even_lifelog("A", 9, 5)], Clock(0, math.inf), options)
        assert stats.segments == 2

    async def test_undecodable_records_move_no_lane(self) -> None:
        log = MemoryLog()
        await log.append([Record(TOPICS.deltas, b"x@A", b"{", 0, (), 0)])
        options = ReplayOptions(lanes={"A": ["x@A"]}, max_ahead=1, stall_timeout_s=0.01)
        with pytest.raises(StallError, match=r"missing: x@A/delta/0 of agent\.x"):
            await replay(log, RECORDER, [even_lifelog("A", 2, 5)], Clock(0, math.inf), options)


class TestLaneProgress:
    def test_old_news_and_other_lanes_move_nothing(self) -> None:
        progress = LaneProgress({"A": ["x@A"]}, max_ahead=1)
        assert progress.apply(delta("x@A", 0))
        assert not progress.apply(delta("x@A", 0))
        assert not progress.apply(delta("other@A", 5))
        assert not progress.apply(ReadyEvent(id="ready", run=RUN, event_time_us=0, role="agent"))
        assert progress.may_publish("A", 1)
        assert not progress.may_publish("A", 2)
        assert progress.lag("A", 2) == 1

    @given(
        st.lists(st.tuples(st.sampled_from(["x@A", "y@A", "z@B"]), st.booleans()), max_size=60),
        st.integers(1, 5),
        st.none() | st.integers(1, 5),
        st.sampled_from(["branch", "shared"]),
    )
    def test_publishes_only_what_every_lane_of_the_stream_allows(
        self,
        moves: list[tuple[str, bool]],
        max_ahead: int,
        max_unreleased: int | None,
        isolation: Literal["branch", "shared"],
    ) -> None:
        progress = LaneProgress(
            {"A": ["x@A", "y@A"], "B": ["z@B"]},
            isolation=isolation,
            max_ahead=max_ahead,
            max_unreleased=max_unreleased,
        )
        held = 1 if isolation == "shared" else 100 if max_unreleased is None else max_unreleased
        deltas, releases = dict.fromkeys(("x@A", "y@A", "z@B"), 0), dict.fromkeys(("x@A", "y@A", "z@B"), 0)
        for name, is_delta in moves:
            counts = deltas if is_delta else releases
            progress.apply((delta if is_delta else released)(name, counts[name]))
            counts[name] += 1
            for stream, lanes in (("A", ("x@A", "y@A")), ("B", ("z@B",)), ("C", ())):
                for segment in range(8):
                    owing = [n for n in lanes if deltas[n] < segment - max_ahead + 1]
                    holding = [n for n in lanes if releases[n] < segment - held + 1]
                    assert progress.may_publish(stream, segment) == (not owing and not holding)
                    assert bool(progress.waits_for(stream, segment)) == bool(owing or holding)
                    # what a delta can't be taken of is not waited for as a release
                    named = progress.owing_before(stream, segment), progress.holding_before(stream, segment)
                    assert set(named[0] + named[1]) == {*owing, *holding}
                    assert not set(named[1]) & {n for n in lanes if deltas[n] < segment - held + 1}


def test_lateness_percentiles() -> None:
    meter = LatenessMeter()
    assert meter.summary() is None
    assert meter.add([0.0] * 99, 0.001) == 1000
    meter.add([0.0], 0.5)
    late = meter.summary()
    assert late is not None
    assert (late.n, late.p50_us, late.p90_us, late.max_us) == (100, 1000, 1000, 500_000)


def test_a_batch_shares_its_headers_and_is_what_single_records_are() -> None:
    events = list(timeline([even_lifelog("A", 2, 3)], RUN))
    records = RECORDER.records(events, wall_us=5)
    assert records == [RECORDER.record(event, wall_us=5) for event in events]
    assert records[0].headers is records[1].headers
