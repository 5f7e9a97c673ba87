"""Appending ahead: order, and that an append that fails is the last one."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from producers.ahead import append_ahead
from simulator.errors import LogError
from simulator.log.protocol import Record
from tests.test_replayer import MemoryLog


def record(value: bytes) -> Record:
    return Record("t", b"", value, 0)


def values(log: MemoryLog) -> list[bytes]:
    return [record.value for batch in log.batches for record in batch]


async def test_batches_arrive_in_order_and_all_of_them_by_the_end() -> None:
    log = MemoryLog()
    told: list[int] = []
    async with append_ahead(log) as ahead:
        for i in range(5):
            await ahead.append([record(b"%d" % i)], partial(told.append, i))
            assert len(log.batches) == i  # under way
            assert ahead.busy
    assert values(log) == [b"0", b"1", b"2", b"3", b"4"]
    assert told == [0, 1, 2, 3, 4]


def failing(wanted: bytes) -> MemoryLog:
    def cost(records: object) -> None:
        if records == [record(wanted)]:
            raise LogError("the disk is full")

    return MemoryLog(cost)


async def test_after_a_failed_append_nothing_more_is_appended() -> None:
    log = failing(b"1")

    async def append_five() -> None:
        async with append_ahead(log) as ahead:
            for i in range(5):
                await ahead.append([record(b"%d" % i)], lambda: None)

    with pytest.raises(LogError, match="the disk is full"):
        await append_five()
    assert values(log) == [b"0"]


async def test_a_failed_append_ends_whatever_its_caller_waits_for() -> None:
    async def append_and_wait() -> None:
        async with append_ahead(failing(b"0")) as ahead:
            await ahead.append([record(b"0")], lambda: None)
            await anyio.sleep_forever()

    with pytest.raises(LogError, match="the disk is full"):
        await append_and_wait()


async def test_an_error_of_the_caller_comes_out_alone_and_what_is_under_way_is_finished() -> None:
    log = MemoryLog()

    async def append_and_fail() -> None:
        async with append_ahead(log) as ahead:
            await ahead.append([record(b"0")], lambda: None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await append_and_fail()
    assert values(log) == [b"0"]


async def test_cancelled_it_leaves_whole_batches_and_raises_nothing_of_its_own() -> None:
    log = MemoryLog()
    with anyio.CancelScope() as scope:
        async with append_ahead(log) as ahead:
            await ahead.append([record(b"0"), record(b"1")], scope.cancel)
            await ahead.append([record(b"2")], lambda: None)
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert values(log) == [b"0", b"1"]
