"""How many calls are under way, and how many there are in a minute: pure, in virtual time; and the gate, for real."""

from __future__ import annotations

import heapq
import itertools
import random

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.endpoints.limits import AdaptiveLimit, Bucket, Gate, Ticket

# --- buckets --------------------------------------------------------------------------------------------------------


@given(
    per_minute=st.floats(0.5, 10_000),
    asked=st.lists(st.tuples(st.floats(0, 30), st.floats(0.1, 200)), min_size=1, max_size=40),
)
def test_no_span_of_time_gets_more_than_its_share_and_a_burst(
    per_minute: float, asked: list[tuple[float, float]]
) -> None:
    """What is used between any two moments is at most a burst, what the time between them is worth, and the one
    amount that may be larger than a burst."""
    bucket = Bucket(per_minute)
    now_s, used = 0.0, []
    for pause_s, amount in asked:
        now_s += pause_s
        used.append((now_s + bucket.reserve(amount, now_s), amount))
    starts = [at for at, _ in used]
    assert starts == sorted(starts)  # in the order of asking
    burst = max(1.0, per_minute / 60 * Bucket.BURST_S)
    for first, last in itertools.combinations_with_replacement(range(len(used)), 2):
        span_s = used[last][0] - used[first][0]
        amounts = sum(amount for _, amount in used[first:last])  # the last may begin on credit
        assert (
            amounts
            <= burst + per_minute / 60 * span_s + max(0.0, used[last - 1][1] - burst) + 1e-6 * per_minute
        )


def test_a_steady_asker_gets_its_rate_and_no_less() -> None:
    bucket = Bucket(60)
    now_s = 0.0
    for _ in range(100):
        now_s += bucket.reserve(1, now_s)
    assert now_s == pytest.approx(90)  # 100 of them, 10 of which were the burst


@given(amount=st.floats(0.1, 50))
def test_what_is_given_back_was_never_taken(amount: float) -> None:
    bucket, other = Bucket(60), Bucket(60)
    bucket.reserve(amount, 0.0)
    bucket.give_back(amount, 0.0)
    assert bucket.reserve(11, 0.0) == pytest.approx(other.reserve(11, 0.0))


def test_what_is_used_beyond_is_paid_for_later() -> None:
    bucket = Bucket(60)
    assert bucket.reserve(1, 0.0) == 0
    bucket.give_back(-9, 0.0)
    assert bucket.reserve(5, 0.0) == pytest.approx(5)


# --- the adaptive limit ---------------------------------------------------------------------------------------------


