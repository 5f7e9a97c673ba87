"""One limit for the calls of a process: kept, handed on, and not lost with what is cancelled."""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

from consumers.calls import CallLimit, Rank


async def _settle() -> None:
    for _ in range(10):
        await checkpoint()


async def test_no_more_calls_than_the_limit_and_ranks_go_first() -> None:
    limit, order, ended = CallLimit(2), [], [anyio.Event() for _ in range(5)]

    async def one(number: int, rank: Rank) -> None:
        async with limit.turn("a", rank):
            assert limit.under_way <= 2
            order.append(number)
            await ended[number].wait()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number, rank in enumerate((Rank.NEW, Rank.NEW, Rank.NEW, Rank.UNDER_WAY, Rank.INGEST)):
                tasks.start_soon(one, number, rank)
                await _settle()
            assert order == [0, 1]
            ended[0].set()
            await _settle()
            assert order == [0, 1, 4]
            for event in ended:
                event.set()
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert limit.under_way == 0


async def test_a_cancelled_call_gives_its_turn_back_whether_it_had_it_or_waited() -> None:
    limit = CallLimit(1)

    async def hold() -> None:
        async with limit.turn("a", Rank.NEW):
            await anyio.sleep_forever()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(hold)
            await _settle()
            assert limit.under_way == 1
            tasks.cancel_scope.cancel()
        assert limit.under_way == 0
        async with limit.turn("a", Rank.NEW):
            pass


async def test_a_turn_that_comes_as_its_task_is_cancelled_goes_to_the_next() -> None:
    limit, had = CallLimit(1), anyio.Event()
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            async with limit.turn("a", Rank.NEW):
                raise AssertionError("it was cancelled before its turn")

    async def next_one() -> None:
        async with limit.turn("a", Rank.NEW):
            had.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with limit.turn("a", Rank.NEW):
                tasks.start_soon(cancelled)
                await _settle()
                tasks.start_soon(next_one)
                await _settle()
                scope.cancel()  # and at once, in the same step of the loop, its turn comes
            await had.wait()
    assert limit.under_way == 0
