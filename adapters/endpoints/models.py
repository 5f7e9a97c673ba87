"""The models of one process: each opened once, whatever asks it, and counted by role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import structlog

from adapters.endpoints.cache import Cache
from adapters.endpoints.caller import Caller
from adapters.endpoints.chat import Endpoint
from adapters.endpoints.embeddings import EmbeddingEndpoint, Vector
from adapters.endpoints.flights import Flights
from adapters.endpoints.http import Connections, Wire
from adapters.endpoints.settings import ModelSettings, find_model, key_of
from adapters.endpoints.tally import Tally
from adapters.model import Said

CLOSE_TIMEOUT_S = 5.0

_log = structlog.get_logger(__name__)


class Models:
    """Models by name, as an async context manager.

    `settings`: as `read_models` gives them. `cache`: the file of paid answers; None keeps nothing. `offline`: nothing
    is asked, and no key is needed: what the cache lacks raises ModelError and is counted as missing.

        async with Models(read_models(path), cache=default_cache()) as models:
            judge = models.model("judge", role="judge")
    """

    def __init__(
        self, settings: Mapping[str, ModelSettings], *, cache: Path | None, offline: bool = False
    ) -> None:
        self._settings = settings
        self._cache = None if cache is None else Cache(cache)
        self._offline = offline
        self._connections: dict[str, Connections] = {}
        self._callers: dict[str, tuple[Caller, Wire]] = {}
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._chat_flights: Flights[Said] = Flights()
        self._embedding_flights: Flights[list[Vector]] = Flights()

    async def __aenter__(self) -> Self:
        """Open the cache. Raises ConfigError."""
        if self._cache is not None:
            await self._cache.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections and the cache. What it lacked offline is said once, by model."""
        for name, answers in self.missing().items():
            _log.warning("not_in_the_cache", model=name, answers=answers)
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            for connections in self._connections.values():
                await connections.aclose()
        if self._cache is not None:
            await self._cache.aclose()

    def model(self, name: str, *, role: str) -> Endpoint:
        """A chat model for one role. Raises ConfigError."""
        caller, wire = self._caller(name, "chat")
        return Endpoint(
            caller,
            wire,
            self._tally(name, role),
            cache=self._cache,
            flights=self._chat_flights,
            offline=self._offline,
        )

    def embedder(self, name: str, *, role: str) -> EmbeddingEndpoint:
        """An embeddings model for one role. Raises ConfigError."""
        caller, wire = self._caller(name, "embeddings")
        return EmbeddingEndpoint(
            caller,
            wire,
            self._tally(name, role),
            cache=self._cache,
            flights=self._embedding_flights,
            offline=self._offline,
        )

    def tallies(self) -> list[Tally]:
        """What each role asked each model so far, in the order in which they were first opened."""
        return list(self._tallies.values())

    def missing(self) -> dict[str, int]:
        """Model → how many answers were wanted that the cache does not have, when nothing else might be asked."""
        counts: Counter[str] = Counter()
        for tally in self._tallies.values():
            counts[tally.model] += tally.missing
        return dict(+counts)

    def _tally(self, name: str, role: str) -> Tally:
        return self._tallies.setdefault((name, role), Tally(model=name, role=role))

    def _caller(self, name: str, kind: str) -> tuple[Caller, Wire]:
        settings = find_model(self._settings, name, kind)
        if name not in self._callers:
            key = None if self._offline else key_of(settings, name)
            self._callers[name] = (
                Caller(name, settings),
                Wire(self._connect(settings.base_url), settings, key),
            )
        return self._callers[name]

    def _connect(self, url: str) -> Connections:
        if url not in self._connections:
            self._connections[url] = Connections(url)
        return self._connections[url]
