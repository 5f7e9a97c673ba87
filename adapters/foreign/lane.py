"""The foreign process of one lane, and the states that the lane's memories have been in.

A state never changes: to take something in, the host forks it and the fork takes it in, which is the next state, or is
let go of where that failed. So a fork of a memory is another holder of its state, and costs nothing; and a state can be
built again from the one before and the journal, when the process has died.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec
import structlog

from adapters.foreign.catalogue import Known
from adapters.foreign.host.memories import Task
from adapters.foreign.journal import Change, Journal, Place
from adapters.foreign.process import ForeignProcess, start_process
from adapters.gateway import LaneGateway
from adapters.memory import Answer, Delta, LaneContext, Request, Segment
from adapters.systems.http_agent import HttpMemory
from simulator.errors import MemorySystemError, ModelError, ProcessError

T = TypeVar("T")

_CALL_S: Final = 6 * 3600.0
"""Ends a hang, and nothing else: who calls has a deadline of their own."""
_TRIES: Final = 3
_BORNE_DEATHS: Final = 2
"""In one call: one that happened before it and shows only now, and one meanwhile."""
_LET_GO_S: Final = 5.0

_log = structlog.get_logger(__name__)


class State:
    """A memory as it is after one change. `parent` and `place`: what it comes from, None for the empty one. `said`: a
    digest of what the change gave. `agent`: the memory in a process, which may have died."""

    __slots__ = ("agent", "holders", "parent", "place", "said")

    def __init__(self, parent: State | None = None, place: Place | None = None, said: bytes = b"") -> None:
        self.parent = parent
        self.place = place
        self.said = said
        self.agent: HttpMemory | None = None
        self.holders = 0


class ForeignLane:
    """All memories of one lane. `task`: what the process is started with, but for its folder, which is inside
    `folder`."""

    def __init__(
        self,
        known: Known,
        context: LaneContext,
        gateway: LaneGateway,
        python: Path,
        task: Task,
        folder: Path,
    ) -> None:
        self._known = known
        self._context = context
        self._gateway = gateway
        self._python = python
        self._task = task
        folder = folder.absolute()  # its process has another working directory
        self._folder = folder
        self._journal = Journal(folder / "journal.jsonl")
        self._log = (context.logs or folder) / f"{quote(context.lane, safe=' @=,:+')}.log"
        self._process: ForeignProcess | None = None
        self._agents: set[HttpMemory] = set()
        """Those in the process that runs, known there or not yet."""
        self._building = anyio.Lock()
        self._empty = State()
        self._holders = 0

    def hold(self, state: State | None = None) -> State:
        """One more memory is in this state; by default in the empty one."""
        state = state or self._empty
        state.holders += 1
        self._holders += 1
        return state

    async def release(self, state: State) -> None:
        """One memory less is in this state. With the last one the process ends."""
        state.holders -= 1
        self._holders -= 1
        agent = state.agent
        if not state.holders and state is not self._empty and agent is not None:
            state.agent = None
            await self._let_go(agent)
        if not self._holders:
            await self._stop()

    async def prepare(self) -> None:
        """Start the process, with an empty memory. Raises MemorySystemError."""
        async with self._building:
            await self._be_running()
            assert self._empty.agent is not None
            assert self._process is not None
            try:
                await self._empty.agent.announce()
            except MemorySystemError as error:
                raise self._failed("start", error.reason, self._process) from error

    async def change(self, state: State, change: Change) -> tuple[State, Delta]:
        """The state after a change, held once, and what was newly written. Raises MemorySystemError and ModelError, and
        then there is no such state."""
        place = await self._journal.append(change)
        agent, delta = await self._with(state, _operation(change), lambda agent: self._grow(agent, change))
        after = State(state, place, _digest(delta))
        after.agent = agent
        return self.hold(after), delta

    async def search(self, state: State, request: Request) -> Answer:
        """What is found for a request: an answer without a text. Raises as `change` does."""

        async def search(agent: HttpMemory) -> Answer:
            async with self._gateway.stage(agent.name, "answer") as stage:
                try:
                    answer = await agent.answer(request)
                except MemorySystemError:
                    stage.check()  # the cause, where the system's own error is the consequence
                    raise
            return msgspec.structs.replace(answer, usage=stage.usage)

        return await self._with(state, "answer", search)

    # --- in the process -----------------------------------------------------------------------------------

    async def _with(self, state: State, operation: str, work: Callable[[HttpMemory], Awaitable[T]]) -> T:
        """Work on a state's memory; again, on one that was built again, where the process dies meanwhile."""
        deaths = 0
        while True:
            process = None
            try:
                agent = await self._alive(state)
                process = self._process
                return await work(agent)
            except ModelError:
                raise
            except (
                Exception
            ) as error:  # a call beside this one may have closed its connections, and begun anew
                process = process or self._process
                if process is None:  # it could not be started
                    raise
                if not process.ended:
                    if isinstance(error, MemorySystemError):
                        raise self._failed(operation, error.reason, process) from error
                    raise
                words = await anyio.to_thread.run_sync(process.last_words)
                deaths += 1
                if deaths > _BORNE_DEATHS:
                    raise self._failed(operation, words, process) from error
                _log.warning("foreign_process_died", lane=self._context.lane, operation=operation, how=words)

    async def _grow(self, agent: HttpMemory, change: Change) -> tuple[HttpMemory, Delta]:
        """A fork that has taken in a change."""
        fork = agent.fork()
        self._agents.add(fork)
        try:
            return fork, await self._take_in(fork, change)
        except BaseException:
            await self._let_go(fork)
            raise

    async def _take_in(self, agent: HttpMemory, change: Change) -> Delta:
        segment = change.segment if isinstance(change, Segment) else None
        async with self._gateway.stage(agent.name, _operation(change), segment=segment) as stage:
            try:
                if isinstance(change, Segment):
                    delta = await agent.ingest(change)
                else:
                    delta = await agent.commit(change)
            except MemorySystemError:
                stage.check()  # as above
                raise
        return msgspec.structs.replace(delta, usage=stage.usage)

    async def _alive(self, state: State) -> HttpMemory:
        """The memory of a state, in a process that runs. Raises MemorySystemError and ModelError."""
        async with self._building:
            await self._be_running()
            return self._agent_of(state) or await self._build(state)

    def _agent_of(self, state: State) -> HttpMemory | None:
        return state.agent if state.agent in self._agents else None

    async def _build(self, state: State) -> HttpMemory:
        """Build a state again, by the changes since the last one that is there; each on a fork, as it was: a store that
        is copied may not be the same to the last bit. Those between that nobody holds are not kept."""
        missing: list[State] = []
        before = state
        while (agent := self._agent_of(before)) is None:
            missing.append(before)
            assert before.parent is not None
            before = before.parent
        for after in reversed(missing):
            assert after.place is not None
            change = await self._journal.read(after.place)
            after.agent, delta = await self._grow(agent, change)
            if not before.holders and before is not self._empty:
                before.agent = None
                await self._let_go(agent)
            if _digest(delta) != after.said:
                await self._let_go(after.agent)
                reason = "built again, it wrote other records than before its process died"
                raise MemorySystemError(self._context.lane, _operation(change), reason)
            before, agent = after, after.agent
        return agent

    async def _be_running(self) -> None:
        """Start the process, if none runs."""
        if self._process is not None and not self._process.ended:
            return
        await self._stop()
        task = self._task._replace(directory=str(self._folder / "process"))
        try:
            self._process = await start_process(self._python, task, self._known.environment, self._log)
        except ProcessError as error:
            raise MemorySystemError(self._context.lane, "start", f"{self._known.name}: {error}") from error
        empty = HttpMemory(self._context, url=self._process.url, timeout_s=_CALL_S, attempts=_TRIES)
        self._agents.add(empty)
        self._empty.agent = empty

    async def _stop(self) -> None:
        """End the process, and let go of the connections to it."""
        with anyio.CancelScope(shield=True):
            for agent in self._agents:
                self._gateway.forget(agent.name)
                await agent.forget()
            self._agents.clear()
            if self._process is not None:
                await self._process.aclose()
                self._process = None
                await anyio.to_thread.run_sync(shutil.rmtree, self._folder / "process", True)

    async def _let_go(self, agent: HttpMemory) -> None:
        """Tell the host that a memory is needed no more, even when cancelled."""
        self._agents.discard(agent)
        self._gateway.forget(agent.name)
        with anyio.move_on_after(_LET_GO_S, shield=True):
            if self._process is None or self._process.ended:
                await agent.forget()
            else:
                await agent.aclose()

    def _failed(self, operation: str, reason: str, process: ForeignProcess) -> MemorySystemError:
        """The reason without the port, which is another one each time."""
        return MemorySystemError(self._context.lane, operation, reason.replace(process.url, self._known.name))


def _operation(change: Change) -> str:
    return "ingest" if isinstance(change, Segment) else "commit"


def _digest(delta: Delta) -> bytes:
    return hashlib.sha256(msgspec.json.encode(delta.records)).digest()
