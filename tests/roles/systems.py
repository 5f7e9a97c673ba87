"""Memory systems that tests see through: one that rests every answer on all that it sees, and one that fails
in every way that somebody else's code can."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import math
from collections.abc import Awaitable, Callable
from typing import Any, Self

import anyio

from adapters.memory import Answer, Delta, Interaction, LaneContext, Request, Segment
from simulator.events import MemoryRecord, RetrievedRecord


class Ledger:
    """Keeps one record a segment and one an interaction. Every answer rests on all records that it sees,
    oldest first, and says what the newest says."""

    def __init__(self, context: LaneContext | None = None) -> None:
        self.records: tuple[MemoryRecord, ...] = ()

    async def ingest(self, segment: Segment) -> Delta:
        return self._keep(f"s{segment.segment}", segment.text, segment.observations[-1].event_time_us)

    async def answer(self, request: Request) -> Answer:
        retrieved = tuple(
            RetrievedRecord(id=r.id, text=r.text, event_time_us=r.event_time_us) for r in self.records
        )
        return Answer(text=self.records[-1].text if self.records else "", retrieved=retrieved)

    async def commit(self, interaction: Interaction) -> Delta:
        text = "\n".join(turn.text for turn in interaction.turns)
        return self._keep(f"commit {interaction.id}", text, interaction.event_time_us)

    def fork(self) -> Self:
        return copy.copy(self)

    async def aclose(self) -> None:
        self.records = ()

    def _keep(self, name: str, text: str, event_time_us: int) -> Delta:
        record = MemoryRecord(id=name, text=text, event_time_us=event_time_us)
        self.records += (record,)
        return Delta(records=(record,), stored_bytes=len(text.encode()))


class Stuck(Ledger):
    """Answers nothing any more once it has more than `after` records."""

    def __init__(self, context: LaneContext, *, after: int) -> None:
        super().__init__(context)
        self.after = after

    async def answer(self, request: Request) -> Answer:
        if len(self.records) > self.after:
            await anyio.sleep_forever()
        return await super().answer(request)


async def _raise() -> Any:
    raise RuntimeError("out of memory")


async def _exit() -> Any:
    raise SystemExit(3)


async def _cancel_itself() -> Any:
    raise asyncio.CancelledError


async def _hang() -> Any:
    await anyio.sleep_forever()


async def _nothing() -> Any:
    return None


async def _not_a_number() -> Any:
    retrieved = (RetrievedRecord(id="r", text="t", event_time_us=0, score=math.nan),)
    return Answer(text="", retrieved=retrieved)


async def _no_text() -> Any:
    return Delta(records=(MemoryRecord(id="r", text=7, event_time_us=0),))  # type: ignore[arg-type]  # on purpose


async def _surrogate() -> Any:
    return Answer(text="half a pair \ud800")


FAILURES: dict[str, Callable[[], Awaitable[Any]]] = {
    "raises": _raise,
    "exits": _exit,
    "cancels itself": _cancel_itself,
    "hangs": _hang,
    "gives nothing": _nothing,
    "scores NaN": _not_a_number,
    "has no text": _no_text,
    "has a lone surrogate": _surrogate,
}


class Flaky(Ledger):
    """A ledger of which a share of all calls fail, the same ones in every run of a seed."""

    def __init__(
        self, context: LaneContext, *, seed: int = 0, share: float = 0.1, hang: bool = False
    ) -> None:
        super().__init__(context)
        self.seed = f"{seed}/{context.lane}"
        self.share = share
        self.failures = [f for name, f in FAILURES.items() if hang or name != "hangs"]

    def _draw(self, call: str) -> int | None:
        """None: the call goes well; else a number that picks the failure."""
        number = int.from_bytes(hashlib.sha256(f"{self.seed}/{call}".encode()).digest()[:8])
        return None if number / 2**64 >= self.share else number

    async def _fail(self, call: str) -> Any:
        number = self._draw(call)
        return None if number is None else (await self.failures[number % len(self.failures)](),)

    async def ingest(self, segment: Segment) -> Delta:
        failed = await self._fail(f"ingest {segment.segment}")
        return failed[0] if failed else await super().ingest(segment)

    async def answer(self, request: Request) -> Answer:
        failed = await self._fail(f"answer {request.phase} {request.text} {len(self.records)}")
        return failed[0] if failed else await super().answer(request)

    async def commit(self, interaction: Interaction) -> Delta:
        failed = await self._fail(f"commit {interaction.id}")
        return failed[0] if failed else await super().commit(interaction)

    def fork(self) -> Self:
        number = self._draw(f"fork {len(self.records)} {self.records[-1:]}")
        if number is None:
            return super().fork()
        if number % 3 == 0:
            return self
        raise (SystemExit if number % 3 == 1 else MemoryError)("no fork")

    async def aclose(self) -> None:
        await self._fail(f"close {len(self.records)}")
