"""What the replayer publishes, what a cut leaves behind, and whom it waits for before it begins."""

from __future__ import annotations

import math
from pathlib import Path

import anyio
import pytest

from producers.lanes import ReplayOptions
from producers.lifelog import DAY1_US, SEGMENT_US
from producers.replayer import ReplayProgress, ReplayStats, replay
from producers.timeline import timeline
from simulator.clock import Clock
from simulator.errors import ConfigError, InvariantError, StallError
from simulator.events import Event, ReadyEvent, ReplayEndedEvent, decode
from simulator.intake import read_to_end
from simulator.log.protocol import Log, TopicPartition
from simulator.log.sqlite import SqliteLog
from tests.memory_log import MemoryLog
from tests.replayer.helpers import RECORDER, RUN, TOPICS, even_lifelog


async def published(log: Log) -> list[Event]:
    events = [decode(r.value) async for r in read_to_end(log, (TOPICS.observations,))]
    return sorted(events, key=lambda event: (event.event_time_us, event.stream))


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


def test_a_batch_shares_its_headers_and_is_what_single_records_are() -> None:
    events = list(timeline([even_lifelog("A", 2, 3)], RUN))
    records = RECORDER.records(events, wall_us=5)
    assert records == [RECORDER.record(event, wall_us=5) for event in events]
    assert records[0].headers is records[1].headers
