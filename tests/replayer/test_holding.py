"""How the replayer waits for lanes that are behind."""

from __future__ import annotations

import math
from typing import Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.lanes import ReplayOptions
from producers.lifelog import DAY1_US, SEGMENT_US
from producers.pacing import LaneProgress
from producers.replayer import ReplayStats, replay
from simulator.clock import Clock
from simulator.errors import StallError
from simulator.events import ObservationEvent, ReadyEvent, SegmentClosedEvent
from simulator.log.protocol import Record
from tests.memory_log import MemoryLog
from tests.replayer.helpers import RECORDER, RUN, TOPICS, delta, even_lifelog, hand_clock, released


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

    async def test_a_lane_that_is_rebuilt_does_not_stand(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now_s = 0.0
        monkeypatch.setattr(anyio, "current_time", lambda: now_s)
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
                await anyio.wait_all_tasks_blocked()
                now_s += 0.7
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
