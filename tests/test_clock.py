"""The clock under an injected real time: what it says, when sleepers come back, and that nothing drifts."""

from __future__ import annotations

import math
from fractions import Fraction

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.clock import Clock, Wake
from simulator.errors import ConfigError

START_US = 1_755_302_400_000_000


class HandReal:
    """Real time that moves when told to, and by exactly as much as a sleeper asks for."""

    def __init__(self) -> None:
        self.s = 1000.0

    def now(self) -> float:
        return self.s

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        if event.is_set():
            return
        if seconds == math.inf:
            await event.wait()
        else:
            self.s += seconds


def clock_at(rate: float) -> tuple[Clock, HandReal]:
    real = HandReal()
    return Clock(START_US, rate, real=real), real


class TestNow:
    def test_runs_at_its_rate_from_its_start(self) -> None:
        clock, real = clock_at(60)
        assert clock.now_us() == START_US
        real.s += 2
        assert clock.now_us() == START_US + 120_000_000

    def test_goes_on_from_where_it_was_when_the_rate_changes(self) -> None:
        clock, real = clock_at(10)
        real.s += 1
        clock.set_rate(2)
        assert clock.now_us() == START_US + 10_000_000
        real.s += 1
        assert clock.now_us() == START_US + 12_000_000

    def test_stands_while_any_holder_pauses(self) -> None:
        clock, real = clock_at(1)
        clock.pause("hold")
        clock.pause("person")
        real.s += 5
        clock.resume("hold")
        real.s += 5
        assert clock.paused
        assert clock.now_us() == START_US
        clock.resume("person")
        real.s += 5
        assert not clock.paused
        assert clock.now_us() == START_US + 5_000_000

    def test_a_rate_set_while_paused_holds_after_it(self) -> None:
        clock, real = clock_at(1)
        clock.pause()
        clock.set_rate(100)
        real.s += 5
        assert clock.now_us() == START_US
        clock.resume()
        real.s += 1
        assert clock.now_us() == START_US + 100_000_000

    def test_jumps_both_ways(self) -> None:
        clock, real = clock_at(1)
        clock.jump(START_US + 50)
        assert clock.now_us() == START_US + 50
        clock.jump(START_US - 50)
        assert clock.now_us() == START_US - 50
        real.s += 1
        assert clock.now_us() == START_US - 50 + 1_000_000

    @pytest.mark.parametrize("rate", [0, -1, math.nan])
    def test_refuses_a_rate_that_is_none(self, rate: float) -> None:
        with pytest.raises(ConfigError, match="above zero"):
            Clock(START_US, rate)
        clock, _ = clock_at(1)
        with pytest.raises(ConfigError, match="above zero"):
            clock.set_rate(rate)


class TestSleep:
    async def test_comes_back_when_the_time_is_due(self) -> None:
        clock, real = clock_at(4)
        assert await clock.sleep_until(START_US + 8_000_000) is Wake.REACHED
        assert real.s == 1002.0
        assert clock.now_us() >= START_US + 8_000_000

    async def test_comes_back_at_once_for_the_past_also_while_paused(self) -> None:
        clock, real = clock_at(1)
        real.s += 3
        clock.pause()
        assert await clock.sleep_until(START_US + 2_000_000) is Wake.REACHED
        assert real.s == 1003.0

    async def test_late_sleepers_do_not_push_later_deadlines_back(self) -> None:
        clock, real = clock_at(1)
        for i in range(1, 1001):
            assert await clock.sleep_until(START_US + i * 10_000) is Wake.REACHED
            real.s += 0.009 if i % 7 else 0.015  # work: a share of the steps, now and then more than one
        assert real.s - 1000.0 == pytest.approx(10.0, abs=0.05)

    async def test_infinite_rate_takes_time_to_whatever_is_slept_for(self) -> None:
        clock, real = clock_at(math.inf)
        assert clock.now_us() == START_US
        assert await clock.sleep_until(START_US + 86_400_000_000) is Wake.REACHED
        assert real.s == 1000.0
        assert clock.now_us() == START_US + 86_400_000_000
        clock.set_rate(1)
        real.s += 1
        assert clock.now_us() == START_US + 86_401_000_000

    async def test_infinite_rate_lets_others_run(self) -> None:
        clock = Clock(START_US, math.inf)
        ran = False

        async def other() -> None:
            nonlocal ran
            ran = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            t_us = START_US
            while not ran:
                t_us += 1
                await clock.sleep_until(t_us)

    @pytest.mark.parametrize("rate", [1.0, math.inf])
    async def test_waits_through_a_pause(self, rate: float) -> None:
        clock, real = clock_at(rate)
        clock.pause()
        woken: list[Wake] = []

        async def sleeper() -> None:
            woken.append(await clock.sleep_until(START_US + 1_000_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleeper)
            await anyio.wait_all_tasks_blocked()
            real.s += 100
            assert not woken
            clock.resume()
        assert woken == [Wake.REACHED]
        assert real.s == 1100.0 + (1 if rate == 1 else 0)

    @pytest.mark.parametrize("to_us", [START_US - 5, START_US + 10_000_000_000])
    async def test_a_jump_wakes_sleepers(self, to_us: int) -> None:
        clock, _ = clock_at(1)
        clock.pause()
        woken: list[Wake] = []

        async def sleeper() -> None:
            woken.append(await clock.sleep_until(START_US + 1_000_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleeper)
            tasks.start_soon(sleeper)
            await anyio.wait_all_tasks_blocked()
            clock.jump(to_us)
        assert woken == [Wake.WOKEN, Wake.WOKEN]

    async def test_real_time_by_default(self) -> None:
        clock = Clock(START_US, 1000)
        before = clock.real.now()
        assert await clock.sleep_until(START_US + 20_000_000) is Wake.REACHED
        assert clock.real.now() - before >= 0.02

    async def test_real_sleepers_notice_a_faster_rate(self) -> None:
        clock = Clock(START_US, 1)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(clock.sleep_until, START_US + 3_600_000_000)
                await anyio.wait_all_tasks_blocked()
                clock.set_rate(math.inf)


class TestDue:
    def test_at_the_rate_that_holds(self) -> None:
        clock, _ = clock_at(2)
        assert clock.due_wall(START_US + 1_000_000) == 1000.5

    def test_never_while_paused_but_the_past_keeps_its_due_time(self) -> None:
        clock, real = clock_at(2)
        real.s += 1
        clock.pause()
        real.s += 10
        assert clock.due_wall(START_US + 1_000_000) == 1000.5
        assert clock.due_wall(START_US + 3_000_000) == math.inf
        clock.resume()
        assert clock.due_wall(START_US + 1_000_000) == 1000.5
        assert clock.due_wall(START_US + 3_000_000) == 1011.5

    def test_what_a_jump_passed_over_was_due_when_it_was_made(self) -> None:
        clock, real = clock_at(1)
        real.s += 1
        clock.jump(START_US + 100_000_000)
        real.s += 1
        assert clock.due_wall(START_US + 50_000_000) == 1001.0

    def test_all_is_due_once_the_rate_is_infinite(self) -> None:
        clock, real = clock_at(1)
        real.s += 1
        clock.set_rate(math.inf)
        real.s += 1
        assert clock.due_wall(START_US + 50_000_000) == 1001.0


rates = st.sampled_from([0.25, 1.0, 3.7, 60.0, 1000.0, 1e5, math.inf])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 50)),
        st.tuples(st.just("rate"), rates),
        st.tuples(st.just("pause"), st.sampled_from(["a", "b"])),
        st.tuples(st.just("resume"), st.sampled_from(["a", "b"])),
    ),
    max_size=60,
)


