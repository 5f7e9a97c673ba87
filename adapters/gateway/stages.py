"""One operation of a memory, and what came of the calls that its system made meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import msgspec

from adapters.metering import Meter, added, spent
from adapters.model import ModelUsage
from simulator.errors import ModelError
from simulator.events import Usage


class Account(msgspec.Struct, kw_only=True):
    """What the calls of one operation of a lane came to, in all its stages and branches. `calls`, `cached`, tokens,
    `cost` and `seconds`: of chat. `texts`, `embedding_tokens`, `embedding_cost`: of embeddings, whose tokens are 0
    where the vectors were in the cache or the bundled encoder made them. `failed`: calls that failed for good."""

    lane: str
    operation: str
    calls: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    texts: int = 0
    embedding_tokens: int = 0
    embedding_cost: float = 0.0


class Stage:
    """One operation of one memory, and what its system asked meanwhile. `memory`, `operation`, `segment`: which."""

    def __init__(
        self, memory: str, operation: str, segment: int | None, account: Account, meter: Meter | None
    ) -> None:
        self.memory = memory
        self.operation = operation
        self.segment = segment
        self._account = account
        self._meter = meter
        self._usage = Usage()
        self._failed: dict[bytes, ModelError] = {}
        self._numbers: dict[bytes, set[int]] = {}
        self._under_way = 0
        self._idle = anyio.Event()

    @property
    def usage(self) -> Usage:
        """Of the chat calls so far, cached ones too."""
        return self._usage

    @property
    def failures(self) -> tuple[str, ...]:
        """Why calls failed for good. One whose equal succeeded later is none."""
        return tuple(str(error) for error in self._failed.values())

    def check(self) -> None:
        """Raises ModelError for the first call that failed for good."""
        for error in self._failed.values():
            raise ModelError(error.model, error.failure, error.reason)

    # --- for who serves the calls -------------------------------------------------------------------------

    @contextmanager
    def call(self) -> Iterator[None]:
        """While one call is under way."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def settled(self) -> None:
        """Wait for the calls under way: each ends by its endpoint's own deadline."""
        while self._under_way:
            self._idle = anyio.Event()
            await self._idle.wait()

    @contextmanager
    def number(self, request: bytes, *, again: bool) -> Iterator[int]:
        """How many equal requests of this stage came before: a system that asks again wants another answer. `again`:
        its client only sends again what got no answer, which is the same request. One that fails does not count."""
        taken = self._numbers.setdefault(request, set())
        number = max(taken) if again and taken else next(n for n in range(len(taken) + 1) if n not in taken)
        taken.add(number)
        try:
            yield number
        except BaseException:
            taken.discard(number)
            raise
        taken.add(number)  # one that was sent again may have failed meanwhile, and gone well here

    def spent(self, usage: ModelUsage) -> None:
        """A chat was answered so."""
        self._usage = added(self._usage, spent(usage, self._meter))
        account = self._account
        account.calls += 1
        account.cached += usage.cached
        account.prompt_tokens += usage.prompt_tokens
        account.completion_tokens += usage.completion_tokens
        account.cost += usage.cost
        account.seconds += usage.seconds

    def embedded(self, texts: int, meter: Meter) -> None:
        """Vectors were asked for; `meter`: what that took."""
        account = self._account
        account.texts += texts
        account.embedding_tokens += meter.embedding_tokens
        account.embedding_cost += meter.embedding_cost

    def answered(self, request: bytes) -> None:
        """A request has its answer: that it failed before is over."""
        self._failed.pop(request, None)

    def fail(self, request: bytes, error: ModelError) -> None:
        """A request failed for good."""
        self._account.failed += 1
        if error.failure == "nonsense":
            # what the model said may be quoted there, and reasons travel where agents read
            reason = "its answers can't be used: empty, cut off, or not the JSON that was asked for (the log has it)"
            error = ModelError(error.model, error.failure, reason)
        self._failed[request] = error

    def take_failures(self, other: Stage) -> None:
        """Fail by what failed another."""
        self._failed |= other._failed
        other._failed.clear()
