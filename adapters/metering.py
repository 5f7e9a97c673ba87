"""What models took while one operation ran: an ingest, an answer, a commit or a judgment.

Tokens and calls are the same in equal runs and travel in the events' `Usage`. How long it took and what came from the
cache are not, so these travel in headers: whoever starts the operation opens a meter, and whoever asks a model notes
what that took, in whatever task it does so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from adapters.model import ModelUsage
from simulator.events import Usage

MODEL_US = "model_us"
"""Header: microseconds that the models' answers took, added up; cached ones took none."""
MODEL_CACHED = "model_cached"
"""Header: how many of the answers came from the cache."""


class Meter:
    """What has been noted since it was opened."""

    def __init__(self) -> None:
        self.began_s = time.perf_counter()
        self.calls = 0
        self.cached = 0
        self.seconds = 0.0
        self.embedding_tokens = 0
        self.embedding_cost = 0.0

    def note(self, usage: ModelUsage) -> None:
        """One answer was had."""
        self.calls += 1
        self.cached += usage.cached
        self.seconds += usage.seconds

    def headers(self) -> dict[str, int]:
        """For the record of the operation's result; nothing where no model was asked."""
        if not self.calls:
            return {}
        return {MODEL_US: round(self.seconds * 1_000_000), MODEL_CACHED: self.cached}


_open: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered() -> Iterator[Meter]:
    """A meter for what runs inside, in this task and those that it starts."""
    token = _open.set(meter := Meter())
    try:
        yield meter
    finally:
        _open.reset(token)


def open_meter() -> Meter | None:
    """The meter of this task's operation: for one whose answers are had in another's tasks."""
    return _open.get()


def spent(usage: ModelUsage, meter: Meter | None = None) -> Usage:
    """Note what one answer took, on this meter or else that of the task; gives it as events say it."""
    if (meter := meter or _open.get()) is not None:
        meter.note(usage)
    return Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens, calls=1)


def embedded(tokens: int, cost: float) -> None:
    """Note what vectors took. They are no part of the events' usage, which is that of answers."""
    if (meter := _open.get()) is not None:
        meter.embedding_tokens += tokens
        meter.embedding_cost += cost


def first_token_s(usage: ModelUsage) -> float | None:
    """How long after the operation began the answer's first token was there, asked as soon as the answer is: what came
    before the call counts, such as a search. None where it was not streamed, came from the cache, or is not metered."""
    meter = _open.get()
    if meter is None or usage.first_token_s is None:
        return None
    rest_s = usage.seconds - usage.first_token_s
    return max(0.0, time.perf_counter() - meter.began_s - rest_s)


def added(*usages: Usage) -> Usage:
    """Several usages as one."""
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        calls=sum(usage.calls for usage in usages),
    )


def estimated_tokens(text: str) -> int:
    """Tokens by rule, the same for every model and language: one for every four bytes of UTF-8, rounded up. For
    budgets and estimates; what a call really took is what the server says."""
    return -(-len(text.encode()) // 4)
