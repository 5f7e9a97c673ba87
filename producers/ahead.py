"""Appending while the caller prepares what comes next: whoever encodes, or keeps a pace, need not wait for the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from producers.tenure import Appends
from simulator.log.protocol import Record


class AppendAhead:
    """Appends in the background, in order. What is handed over while an append is under way waits, and goes into the
    next one together: that begins when the one before is in the log, so that an append that fails never leaves a
    gap. Use `append_ahead`."""

    def __init__(self, log: Appends, tasks: TaskGroup, most: int) -> None:
        self._log = log
        self._tasks = tasks
        self._most = most
        self._waiting: list[Record] = []
        self._thens: list[Callable[[], None]] = []
        self._busy = False
        self._moved = anyio.Event()
        """What waited is under way now, or the last append has ended."""
        self.failure: Exception | None = None

    @property
    def full(self) -> bool:
        """Whether as much waits as goes into one append: whoever hands over more hides that the log is behind."""
        return len(self._waiting) >= self._most

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.full:
            await self._moved.wait()

    async def settle(self) -> None:
        """Wait until all that was handed over is in the log. Raises what an append raised."""
        while self._busy:
            await self._moved.wait()
        if self.failure is not None:
            raise self.failure

    async def append(self, records: Sequence[Record], then: Callable[[], None]) -> None:
        """Hand records over; `then` is called when they are in the log. Where no append is under way, theirs begins
        at once. Raises what an earlier append raised."""
        if self.failure is not None:
            raise self.failure
        self._waiting += records
        self._thens.append(then)
        if not self._busy:
            self._busy = True
            self._tasks.start_soon(self._append)
            await checkpoint()

    async def _append(self) -> None:
        try:
            while records := self._waiting:
                thens, self._thens = self._thens, []
                self._waiting = []
                self._tell()
                await self._log.append(records)
                for then in thens:
                    then()
        except Exception as error:
            self.failure = error
            self._waiting = []
            self._tasks.cancel_scope.cancel()  # the caller may wait for something else, for long
        finally:
            self._busy = False
            self._tell()

    def _tell(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()


@asynccontextmanager
async def append_ahead(log: Appends, most: int) -> AsyncIterator[AppendAhead]:
    """Append ahead; it is full where `most` records wait. At the end, wait until all are in the log. The first error,
    of the body or of an append, is raised as it is and not in a group."""
    async with anyio.create_task_group() as tasks:
        ahead = AppendAhead(log, tasks, most)
        try:
            yield ahead
            await ahead.settle()
        except Exception as error:
            ahead.failure = ahead.failure or error
    if ahead.failure is not None:
        raise ahead.failure
