"""What asking came to: calls, tokens and money, by model and by role."""

from __future__ import annotations

import msgspec

from adapters.endpoints.settings import Price

PER_MILLION = 1e6


class Tally(msgspec.Struct, kw_only=True):
    """The calls of one role to one model. A call is one question, however many tries and repairs it took; a cached one
    asked nobody. Tokens and cost are those of all replies that came, also of calls that failed in the end.

    `tries`: requests that were sent. `uncounted`: replies whose server did not say how many tokens they took: they are
    missing in tokens and cost.
    `missing`: what the cache does not have, when nothing else may be asked. `seconds`: of the tries that succeeded.
    """

    model: str
    role: str
    calls: int = 0
    cached: int = 0
    failed: int = 0
    missing: int = 0
    tries: int = 0
    uncounted: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


def cost_of(price: Price, prompt_tokens: int, completion_tokens: int) -> float:
    """In the currency of the price."""
    return (prompt_tokens * price.prompt + completion_tokens * price.completion) / PER_MILLION
