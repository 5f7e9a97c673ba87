"""An embeddings model behind an OpenAI-compatible endpoint, as an `Embedder`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio
import numpy as np
from numpy.typing import NDArray

from adapters.endpoints.cache import Cache, Entry, key_for
from adapters.endpoints.caller import Caller
from adapters.endpoints.flights import Flights
from adapters.endpoints.http import EMBEDDINGS, Timing, Wire
from adapters.endpoints.tally import Tally, cost_of
from adapters.endpoints.wire import Vectors, embeddings_body, read_embeddings
from adapters.metering import embedded
from simulator.errors import ModelError

_FLOAT: Final = np.dtype("<f4")

Vector = NDArray[np.float32]


class EmbeddingEndpoint:
    """An `Embedder` for one role. Each text's vector is kept by itself; what the cache lacks is asked in batches.

    A server's vector may hang, in its last bits, on the other texts of its batch: the cache is what makes two runs
    equal bit for bit.
    """

    def __init__(
        self,
        caller: Caller,
        wire: Wire,
        tally: Tally,
        *,
        cache: Cache | None,
        flights: Flights[list[Vector]],
        offline: bool,
    ) -> None:
        settings = caller.settings
        assert settings.dimensions is not None  # as the settings were checked
        self.name = settings.name
        self.dimensions = settings.dimensions
        self._caller = caller
        self._settings = settings
        self._wire = wire
        self._tally = tally
        self._cache = cache
        self._flights = flights
        self._offline = offline

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row for each text, in order. Raises ModelError."""
        keys = [self.key(text) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        found = await self._cache.get(list(wanted)) if self._cache else {}
        rows = {key: np.frombuffer(entry.value, _FLOAT) for key, entry in found.items()}
        missing = [key for key in wanted if key not in rows]
        self._tally.calls += len(wanted)
        self._tally.cached += len(wanted) - len(missing)
        if missing and self._offline:
            self._tally.missing += len(missing)
            raise ModelError(
                self._caller.label,
                "offline",
                f"the cache lacks {len(missing)} of {len(wanted)} texts, and nothing else may be asked",
            )

        errors: list[ModelError] = []

        async def fetch(batch: list[bytes]) -> None:
            key = key_for("batch", [key.hex() for key in batch])
            work = partial(self._fetch, batch, [wanted[key] for key in batch])
            try:
                vectors, _ = await self._flights.once(key, work)
            except ModelError as error:  # the other batches go on: they are paid, and kept for the next time
                self._tally.failed += len(batch)
                errors.append(error)
            else:
                rows.update(zip(batch, vectors, strict=True))

        async with anyio.create_task_group() as tasks:
            for start in range(0, len(missing), self._settings.batch):
                tasks.start_soon(fetch, missing[start : start + self._settings.batch])
        if errors:
            raise errors[0]
        return np.stack([rows[key] for key in keys]) if keys else np.empty((0, self.dimensions), np.float32)

    def key(self, text: str) -> bytes:
        """Where the cache has a text's vector."""
        settings = self._settings
        return key_for(
            "embeddings", settings.base_url, settings.model, settings.body, settings.dimensions, text
        )

    async def _fetch(self, keys: Sequence[bytes], texts: Sequence[str]) -> list[Vector]:
        """From the server, and into the cache."""
        body = embeddings_body(self._settings, texts)
        done = await self._caller.call(lambda: body, partial(self._send, len(texts)), self._tally)
        tally, tokens = self._tally, done.reply.prompt_tokens
        tally.uncounted += tokens is None
        tally.prompt_tokens += tokens or 0
        cost = cost_of(self._settings.price_per_million, tokens or 0, 0)
        tally.cost += cost
        embedded(tokens or 0, cost)
        tally.seconds += done.timing.seconds
        vectors = np.asarray(done.reply.vectors, np.float64)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not lengths.all():
            raise ModelError(self._caller.label, "nonsense", "a vector without any length")
        rows = list((vectors / lengths).astype(_FLOAT))
        if self._cache is None:
            return rows
        entries = {key: Entry(value=row.tobytes()) for key, row in zip(keys, rows, strict=True)}
        kept = await self._cache.put(self.name, entries)
        return [np.frombuffer(kept[key].value, _FLOAT) for key in keys]

    async def _send(self, count: int, body: bytes, timeout_s: float) -> tuple[Vectors, Timing]:
        return await self._wire.post(
            EMBEDDINGS, body, timeout_s, lambda content: read_embeddings(content, count, self.dimensions)
        )
