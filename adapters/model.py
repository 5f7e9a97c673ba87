"""The language-model seam: what a model is asked, and what it says. No I/O: `adapters.endpoints` does that.

Judges, the answers of memory systems, `rag_ext` and the construction of anchors ask models through this alone, so that
all calls are cached, limited, retried and counted in one way.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a prompt. `extra`: its further fields, as they are, such as a call of a tool."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str
    extra: dict[str, Any] = {}


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model. Equal asks to one model have one answer, which the cache keeps.

    `vote`: which of several independent answers to the same messages this is; a seed is moved by it. `temperature`,
    `seed`: None takes the endpoint's own. `schema`: the JSON schema that the answer has to fit, set by `Model.ask_for`.
    `extra`: further parameters of the request, as they are; a JSON form that stands there as `response_format` is seen
    to. `whole`: the asker takes the answer whatever its `Said.finish`: a call of a tool, and what was cut off at the
    ask's own `max_tokens` if no JSON was asked for.
    """

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    vote: int = 0
    schema: dict[str, Any] | None = None
    extra: dict[str, Any] = {}
    whole: bool = False


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one answer took. `cost`: in the currency of the endpoint's prices. `seconds`: of the attempt that succeeded,
    from sending to the last byte; `first_token_s`: to the first token, None where it was not streamed. A cached answer
    took nothing: its tokens are those that it took once, and `seconds`, `cost` and `attempts` are 0. `tokens_known`:
    False where the server did not say how many tokens there were: 0 is no count then, and the cost lacks them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    tokens_known: bool = True
    cost: float = 0.0
    seconds: float = 0.0
    first_token_s: float | None = None
    attempts: int = 1
    cached: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said, whole, and what it took. `finish`: why it ended; `tool_calls`: as the server gives them; both
    are told of a `whole` ask alone."""

    text: str
    usage: ModelUsage = ModelUsage()
    finish: str = "stop"
    tool_calls: tuple[dict[str, Any], ...] = ()


class Model(Protocol):
    """A language model. Every call is tried again by the endpoint's own rules; what still fails raises ModelError."""

    @property
    def name(self) -> str:
        """Model, endpoint and sampling in one text, without any key: stands in the run's identity."""

    async def ask(self, ask: Ask) -> Said:
        """What the model says. Raises ModelError."""

    async def ask_for(self, ask: Ask, kind: type[T]) -> tuple[T, Said]:
        """The same as a value of `kind`, a msgspec type. An answer that doesn't fit is asked for again, then raises
        ModelError."""
