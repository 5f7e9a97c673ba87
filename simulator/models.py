"""Which models a run asks for what: judges, answers and the memory systems' own; and their part of its identity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from adapters.answering import ModelResponder
from adapters.embedder import Embedder
from adapters.endpoints import Models, ModelSettings, find_model
from adapters.gateway import Gateway
from adapters.memory import Responder
from adapters.model import Ask, Model, Said
from adapters.prompt import ADAPTER_PROMPTS, PromptLanguage, load_prompt
from adapters.registry import SystemSpec, capabilities
from judges.by_model import model_judges
from judges.deterministic import official_judges
from judges.judge import Case, Judge, ProbeCase
from judges.panel import JudgePanel
from judges.probes_by_model import model_probe_judges
from judges.probes_by_rule import probe_judges
from judges.several import together
from simulator.errors import ConfigError
from simulator.events import Metric, ModelUse

T = TypeVar("T")

OFFICIAL: Final = "official"
"""The judge that needs no model; no model can be called so."""

_MODEL_JUDGE_DEADLINE_S: Final = 6 * 3600.0
"""Ends a hang, and nothing else: endpoints end their calls by deadlines of their own. Hundreds of votes may wait for a
server that bears one at a time, and a verdict is not missing because its votes were at the end of the queue."""


class ModelSource(Protocol):
    """Models by the name that they are configured by, and the role that they are asked in: `adapters.endpoints.Models`,
    or those that are only spoken of. Raises ConfigError."""

    def model(self, name: str, *, role: str) -> Model:
        """A language model."""

    def embedder(self, name: str, *, role: str) -> Embedder:
        """An embeddings model."""


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a process comes to its models: the file that configures them (None: `models.toml` in the current folder), the
    cache (None: the person's own), and whether that alone is asked."""

    models: Path | None = None
    cache: Path | None = None
    offline: bool = False


DEFAULT_MODELS: Final = ModelOptions()


