"""Appending one batch while its caller prepares the next: whoever encodes need not wait for the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from producers.tenure import Appends
from simulator.log.protocol import Record


class AppendAhead:
    """Appends in the background, one batch at a time: the next one begins when the one before is in the log, so
    that an append that fails never leaves a gap. Use `append_ahead`."""

    def __init__(self, log: Appends, tasks: TaskGroup) -> None:
        self._log = log
        self._tasks = tasks
        self._settled = anyio.Event()
        self._settled.set()
        self.failure: Exception | None = None

    @property
    def busy(self) -> bool:
        """Whether an append is under way."""
        return not self._settled.is_set()

    async def settle(self) -> None:
        """Wait until the append under way is done. Raises what that raised."""
        await self._settled.wait()
        if self.failure is not None:
            raise self.failure

    async def append(self, records: Sequence[Record], then: Callable[[], None]) -> None:
        """Begin to append, once the append before is done; `then` is called when these records are in the
        log. Raises what the append before raised."""
        await self.settle()
        self._settled = anyio.Event()
        self._tasks.start_soon(self._append, records, then)

    async def _append(self, records: Sequence[Record], then: Callable[[], None]) -> None:
        try:
            await self._log.append(records)
            then()
        except Exception as error:
            self.failure = error
            self._tasks.cancel_scope.cancel()  # the caller may wait for something else, for long
        finally:
            self._settled.set()


@asynccontextmanager
async def append_ahead(log: Appends) -> AsyncIterator[AppendAhead]:
    """Append ahead; at the end, wait for what is under way. The first error, of the body or of an append, is
    raised as it is and not in a group."""
    async with anyio.create_task_group() as tasks:
        ahead = AppendAhead(log, tasks)
        try:
            yield ahead
            await ahead.settle()
        except Exception as error:
            ahead.failure = ahead.failure or error
    if ahead.failure is not None:
        raise ahead.failure
