"""The models behind a memory that is checked: they answer by rule, or are those that were configured, and they fail at
will."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.embedder import Embedder
from adapters.endpoints.parsing import UnfitError, parse, schema_of
from adapters.model import Ask, Model, ModelUsage, Said
from simulator.errors import ModelError
from simulator.text import tokens

T = TypeVar("T")


class RuleModel:
    """Says by rule what it was shown: the lines of the last message, tags left out. Where it is asked for JSON, the
    lines stand in each list of texts of the schema, and in `facts` without one."""

    def __init__(self, name: str = "rule") -> None:
        self.name = name

    async def ask(self, ask: Ask) -> Said:
        """The same for the same messages."""
        lines = [
            line.strip() for line in ask.messages[-1].content.splitlines() if line.strip() and line[0] != "<"
        ]
        text = "\n".join(lines)
        if ask.schema is not None:
            text = msgspec.json.encode(_filled(ask.schema, ask.schema.get("$defs", {}), lines)).decode()
        elif any("json" in message.content.lower() for message in ask.messages):
            text = msgspec.json.encode({"facts": lines}).decode()
        prompt = sum(len(message.content) for message in ask.messages)
        return Said(text=text, usage=ModelUsage(prompt_tokens=prompt // 4, completion_tokens=len(text) // 4))

    async def ask_for(self, ask: Ask, kind: type[T]) -> tuple[T, Said]:
        """The same as a value. Raises ModelError for a kind that the rule doesn't fill."""
        said = await self.ask(msgspec.structs.replace(ask, schema=schema_of(kind)))
        try:
            return parse(said.text, kind), said
        except UnfitError as error:
            raise ModelError(self.name, "nonsense", str(error)) from error


class RuleEmbedder:
    """A text's vector is the normalised sum of one pseudo-random vector for each of its tokens."""

    dimensions: Final = 256

    def __init__(self, name: str = "rule") -> None:
        self.name = name

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row for each text."""
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            total = np.full(self.dimensions, 1e-3)
            for token in tokens(text):
                seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:8], "big")
                total += np.random.default_rng(seed).standard_normal(self.dimensions)
            rows[row] = total / np.linalg.norm(total)
        return rows


class Switch:
    """All models of a check, and whether they answer. `model_of`, `embedder_of`: where they come from; by default they
    answer by rule. Every call of theirs is counted, and so is by which name it went."""

    def __init__(
        self,
        model_of: Callable[[str], Model] = RuleModel,
        embedder_of: Callable[[str], Embedder] = RuleEmbedder,
    ) -> None:
        self._model_of = model_of
        self._embedder_of = embedder_of
        self._left: int | None = None
        self.calls = 0
        self.prompts: list[str] = []
        """What models were asked, without what they should answer."""
        self.models: set[str] = set()
        self.embedders: set[str] = set()

    @contextmanager
    def outage(self, after: int = 0) -> Iterator[None]:
        """Meanwhile each call fails, but for the first `after` of them."""
        self._left = after
        try:
            yield
        finally:
            self._left = None

    def model(self, name: str) -> Model:
        """A model that fails when it is to. Raises ConfigError where there is none of that name."""
        self.models.add(name)
        return _Model(self._model_of(name), self)

    def embedder(self, name: str) -> Embedder:
        """An embedder that fails when it is to. Raises ConfigError as `model` does."""
        self.embedders.add(name)
        return _Embedder(self._embedder_of(name), self)

    def count(self, name: str) -> None:
        """A call begins. Raises ModelError in an outage."""
        self.calls += 1
        if self._left is None:
            return
        if self._left == 0:
            raise ModelError(name, "unavailable", "the conformance suite has switched it off")
        self._left -= 1


class _Model:
    def __init__(self, model: Model, switch: Switch) -> None:
        self._inner = model
        self._switch = switch

    @property
    def name(self) -> str:
        return self._inner.name

    def _note(self, ask: Ask) -> None:
        self._switch.count(self.name)
        self._switch.prompts.append("\n".join(message.content for message in ask.messages))

    async def ask(self, ask: Ask) -> Said:
        self._note(ask)
        return await self._inner.ask(ask)

    async def ask_for(self, ask: Ask, kind: type[T]) -> tuple[T, Said]:
        self._note(ask)
        return await self._inner.ask_for(ask, kind)


class _Embedder:
    def __init__(self, embedder: Embedder, switch: Switch) -> None:
        self._inner = embedder
        self._switch = switch

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def dimensions(self) -> int:
        return self._inner.dimensions

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self._switch.count(self.name)
        return await self._inner.embed(texts)


def _filled(schema: dict[str, Any], known: dict[str, Any], lines: list[str]) -> Any:
    """A value that fits a schema, made of these lines."""
    if "$ref" in schema:
        return _filled(known[schema["$ref"].rpartition("/")[2]], known, lines)
    if "anyOf" in schema:
        return _filled(schema["anyOf"][0], known, lines)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: _filled(part, known, lines) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [_filled(schema["items"], known, [line]) for line in lines]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return "\n".join(lines)