class NamedModel:
    """A model that is only spoken of: of a run that is planned and not begun, or of no run."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def ask(self, ask: Ask) -> Said:
        """Nobody is there."""
        raise NotImplementedError(f"{self.name} was not opened")

    async def ask_for(self, ask: Ask, kind: type[T]) -> tuple[T, Said]:
        """Nobody is there."""
        raise NotImplementedError(f"{self.name} was not opened")


class _Named:
    def __init__(self, settings: Mapping[str, ModelSettings]) -> None:
        self._settings = settings

    def model(self, name: str, *, role: str) -> Model:
        return NamedModel(find_model(self._settings, name).name)

    def embedder(self, name: str, *, role: str) -> Embedder:
        raise NotImplementedError(f"{find_model(self._settings, name, 'embeddings').name} was not opened")


def named(settings: Mapping[str, ModelSettings]) -> ModelSource:
    """Models to speak of."""
    return _Named(settings)


NO_MODELS: Final = named({})
"""Where none is configured."""


@asynccontextmanager
async def open_models(
    settings: Mapping[str, ModelSettings], cache: Path | None, *, offline: bool, asked: bool
) -> AsyncIterator[ModelSource]:
    """Models to ask, with the cache of their answers; where none is `asked`, nothing is opened. Raises ConfigError."""
    if not asked:
        yield named(settings)
        return
    async with Models(settings, cache=cache, offline=offline) as models:
        yield models


@asynccontextmanager
async def gateway_for(systems: Iterable[SystemSpec]) -> AsyncIterator[Gateway | None]:
    """The models over HTTP where one of these systems asks them so; otherwise no port is opened. Raises ConfigError."""
    asking = [spec.label for spec in systems if capabilities(spec).gateway]
    if not asking:
        yield None
        return
    try:
        from adapters.gateway.server import open_gateway
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise ConfigError(
            f"{asking[0]} needs {error.name}, which is not installed: pip install 'egostream[systems]' brings it"
        ) from error
    async with open_gateway() as gateway:
        yield gateway


def judge_panel(
    judges: Sequence[str],
    metrics: Iterable[Metric],
    source: ModelSource,
    *,
    votes: int,
    language: PromptLanguage,
) -> JudgePanel[Case]:
    """The judges named: `official`, or models by name; several judge every case together. Raises ConfigError."""
    members: dict[str, Sequence[Judge[Case]]] = {}
    for name in judges:
        if name in members:
            raise ConfigError(f"the judge {name} is named twice: more votes of one judge are --votes")
        members[name] = (
            official_judges()
            if name == OFFICIAL
            else model_judges(source.model(name, role=f"judge.{name}"), name, votes=votes, language=language)
        )
    if not members:
        raise ConfigError("no judge is named")
    if all(name == OFFICIAL for name in members):
        return JudgePanel(together(members), metrics)
    deadline_s = _MODEL_JUDGE_DEADLINE_S
    return JudgePanel(together(members, deadline_s=deadline_s), metrics, deadline_s=deadline_s + 60)


def probe_panel(
    judges: Sequence[str],
    metrics: Iterable[Metric],
    source: ModelSource,
    *,
    votes: int,
    language: PromptLanguage,
) -> JudgePanel[ProbeCase]:
    """The judges of probes: what needs no model is judged without one, the rest by the one that is named. Raises
    ConfigError."""
    wanted = frozenset(metrics)
    names = [name for name in judges if name != OFFICIAL]
    if len(names) > 1:
        raise ConfigError(f"one model judges probes, and {len(names)} are named: {', '.join(names)}")
    members = [*probe_judges()]
    for name in names:
        model = source.model(name, role=f"judge.{name}")
        members += model_probe_judges(model, name, votes=votes, language=language)
    members = [judge for judge in members if judge.metrics & wanted]
    if not names:
        return JudgePanel(members, wanted)
    return JudgePanel(members, wanted, deadline_s=_MODEL_JUDGE_DEADLINE_S)


def responder_of(
    answers: str | None, source: ModelSource, *, token_budget: int, seed: int, language: PromptLanguage
) -> ModelResponder | None:
    """What answers for memory systems; None where they extract. Raises ConfigError."""
    if answers is None:
        return None
    return ModelResponder(
        source.model(answers, role="answers"), token_budget=token_budget, seed=seed, language=language
    )


def uses_of(
    settings: Mapping[str, ModelSettings],
    systems: Iterable[SystemSpec],
    judges: Iterable[str],
    answers: str | None,
) -> dict[str, ModelUse]:
    """What is asked of models → the model and its prices. Raises ConfigError for one that is not configured."""
    names = {f"memory.{spec.label}": capabilities(spec).model for spec in systems}
    names |= {"answers": answers or ""}
    names |= {f"judge.{name}": name for name in judges if name != OFFICIAL}
    uses = {use: _use(settings, name) for use, name in names.items() if name}
    embedders = {f"embedder.{spec.label}": capabilities(spec).embedder for spec in systems}
    return uses | {use: _use(settings, name, "embeddings") for use, name in embedders.items() if name}


def _use(settings: Mapping[str, ModelSettings], name: str, kind: str = "chat") -> ModelUse:
    price = find_model(settings, name, kind).price_per_million
    return ModelUse(model=name, prompt_price=price.prompt, completion_price=price.completion)


def system_identity(
    settings: Mapping[str, ModelSettings], systems: Iterable[SystemSpec], language: PromptLanguage
) -> dict[str, str]:
    """`memory.<label>` → the model and the prompts that a system asks it with; `embedder.<label>` → the model that
    makes its vectors; `implementation.<label>` → what else makes it another system. Raises ConfigError."""
    found: dict[str, str] = {}
    for spec in systems:
        declared = capabilities(spec)
        if declared.model:
            prompts = (str(load_prompt(ADAPTER_PROMPTS, name, language)) for name in declared.prompts)
            found[f"memory.{spec.label}"] = "; ".join((find_model(settings, declared.model).name, *prompts))
        if declared.embedder:
            found[f"embedder.{spec.label}"] = find_model(settings, declared.embedder, "embeddings").name
        if declared.implementation:
            found[f"implementation.{spec.label}"] = declared.implementation
    return found


def answered_apart(
    systems: Iterable[SystemSpec], attached: Iterable[str], responder: Responder | None
) -> tuple[str, ...]:
    """The labels of those that answer by themselves, where a model answers for the others."""
    if responder is None:
        return ()
    own = (spec.label for spec in systems if capabilities(spec).answers == "own")
    return (*own, *attached)
