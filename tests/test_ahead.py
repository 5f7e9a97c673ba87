"""Appending ahead: order, and that an append that fails is the last one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.ahead import append_ahead
from simulator.errors import LogError
from simulator.log.protocol import Record
from tests.memory_log import MemoryLog


def record(value: bytes) -> Record:
    return Record("t", b"", value, 0)


def values(log: MemoryLog) -> list[bytes]:
    return [record.value for batch in log.batches for record in batch]


class SlowLog(MemoryLog):
    """Takes its time for each append, and counts those under way."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0

    async def append(self, records: Sequence[Record]) -> None:
        assert not self.under_way
        self.under_way += 1
        await anyio.sleep(0.02)
        self.under_way -= 1
        await super().append(records)


@given(
    counts=st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=12),
    most=st.integers(1, 6),
)
@settings(max_examples=25, deadline=None)
async def test_all_arrive_in_order_one_append_at_a_time(counts: list[tuple[int, bool]], most: int) -> None:
    log = SlowLog()
    told: list[int] = []
    expected = [b"%d.%d" % (i, j) for i, (count, _) in enumerate(counts) for j in range(count)]
    async with append_ahead(log, most) as ahead:
        for i, (count, waits) in enumerate(counts):
            await ahead.room()
            await ahead.append([record(b"%d.%d" % (i, j)) for j in range(count)], partial(told.append, i))
            if waits:
                await checkpoint()
    assert values(log) == expected
    assert told == list(range(len(counts)))
    assert all(len(batch) < most + 5 for batch in log.batches)


async def test_what_comes_during_an_append_goes_into_the_next_together_until_it_is_full() -> None:
    log = SlowLog()
    async with append_ahead(log, 2) as ahead:
        await ahead.append([record(b"0")], lambda: None)
        assert log.under_way == 1
        await ahead.append([record(b"1")], lambda: None)
        assert not ahead.full
        await ahead.append([record(b"2")], lambda: None)
        assert ahead.full
        await ahead.room()
        assert values(log) == [b"0"]  # there is room once the append before is in the log
        await ahead.settle()
        assert [len(batch) for batch in log.batches] == [1, 2]


def failing(wanted: bytes) -> MemoryLog:
    def cost(records: object) -> None:
        if records == [record(wanted)]:
            raise LogError("the disk is full")

    return MemoryLog(cost)


async def test_after_a_failed_append_nothing_more_is_appended() -> None:
    log = failing(b"1")

    async def append_five() -> None:
        async with append_ahead(log, 2) as ahead:
            for i in range(5):
                await ahead.settle()
                await ahead.append([record(b"%d" % i)], lambda: None)

    with pytest.raises(LogError, match="the disk is full"):
        await append_five()
    assert values(log) == [b"0"]


async def test_a_failed_append_ends_whatever_its_caller_waits_for() -> None:
    async def append_and_wait() -> None:
        async with append_ahead(failing(b"0"), 2) as ahead:
            await ahead.append([record(b"0")], lambda: None)
            await anyio.sleep_forever()

    with pytest.raises(LogError, match="the disk is full"):
        await append_and_wait()


async def test_an_error_of_the_caller_comes_out_alone_and_what_is_under_way_is_finished() -> None:
    log = MemoryLog()

    async def append_and_fail() -> None:
        async with append_ahead(log, 2) as ahead:
            await ahead.append([record(b"0")], lambda: None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await append_and_fail()
    assert values(log) == [b"0"]


async def test_cancelled_it_leaves_whole_batches_and_raises_nothing_of_its_own() -> None:
    log = MemoryLog()
    with anyio.CancelScope() as scope:
        async with append_ahead(log, 2) as ahead:
            await ahead.append([record(b"0"), record(b"1")], scope.cancel)
            await ahead.room()
            await ahead.append([record(b"2")], lambda: None)
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert values(log) == [b"0", b"1"]
