"""How the suite drives a memory: as a lane does, with branches by what the memory declares."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeVar

import anyio
import anyio.to_thread
from msgspec.structs import replace

from adapters.conformance.ledger import BrokenError, Ledger, check_writable
from adapters.conformance.models import Switch
from adapters.conformance.world import STREAM, anchors, talk
from adapters.memory import (
    Answer,
    Capabilities,
    Delta,
    LaneContext,
    MemorySystem,
    Preparable,
    Request,
    Responder,
    Segment,
)
from consumers.calls import CallError, call, describe
from consumers.homes import Isolating, new_folder
from consumers.isolation import Spent, brancher_of
from simulator.errors import InputError, MemorySystemError
from simulator.events import Means

TOP_K: Final = 50
"""More than a case's memory holds of records, so that nothing is missing because of it."""
WORD_BUDGET: Final = 5000

T = TypeVar("T")

_MEANS: Final[dict[str, Means]] = {"copy": "copy", "replay": "replay"}


class NotApplicableError(Exception):
    """A demand means nothing for this memory; the message says why."""


class Line:
    """One lane with its memory, and the branches that are made of it. Every call has a deadline; whatever fails is a
    CallError or a MemorySystemError with the reason."""

    def __init__(
        self,
        memory: MemorySystem,
        context: LaneContext,
        declared: Capabilities,
        timeout_s: float,
        isolating: Isolating | None,
    ) -> None:
        self.memory = memory
        self.context = context
        self.ledger = Ledger()
        self.now_us = 0
        self._declared = declared
        self._timeout_s = timeout_s
        self._brancher = brancher_of(memory, context.lane, context.stream, timeout_s, isolating)
        self._open: list[MemorySystem] = []
        self._main_is_open = True

    async def ingest(self, segment: Segment, *, keep: bool = False) -> Delta:
        """Ingest into the lane's memory. `keep`: branches will be made on this segment."""
        await self._brancher.settle()
        delta = await self.ingest_into(self.memory, segment)
        self.now_us = segment.end_time_us
        await self._brancher.keep(segment, delta, needed=keep and self.branches)
        self.ledger.apply(f"ingest of segment {segment.segment}", delta)
        return delta

    async def ingest_into(self, memory: MemorySystem, segment: Segment) -> Delta:
        """Ingest into a branch, which the ledger says nothing of."""
        what = f"ingest of segment {segment.segment}"
        delta = await _called(what, lambda: memory.ingest(segment), Delta, self._timeout_s)
        check_writable(what, delta)
        return delta

    async def ask(
        self,
        text: str,
        memory: MemorySystem | None = None,
        *,
        now_us: int | None = None,
        phase: Literal["R1", "R2"] = "R1",
    ) -> Answer:
        """Ask the lane's memory, or a branch."""
        asked = memory or self.memory
        request = Request(text=text, phase=phase, event_time_us=self.now_us if now_us is None else now_us)
        answer = await _called("answer", lambda: asked.answer(request), Answer, self._timeout_s)
        check_writable("answer", answer)
        return answer

    async def commit(self, memory: MemorySystem | None = None, name: str = "s0/e0") -> Delta:
        """Let a memory take in the conversation that has `world.TALK`."""
        asked = memory or self.memory
        interaction = talk(name, self.now_us)
        delta = await _called("commit", lambda: asked.commit(interaction), Delta, self._timeout_s)
        check_writable("commit", delta)
        return delta

    @property
    def branches(self) -> bool:
        """Branches can be made of this memory."""
        return self._declared.fork != "none"

    async def branch(self, segment: int) -> MemorySystem:
        """A branch on a segment that was kept; closed with the lane."""
        return self._take(await self._brancher.branch(segment, Spent()))

    async def branch_or_main(self, segment: int) -> MemorySystem:
        """A branch, or where there are none the lane's memory itself: what a commit goes to."""
        return await self.branch(segment) if self.branches else self.memory

    async def twin(self, memory: MemorySystem, segment: int) -> MemorySystem:
        """Another branch like this one, which has taken nothing in yet; closed with the lane."""
        return self._take(await self._brancher.twin(memory, segment, Spent()))

    async def close_main(self) -> None:
        """Close the lane's memory, with its folder if it has one, and leave the branches."""
        if self._main_is_open:
            self._main_is_open = False
            await self._brancher.aclose()

    async def aclose(self) -> None:
        """Close all."""
        await self._brancher.close(self._open)
        self._open.clear()
        await self.close_main()

    def _take(self, memory: MemorySystem) -> MemorySystem:
        self._open.append(memory)
        return memory


