"""Calls into somebody else's code: memory systems and judges. Whatever goes wrong there is one result that
failed, and nothing more: it ends no role and no run. And only so many are under way at once."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import TypeVar

import anyio
import structlog

from adapters.memory import MemorySystem
from simulator.fair import FairQueue

T = TypeVar("T")

CLOSE_TIMEOUT_S = 10.0
"""How long memory systems may take to close, cancelled or not."""

_log = structlog.get_logger(__name__)


class CallError(Exception):
    """A call failed; the message says how, for people to read."""


class Rank(IntEnum):
    """Which of a lane's calls goes first."""

    INGEST = 0
    """All that follows waits for it, and there is one at a time."""
    UNDER_WAY = 1
    """Of a trajectory that has begun: it ends, and its branch goes, before others begin."""
    NEW = 2


class _Waiter:
    __slots__ = ("abandoned", "turn")

    def __init__(self) -> None:
        self.turn = anyio.Event()
        self.abandoned = False


class CallLimit:
    """Lets at most `limit` calls be under way, shared fairly between lanes. One for all roles of a process: the model
    servers behind them are the same."""

    def __init__(self, limit: int) -> None:
        self._queue: FairQueue[_Waiter] = FairQueue(limit)

    @asynccontextmanager
    async def turn(self, lane: str, rank: Rank) -> AsyncIterator[None]:
        """Wait for a turn, and keep it for the body."""
        waiter = _Waiter()
        self._queue.put(lane, waiter, rank)
        self._let_in()
        try:
            await waiter.turn.wait()
        except BaseException:
            waiter.abandoned = True
            if waiter.turn.is_set():  # it came, and nobody is there to take it
                self._end(lane)
            raise
        try:
            yield
        finally:
            self._end(lane)

    @property
    def under_way(self) -> int:
        """How many calls are under way."""
        return self._queue.under_way

    def _end(self, lane: str) -> None:
        self._queue.done(lane)
        self._let_in()

    def _let_in(self) -> None:
        while (taken := self._queue.take()) is not None:
            lane, waiter = taken
            if waiter.abandoned:
                self._queue.done(lane)
            else:
                waiter.turn.set()


async def call(function: Callable[[], Awaitable[T]], gives: type[T], timeout_s: float) -> T:
    """Await `function()`. Raises CallError for what it raises (`exit()` included), for a call that takes
    longer than `timeout_s`, and for anything that is no `gives`. Cancelling the caller cancels the call."""
    try:
        with anyio.move_on_after(timeout_s) as scope:
            result = await function()
    except anyio.get_cancelled_exc_class() as cancelled:
        if anyio.current_effective_deadline() == -math.inf:
            raise
        # Nobody cancelled this task: the code inside awaited something of its own that was. Passed on, it
        # would end this task without a word, and what waits for its result would wait for ever.
        raise CallError("it cancelled itself") from cancelled
    except (Exception, SystemExit) as failure:
        raise CallError(describe(failure)) from failure
    if scope.cancelled_caught:
        raise CallError(f"TimeoutError: nothing after {timeout_s:g} s")
    if not isinstance(result, gives):
        raise CallError(f"TypeError: it gave {type(result).__name__}, not {gives.__name__}")
    return result


async def close_all(memories: Iterable[MemorySystem], lane: str) -> None:
    """Close memory systems side by side, even when cancelled. What can't be closed is logged and left."""
    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as closing:
            for memory in memories:
                closing.start_soon(_close, memory, lane)


async def _close(memory: MemorySystem, lane: str) -> None:
    try:
        await call(lambda: memory.aclose(), object, CLOSE_TIMEOUT_S)
    except CallError as failure:
        _log.warning("close_failed", lane=lane, error=str(failure))


def describe(failure: BaseException) -> str:
    """An exception as a reason that people read: its type and its message."""
    reason = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
    return reason.encode(errors="replace").decode()  # a lone surrogate could not be written to the log
