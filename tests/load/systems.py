"""Memory systems whose calls take a known time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import anyio
from msgspec.structs import replace

from adapters.memory import Answer, Capabilities, Delta, LaneContext, Request, Segment
from tests.load.virtual import VirtualLoop
from tests.roles.systems import Ledger


class FixedTime(Ledger):
    """Each ingest takes `service_ms`; that of segment `stall_at` takes `stall_ms`, and with `blocking` the whole
    process stands still for it."""

    def __init__(
        self,
        context: LaneContext,
        *,
        service_ms: float = 0.0,
        stall_at: int = -1,
        stall_ms: float = 0.0,
        blocking: bool = False,
        fails_at: int = -1,
        hangs_at: int = -1,
    ) -> None:
        super().__init__(context)
        self.service_s = service_ms / 1e3
        self.stall_at = stall_at
        self.stall_s = stall_ms / 1e3
        self.blocking = blocking
        self.fails_at = fails_at
        self.hangs_at = hangs_at

    async def ingest(self, segment: Segment) -> Delta:
        if segment.segment == self.hangs_at:
            await anyio.sleep_forever()
        if segment.segment == self.fails_at:
            raise RuntimeError("no room")
        if segment.segment != self.stall_at:
            await anyio.sleep(self.service_s)
        elif self.blocking:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.block(self.stall_s)
        else:
            await anyio.sleep(self.stall_s)
        return Delta()


class SlowToMake(FixedTime):
    """Its process stands still when a memory is made, until there is this file."""

    def __init__(self, context: LaneContext, *, until: str) -> None:
        super().__init__(context)
        while not Path(until).exists():
            time.sleep(0.05)


class Asked(FixedTime):
    """Each ingest keeps one record; each answer takes `answer_ms`, of which its first token `first_ms` (none: it does
    not stream). Forking holds up the whole process for `fork_ms`. Notes when two calls of one memory overlap."""

    def __init__(
        self,
        context: LaneContext,
        *,
        service_ms: float = 0.0,
        answer_ms: float = 0.0,
        first_ms: float | None = None,
        fork_ms: float = 0.0,
        fails_after: int = 2**31,
    ) -> None:
        super().__init__(context, service_ms=service_ms)
        self.answer_s = answer_ms / 1e3
        self.first_s = None if first_ms is None else first_ms / 1e3
        self.fork_s = fork_ms / 1e3
        self.fails_after = fails_after
        self.answers = 0
        self.busy = False

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        if self.busy:
            raise RuntimeError("two calls at once")
        self.busy = True
        yield
        self.busy = False

    async def ingest(self, segment: Segment) -> Delta:
        async with self._alone():
            await anyio.sleep(self.service_s)
            return await Ledger.ingest(self, segment)

    async def answer(self, request: Request) -> Answer:
        async with self._alone():
            self.answers += 1
            if self.answers > self.fails_after:
                raise RuntimeError("no answer")
            answer = await super().answer(request)
            if self.first_s is not None:
                await anyio.sleep(self.first_s)
                answer = replace(answer, first_token_s=self.first_s)
            await anyio.sleep(self.answer_s - (self.first_s or 0.0))
            return answer

    def fork(self) -> Self:
        if self.fork_s:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.block(self.fork_s)
        fork = super().fork()
        fork.busy = False  # the snapshot is of a memory at rest
        return fork


class AskedInTurn(Asked):
    """The same, and it can't fork."""

    capabilities = Capabilities(fork="none")


class HangsInTurn(FixedTime):
    """Ingests for ever from a segment on, and can't fork."""

    capabilities = Capabilities(fork="none")


class OneDevice(Ledger):
    """As a model on one device: an ingest takes `service_ms`, and the process does one at a time, whatever lane it is
    of."""

    _device = anyio.Lock()

    def __init__(self, context: LaneContext, *, service_ms: float = 20.0) -> None:
        super().__init__(context)
        self.service_s = service_ms / 1e3

    async def ingest(self, segment: Segment) -> Delta:
        async with self._device:
            await anyio.sleep(self.service_s)
        return Delta()
