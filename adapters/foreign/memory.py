"""Foreign memory systems as memory systems of ours."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import quote

import msgspec

from adapters.embedder import default_embedder
from adapters.foreign.catalogue import Known, catalogue
from adapters.foreign.environment import must_be_installed
from adapters.foreign.host.memories import Task
from adapters.foreign.lane import ForeignLane
from adapters.foreign.sources import find_source, is_as_measured, source_digest
from adapters.gateway import BUNDLED
from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.metering import added
from adapters.responder import query_of, respond
from simulator.errors import ConfigError


class ForeignMemory:
    """A system that others have published, in a process of its own (docs/systems.md).

    `model`: the configured model that it asks. `embedder`: the configured one that makes its vectors; by default the
    bundled encoder. `source`: its checkout, for one that is on no registry. `top_k`: records that an answer may use;
    the run's own unless given. `options`: the system's own.
    """

    __slots__ = ("_closed", "_context", "_encoder", "_lane", "_state")

    about: ClassVar[Known]
    """What is known of the system."""

    def __init__(
        self,
        context: LaneContext,
        *,
        model: str = "",
        embedder: str = BUNDLED,
        source: str = "",
        top_k: int | None = None,
        **options: str,
    ) -> None:
        about = self.about
        if not model:
            raise ConfigError(
                f"{about.name} needs a model: --system {about.name}:model=NAME, a model of --models"
            )
        check_options(about, top_k, options)
        environment = must_be_installed(about)
        checkout = find_source(about, source)
        gateway, folder = context.gateway, context.directory
        assert gateway is not None  # as its capabilities ask for
        assert folder is not None
        encoder = gateway.embedder or default_embedder()
        if top_k is not None:
            context = msgspec.structs.replace(context, top_k=top_k)
        own = quote(context.lane, safe="")
        task = Task(
            driver=str(about.driver),
            directory="",
            base_url=gateway.url_of(context.lane).replace(f"/{own}/", "/{memory}/"),
            model=model,
            embedder=embedder,
            dimensions=encoder.dimensions,
            seed=context.seed,
            source=None if checkout is None else str(checkout),
            options=options,
        )
        self._context = context
        self._encoder = encoder
        self._lane = ForeignLane(about, context, gateway, Path(environment.python), task, folder)
        self._state = self._lane.hold()
        self._closed = False

    @classmethod
    def capabilities(
        cls,
        *,
        model: str = "",
        embedder: str = BUNDLED,
        source: str = "",
        top_k: int | None = None,
        **options: str,
    ) -> Capabilities:
        """What the options declare. Raises ConfigError where one is not what it may be, or its checkout can't be
        found."""
        check_options(cls.about, top_k, options)
        return Capabilities(
            answers="run",
            model=model,
            embedder="" if embedder == BUNDLED else embedder,
            folder=True,
            gateway=True,
            implementation=_implementation(cls.about, source) if model else "",
            exempt=dict(cls.about.exempt),
        )

    async def prepare(self) -> None:
        """Start the lane's process, and load the bundled encoder. Raises MemorySystemError and EncoderError."""
        await self._lane.prepare()
        if self._encoder is default_embedder():
            await self._encoder.embed([""])

    async def ingest(self, segment: Segment) -> Delta:
        """Have the system take in a segment. Raises MemorySystemError and ModelError, and the memory is as before."""
        return await self._change(segment)

    async def commit(self, interaction: Interaction) -> Delta:
        """Have it take in a finished conversation. Raises as `ingest` does."""
        return await self._change(interaction)

    async def answer(self, request: Request) -> Answer:
        """Answer, as the run does, from what the system finds."""
        asked = msgspec.structs.replace(request, text=query_of(request), history=())
        found = await self._lane.search(self._state, asked)
        answer = await respond(self._context, request, found.retrieved)
        return msgspec.structs.replace(answer, usage=added(found.usage, answer.usage))

    def fork(self) -> Self:
        """Another memory in the same state; the copy is made when either changes."""
        fork = copy.copy(self)
        self._lane.hold(self._state)
        return fork

    async def aclose(self) -> None:
        """Let go of the memory; the last one of a lane ends the process."""
        if not self._closed:
            self._closed = True
            await self._lane.release(self._state)

    async def _change(self, change: Segment | Interaction) -> Delta:
        before = self._state
        self._state, delta = await self._lane.change(before, change)
        await self._lane.release(before)
        return delta


def foreign_systems() -> dict[str, type[ForeignMemory]]:
    """A class for each foreign system, by name."""
    return {
        name: type(
            f"{name.title()}Memory",
            (ForeignMemory,),
            {"__slots__": (), "__doc__": about.about, "about": about},
        )
        for name, about in catalogue().items()
    }


def _implementation(about: Known, source: str) -> str:
    checkout = find_source(about, source)
    if checkout is None:
        return about.implementation
    unlike = "" if is_as_measured(about, checkout) else about.unlike
    return f"{about.implementation}, source {source_digest(checkout)}{unlike}"


def check_options(about: Known, top_k: int | None, options: Mapping[str, str]) -> None:
    """Raises ConfigError where an option is none of the system's, or not what it may be: no driver looks again."""
    if top_k is not None and top_k < 1:
        raise ConfigError(f"top_k must be at least 1, not {top_k}")
    for name, value in options.items():
        if name not in about.options:
            there_are = ", ".join(("model", "embedder", "source", "top_k", *about.options))
            raise ConfigError(f"{about.name} has no option {name!r}: there are {there_are}")
        if not (option := about.options[name]).takes(value):
            raise ConfigError(f"{about.name}: option {name}={value}: it may be {option.may_be}")
