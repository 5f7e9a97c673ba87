"""All calls to one model: limited together, tried again, and given up with a reason."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import anyio
import msgspec
import structlog

from adapters.endpoints.http import Timing
from adapters.endpoints.limits import AdaptiveLimit, Bucket, Gate, Ticket
from adapters.endpoints.settings import ModelSettings
from adapters.endpoints.tally import Tally
from adapters.endpoints.wire import CallError, Dialect
from simulator.errors import ModelError

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
BYTES_PER_TOKEN = 4
"""To reserve from the tokens of a minute, before the server has counted."""

_log = structlog.get_logger(__name__)


class Counted(Protocol):
    """A reply that may say how many tokens it took."""

    @property
    def tokens(self) -> int | None:
        """Of prompt and answer; None where the server doesn't say."""


R = TypeVar("R", bound=Counted)


class Done(NamedTuple, Generic[R]):
    """A call that succeeded. `attempts`: tries, the last included; `timing`: of that one."""

    reply: R
    timing: Timing
    attempts: int


class Caller:
    """One model at one endpoint, for as long as this process asks it. `label`: what the person calls it.

    A call whose server fails is tried again after a random pause of at most 0.5, 1, 2 ... 30 s, or the one that the
    server asks for, until its attempts or its deadline are used up. Time that a call waits for our own limits counts
    for neither. Once a call was given up so and none succeeded since, the server counts as down: each call then has
    one try, and those that waited while that failed share its fate, so that a run whose server died ends soon.
    """

    def __init__(self, label: str, settings: ModelSettings, draw: random.Random | None = None) -> None:
        self.label = label
        self.settings = settings
        self.dialect = Dialect(settings.structured)
        self._gate = Gate(AdaptiveLimit(settings.max_in_flight))
        self._requests = Bucket(settings.requests_per_minute) if settings.requests_per_minute else None
        self._tokens = Bucket(settings.tokens_per_minute) if settings.tokens_per_minute else None
        self._draw = draw or random.Random()
        self._down = ""
        """Why the last call was given up, until one succeeds again."""
        self._given_up = 0
        self._succeeded = 0

    async def call(
        self,
        body_of: Callable[[], dict[str, Any]],
        send: Callable[[bytes, float], Awaitable[tuple[R, Timing]]],
        tally: Tally,
        *,
        completion_tokens: int = 0,
    ) -> Done[R]:
        """One call. `body_of` makes the request for each try, since what a server turns out not to know is left away in
        the next; `send` is one try of so many seconds. `tally`: where the tries are counted. `completion_tokens`: at
        most, for the limit by the minute. Raises ModelError."""
        age = self._gate.number()
        given_up, succeeded = self._given_up, self._succeeded
        attempts = failures = 0
        spent_s = 0.0
        before: CallError | None = None
        while True:
            body = body_of()
            content = msgspec.json.encode(body)
            async with self._gate.enter(age) as ticket:
                if self._down and self._given_up > given_up:
                    raise ModelError(self.label, "unavailable", f"not asked, since it is down: {self._down}")
                attempts += 1
                tally.tries += 1
                async with self._reserved(len(content) // BYTES_PER_TOKEN + completion_tokens) as settle:
                    began_s = time.perf_counter()
                    timeout_s = min(self.settings.timeout_s, self.settings.deadline_s - spent_s)
                    try:
                        reply, timing = await send(content, timeout_s)
                    except CallError as error:
                        failed = error
                    else:
                        settle(reply.tokens)
                        self._gate.limit.succeeded(ticket)
                        self._succeeded += 1
                        self._down = ""
                        return Done(reply, timing, attempts)
                    spent_s += time.perf_counter() - began_s
                if self._concede(failed, body):
                    continue
                self._limit(failed, ticket)
            failures += failed.failure != "busy"
            pause_s = self._pause_s(attempts, failed.retry_after_s)
            tried_out = failures >= self.settings.attempts or spent_s + pause_s >= self.settings.deadline_s
            if failed.failure in ("refused", "nonsense"):
                raise self._error(failed, attempts)
            if self._down or tried_out:
                if self._succeeded == succeeded:
                    self._down = failed.reason
                    self._given_up += 1
                cut_short = failed.status is None and timeout_s < self.settings.timeout_s
                raise self._error(failed, attempts, before if cut_short else None)
            _log.debug("try_again", model=self.label, attempt=attempts, pause_s=pause_s, reason=failed.reason)
            await anyio.sleep(pause_s)
            spent_s += pause_s
            before = failed

    def _error(self, failed: CallError, attempts: int, before: CallError | None = None) -> ModelError:
        """`before`: what the try before failed by, where the deadline left this one less time than a try has."""
        failure = "unavailable" if failed.failure == "busy" else failed.failure
        asks = f" (it asks for {failed.retry_after_s:g} s)" if failed.retry_after_s else ""
        tries = f" ({attempts} tries)" if attempts > 1 else ""
        earlier = f", and before that {before.reason}" if before is not None else ""
        return ModelError(self.label, failure, failed.reason + earlier + asks + tries)

    def _concede(self, failed: CallError, body: dict[str, Any]) -> bool:
        conceded = self.dialect.concede(failed, body)
        if conceded:
            _log.warning("model_does_without", model=self.label, now=conceded, reason=failed.reason)
        return conceded is not None

    def _limit(self, failed: CallError, ticket: Ticket) -> None:
        if failed.overloaded:
            self._gate.limit.overloaded(ticket)
        elif failed.failure == "unavailable":
            self._gate.limit.failed(ticket)

    def _pause_s(self, attempts: int, asked_s: float | None) -> float:
        """Random from nothing to the whole ("full jitter"): calls that failed together must not come back together."""
        most_s = min(FIRST_PAUSE_S * 2.0 ** (attempts - 1), LONGEST_PAUSE_S)
        if asked_s is None:
            return self._draw.uniform(0, most_s)
        return asked_s + self._draw.uniform(0, min(FIRST_PAUSE_S, asked_s))

    @asynccontextmanager
    async def _reserved(self, tokens: int) -> AsyncIterator[Callable[[int | None], None]]:
        """Wait for a request and its tokens of the minute. Gives what to tell the tokens that it really took."""
        waits_s = [0.0]
        if self._requests is not None:
            waits_s.append(self._requests.reserve(1, time.monotonic()))
        if self._tokens is not None:
            waits_s.append(self._tokens.reserve(tokens, time.monotonic()))
        taken = 0

        def settle(really: int | None) -> None:
            nonlocal taken
            taken = tokens if really is None else really

        try:
            await anyio.sleep(max(waits_s))
            yield settle
        finally:
            if self._tokens is not None:
                self._tokens.give_back(tokens - taken, time.monotonic())