def apply(clock: Clock, real: HandReal, step: tuple[str, float | str]) -> None:
    match step:
        case ("wait", float() as seconds):
            real.s += seconds
        case ("rate", float() as rate):
            clock.set_rate(rate)
        case ("pause", str() as holder):
            clock.pause(holder)
        case ("resume", str() as holder):
            clock.resume(holder)


@given(steps)
def test_time_is_the_sum_of_what_ran_whatever_was_changed_when(taken: list[tuple[str, float | str]]) -> None:
    clock, real = clock_at(1)
    rate, holders, expected_us = 1.0, set[str](), Fraction(0)
    for step in taken:
        before = real.s
        apply(clock, real, step)
        match step:
            case ("wait", float()) if not holders and rate != math.inf:
                expected_us += (Fraction(real.s) - Fraction(before)) * Fraction(rate) * 1_000_000
            case ("rate", float() as rate):
                pass
            case ("pause", str() as holder):
                holders.add(holder)
            case ("resume", str() as holder):
                holders.discard(holder)
        assert abs(clock.now_us() - START_US - expected_us) <= 2 + float(expected_us) * 1e-12


@given(steps)
def test_never_goes_back_without_a_jump(taken: list[tuple[str, float | str]]) -> None:
    clock, real = clock_at(1)
    last_us = clock.now_us()
    for step in taken:
        apply(clock, real, step)
        assert clock.now_us() >= last_us
        last_us = clock.now_us()


@given(steps, st.integers(0, 10_000_000_000))
def test_what_was_due_stays_due_when_it_was(taken: list[tuple[str, float | str]], offset_us: int) -> None:
    clock, real = clock_at(1)
    t_us = START_US + offset_us
    due_s: float | None = None
    for step in taken:
        apply(clock, real, step)
        if due_s is None and clock.due_wall(t_us) <= real.s:
            due_s = clock.due_wall(t_us)
        if due_s is not None and clock.rate != math.inf:
            # a time passed at an infinite rate may be taken up later than it was due
            assert clock.due_wall(t_us) <= real.s or clock.now_us() < t_us
        if clock.now_us() > t_us:
            assert clock.due_wall(t_us) <= real.s


@given(steps, st.integers(1, 10_000_000_000))
async def test_after_reached_the_time_is_there(taken: list[tuple[str, float | str]], ahead_us: int) -> None:
    clock, real = clock_at(1)
    for step in taken:
        apply(clock, real, step)
    for holder in ("a", "b"):
        clock.resume(holder)
    t_us = clock.now_us() + ahead_us
    assert await clock.sleep_until(t_us) is Wake.REACHED
    assert clock.now_us() >= t_us
    assert clock.now_us() - t_us <= 1 + clock.rate * 1e-3 or clock.rate == math.inf
