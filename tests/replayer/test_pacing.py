"""When the replayer publishes: by the clock, in whole batches, and how late."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from producers.lanes import ReplayOptions
from producers.lifelog import DAY1_US, SEGMENT_US
from producers.pacing import LatenessMeter
from producers.replayer import ReplayProgress, replay
from producers.timeline import timeline
from simulator.log.protocol import Record
from tests.memory_log import MemoryLog
from tests.replayer.helpers import RECORDER, RUN, TOPICS, even_lifelog, hand_clock


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


def test_lateness_percentiles() -> None:
    meter = LatenessMeter()
    assert meter.summary() is None
    assert meter.add([0.0] * 99, 0.001) == 1000
    meter.add([0.0], 0.5)
    late = meter.summary()
    assert late is not None
    assert (late.n, late.p50_us, late.p90_us, late.max_us) == (100, 1000, 1000, 500_000)