class Bench:
    """Opens memories of the system that is checked.

    `factory`: a lane's context → its memory. `make_context`: the suite's context → with what else it is to have.
    `folder`: where folders of memories may lie. `switch`: the models. `timeout_s`: how long one call may take."""

    def __init__(
        self,
        factory: Callable[[LaneContext], MemorySystem],
        declared: Capabilities,
        make_context: Callable[[LaneContext], LaneContext],
        folder: Path,
        switch: Switch,
        timeout_s: float,
    ) -> None:
        self.declared = declared
        self.switch = switch
        self._factory = factory
        self._make_context = make_context
        self._folder = folder
        self._timeout_s = timeout_s
        self._numbers = itertools.count()
        self._reproducible: bool | None = None

    @asynccontextmanager
    async def line(
        self,
        seen: Iterable[Segment],
        *,
        stream: str = STREAM,
        lane: str = "",
        top_k: int = TOP_K,
        responder: Responder | None = None,
    ) -> AsyncIterator[Line]:
        """A new, empty memory, closed at the end. `seen`: all that it will ingest, of which a privileged one is handed
        the facts. `lane`: its lane's name, by default one that nobody had. Raises InputError for options that can't
        be, BrokenError for a memory that can't be made."""
        evidence = anchors(stream, list(seen)) if self.declared.privileged else ()
        context = LaneContext(
            lane=lane or f"conformance/{next(self._numbers)}@{stream}",
            stream=stream,
            top_k=top_k,
            word_budget=WORD_BUDGET,
            anchors=evidence,
            responder=responder,
            model_of=self.switch.model,
            embedder_of=self.switch.embedder,
        )
        context = self._make_context(context)

        def open_at(lane: str, stream: str, directory: Path) -> MemorySystem:
            return self._factory(replace(context, lane=lane, stream=stream, directory=directory))

        means = _MEANS.get(self.declared.fork)
        isolating = None if means is None else Isolating(means, self._folder, open_at)
        if self.declared.in_folder:
            context = replace(context, directory=await anyio.to_thread.run_sync(new_folder, self._folder))
        try:
            memory = self._factory(context)
        except InputError:
            raise
        except Exception as failure:
            raise BrokenError(f"it could not be made: {describe(failure)}") from failure
        line = Line(memory, context, self.declared, self._timeout_s, isolating)
        try:
            if isinstance(memory, Preparable):
                await _called("prepare", memory.prepare, object, self._timeout_s)
            yield line
        finally:
            await line.aclose()
            if context.directory is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(shutil.rmtree, context.directory, True)

    async def deltas(self, seen: Sequence[Segment], *, lane: str) -> list[Delta]:
        """Those that a new memory gives of that lane."""
        async with self.line(seen, lane=lane) as line:
            return [await line.ingest(segment) for segment in seen]

    async def is_reproducible(self, seen: Sequence[Segment]) -> bool:
        """Two new memories give the same deltas of these segments; found out once. Other cases compare deltas only
        where they do: the case `rebuild` says the rest."""
        if self._reproducible is None:
            self._reproducible = False
            with suppress(CallError, MemorySystemError, BrokenError):
                once, again = [await self.deltas(seen, lane=f"conformance/r@{STREAM}") for _ in range(2)]
                self._reproducible = [d.records for d in once] == [d.records for d in again]
        return self._reproducible


async def at_once(*functions: Callable[[], Awaitable[object]]) -> None:
    """Run them side by side to their ends; what the first of them raises then is raised."""
    failures: dict[int, Exception] = {}

    async def run(number: int) -> None:
        try:
            await functions[number]()
        except (BrokenError, CallError, MemorySystemError) as failure:
            failures[number] = failure

    async with anyio.create_task_group() as group:
        for number in range(len(functions)):
            group.start_soon(run, number)
    if failures:
        raise failures[min(failures)]


async def _called(what: str, function: Callable[[], Awaitable[T]], gives: type[T], timeout_s: float) -> T:
    try:
        return await call(function, gives, timeout_s)
    except CallError as failure:
        raise CallError(f"{what}: {failure}") from failure