@given(
    most=st.integers(1, 64),
    outcomes=st.lists(st.sampled_from(["ok", "overloaded", "failed"]), max_size=300),
    late=st.integers(0, 30),
)
def test_the_limit_stays_between_one_and_the_most(most: int, outcomes: list[str], late: int) -> None:
    limit = AdaptiveLimit(most)
    under_way: list[Ticket] = []
    for outcome in outcomes:
        under_way.append(limit.started(min(limit.limit, len(under_way) + 1)))
        if len(under_way) <= late:
            continue
        before, ticket = limit.limit, under_way.pop(0)
        match outcome:
            case "ok":
                limit.succeeded(ticket)
                assert before <= limit.limit <= before + 1
            case "overloaded":
                limit.overloaded(ticket)
            case "failed":
                limit.failed(ticket)
        assert 1 <= limit.limit <= most
        if outcome != "ok":
            assert limit.limit in (before, max(1, before // 2))


@given(count=st.integers(2, 40))
def test_all_that_began_before_a_cut_cut_once(count: int) -> None:
    limit = AdaptiveLimit(64)
    tickets = [limit.started(8) for _ in range(count)]
    for ticket in tickets:
        limit.overloaded(ticket)
    assert limit.limit == 4
    limit.overloaded(limit.started(4))
    assert limit.limit == 2


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    limit = AdaptiveLimit(64)
    for _ in range(100):
        limit.succeeded(limit.started(1))
    assert limit.limit == 8


class World:
    """Calls to a server that takes `bears` at once, refuses what is above, and takes `call_s` for each, in virtual
    time. Refused calls come back after the pauses that `Caller` makes."""

    def __init__(self, limit: AdaptiveLimit, seed: int) -> None:
        self.limit = limit
        self.draw = random.Random(seed)
        self.now_s = 0.0
        self.refused = 0

    def run(self, calls: int, bears: int, call_s: float, failing: float = 0.0) -> float:
        """The seconds that so many calls take."""
        began_s, numbers = self.now_s, itertools.count()
        ready, tries = list(range(calls)), [0] * calls
        events: list[tuple[float, int, str, int, Ticket | None]] = []
        inside = at_server = done = 0
        while done < calls:
            while ready and inside < self.limit.limit:
                call = heapq.heappop(ready)
                inside += 1
                tries[call] += 1
                refused = at_server >= bears
                at_server += not refused
                took_s = 0.002 if refused else call_s * self.draw.uniform(0.7, 1.3)
                what = "refused" if refused else "failed" if self.draw.random() < failing else "ok"
                ticket = self.limit.started(inside)
                heapq.heappush(events, (self.now_s + took_s, next(numbers), what, call, ticket))
            self.now_s, _, what, call, ticket_there = heapq.heappop(events)
            if ticket_there is None:
                heapq.heappush(ready, call)
                continue
            inside -= 1
            at_server -= what != "refused"
            if what == "ok":
                done += 1
                self.limit.succeeded(ticket_there)
                continue
            if what == "refused":
                self.refused += 1
                self.limit.overloaded(ticket_there)
            else:
                self.limit.failed(ticket_there)
            pause_s = self.draw.uniform(0, min(0.5 * 2.0 ** (tries[call] - 1), 30.0))
            heapq.heappush(events, (self.now_s + pause_s, next(numbers), "back", call, None))
        return self.now_s - began_s


@pytest.mark.parametrize("call_s", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("bears", [1, 5, 20, 60])
def test_a_hidden_limit_is_found_and_used(bears: int, call_s: float) -> None:
    for seed in range(5):
        world = World(AdaptiveLimit(64), seed)
        took_s = world.run(25 * bears, bears, call_s)
        assert took_s <= 1.3 * 25 * call_s, f"seed {seed}"
        assert world.refused <= 16 + bears / 4, f"seed {seed}"


def test_a_limit_that_changes_is_found_again() -> None:
    for seed in range(5):
        world = World(AdaptiveLimit(64), seed)
        world.run(500, 20, 1.0)
        world.run(250, 5, 1.0)  # to find the lower one
        assert world.run(250, 5, 1.0) <= 1.25 * 50
        world.run(2_000, 40, 1.0)  # and the higher one: by one in a round trip at least
        assert world.run(1_000, 40, 1.0) <= 1.25 * 25


def test_failures_without_a_limit_do_not_end_in_single_file() -> None:
    """A server of which every tenth answer is broken, whatever the load."""
    world = World(AdaptiveLimit(32), 0)
    assert world.run(2_000, 1_000, 1.0, failing=0.1) < 2_000 / 6


# --- the gate -------------------------------------------------------------------------------------------------------


async def test_the_oldest_is_let_in_first_and_never_too_many() -> None:
    gate = Gate(AdaptiveLimit(2))
    entered: list[int] = []
    inside = most = 0
    ages = [gate.number() for _ in range(6)]

    async def call(age: int) -> None:
        nonlocal inside, most
        async with gate.enter(age):
            inside += 1
            most = max(most, inside)
            entered.append(age)
            await anyio.sleep(0.01)
            inside -= 1

    async with anyio.create_task_group() as tasks:
        for age in (ages[5], ages[4], ages[0], ages[3], ages[2], ages[1]):
            tasks.start_soon(call, age)
    assert most == 2
    assert entered == [5, 4, 0, 1, 2, 3]  # the first two found it empty


async def test_who_stops_waiting_takes_no_place() -> None:
    gate = Gate(AdaptiveLimit(1))
    async with gate.enter(gate.number()):
        for _ in range(3):
            with anyio.move_on_after(0.01):
                async with gate.enter(gate.number()):
                    pytest.fail("it was full")
    async with anyio.create_task_group() as tasks:
        async with gate.enter(gate.number()):
            tasks.start_soon(_enter, gate)
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()  # admitted, and gone before it could look
    with anyio.fail_after(30):
        async with gate.enter(gate.number()):
            pass


async def _enter(gate: Gate) -> None:
    async with gate.enter(gate.number()):
        await anyio.sleep(60)
