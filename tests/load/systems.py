"""Memory systems whose ingest takes a known time."""

from __future__ import annotations

import asyncio

import anyio

from adapters.memory import Delta, LaneContext, Segment
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
