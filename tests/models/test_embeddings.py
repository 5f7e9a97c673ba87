"""An embeddings endpoint as the `Embedder` of a memory system."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from adapters.embedder import Embedder
from adapters.endpoints import EmbeddingEndpoint, Models, ModelSettings
from adapters.endpoints.settings import Price
from simulator.errors import ConfigError, ModelError
from tests.models.server import Script, Server, Step, vector_of

TEXTS = [f"text number {number}" for number in range(10)]


@asynccontextmanager
async def embedder(
    server: Server,
    script: Script | None = None,
    cache: Path | None = None,
    offline: bool = False,
    **settings: Any,
) -> AsyncIterator[tuple[EmbeddingEndpoint, Models]]:
    await server.play(script or Script())
    configured = {
        "bge": ModelSettings(
            **({"base_url": server.url, "model": "bge-m3", "kind": "embeddings", "dimensions": 8} | settings)
        )
    }
    async with Models(configured, cache=cache, offline=offline) as models:
        yield models.embedder("bge", role="retrieval"), models


def expected(text: str) -> list[float]:
    vector = np.asarray(vector_of(text, 8))
    return list(vector / np.linalg.norm(vector))


async def test_each_text_has_its_normalised_vector_in_order_and_in_batches(server: Server) -> None:
    async with embedder(server, batch=4, price_per_million=Price(prompt=1e6)) as (found, models):
        protocol: Embedder = found
        assert protocol.name == f"bge-m3 at {server.url} (dimensions=8)"
        rows = await found.embed(TEXTS)
        asked = await server.asked()
    assert rows.dtype == np.float32
    assert rows == pytest.approx(np.asarray([expected(text) for text in TEXTS]), abs=1e-6)
    assert sorted(len(a.body["input"]) for a in asked) == [2, 4, 4]
    [tally] = models.tallies()
    assert (tally.calls, tally.tries, tally.prompt_tokens, tally.cost) == (10, 3, 30, 30)


async def test_no_texts_are_no_call_and_an_empty_text_is_a_space(server: Server) -> None:
    async with embedder(server) as (found, _):
        assert (await found.embed([])).shape == (0, 8)
        assert (await found.embed(["", "x", ""])).shape == (3, 8)
        [asked] = await server.asked()
    assert asked.body["input"] == [" ", "x"]


async def test_a_vector_is_paid_for_once(server: Server, tmp_path: Path) -> None:
    async with embedder(server, cache=tmp_path / "c.db") as (found, models):
        first = await found.embed(TEXTS[:6])
        again = await found.embed(TEXTS[::-1])
        assert np.array_equal(again[::-1][:6], first)
        assert [len(a.body["input"]) for a in await server.asked()] == [6, 4]
        assert (models.tallies()[0].calls, models.tallies()[0].cached) == (16, 6)
    async with embedder(server, cache=tmp_path / "c.db", offline=True) as (found, models):
        assert np.array_equal(await found.embed(TEXTS[::-1]), again)
        with pytest.raises(ModelError, match="bge: the cache lacks 1 of 2 texts") as raised:
            await found.embed([TEXTS[0], "new"])
        assert raised.value.failure == "offline"
        assert models.tallies()[0].missing == 1
        assert await server.asked() == []


async def test_equal_batches_at_one_time_are_one_call(server: Server) -> None:
    async with embedder(server, Script(delay_s=0.1)) as (found, _):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(found.embed, TEXTS)
        assert len(await server.asked()) == 1


async def test_what_passes_is_waited_out(server: Server) -> None:
    steps = tuple(Step(does=does) for does in ("refuse", "hang", "not_json", "wrong_shape"))
    async with embedder(server, Script(steps=steps), timeout_s=0.3) as (found, _):
        assert (await found.embed(["x"]))[0] == pytest.approx(expected("x"), abs=1e-6)


@pytest.mark.parametrize(
    ("script", "failure", "says"),
    [
        (Script(dimensions=4), "refused", "bge: vectors of 4 dimensions, and not 8: set dimensions = 4"),
        (Script(steps=(Step(does="empty"),)), "nonsense", "bge: 0 vectors for 10 texts"),
        (Script(key="other"), "refused", "401 Unauthorized"),
    ],
)
async def test_what_is_wrong_is_said(server: Server, script: Script, failure: str, says: str) -> None:
    async with embedder(server, script) as (found, models):
        with pytest.raises(ModelError, match=says) as raised:
            await found.embed(TEXTS)
        assert models.tallies()[0].failed == 10
    assert raised.value.failure == failure


async def test_a_batch_that_fails_leaves_the_others_kept(server: Server, tmp_path: Path) -> None:
    steps = (Step(), Step(does="refuse", status=400, message="no"))
    async with embedder(server, Script(steps=steps), tmp_path / "c.db", batch=4, max_in_flight=1) as (
        found,
        models,
    ):
        with pytest.raises(ModelError, match="400 Bad Request: no"):
            await found.embed(TEXTS)
        assert (models.tallies()[0].failed, models.tallies()[0].tries) == (4, 3)
        assert (await found.embed(TEXTS)).shape == (10, 8)
        assert [len(a.body["input"]) for a in await server.asked()] == [4, 4, 2, 4]


async def test_an_embedder_is_no_chat_model(server: Server) -> None:
    async with embedder(server) as (_, models):
        with pytest.raises(ConfigError, match="'bge' is one for embeddings, and chat is wanted"):
            models.model("bge", role="r")
