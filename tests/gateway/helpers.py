"""What the gateway's tests share: a gateway before a scripted server, and the client that memory systems have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from openai.types.chat import ChatCompletion

from adapters.embedder import Embedder
from adapters.endpoints import Models, ModelSettings
from adapters.gateway import Gateway, LaneGateway, Stage
from adapters.gateway.server import open_gateway
from simulator.errors import ModelError
from tests.models.server import Script, Server

SEED = 7


class Front:
    """A gateway, and the lanes that tests have."""

    def __init__(self, gateway: Gateway, models: Models) -> None:
        self.gateway = gateway
        self.models = models

    def lane(self, name: str = "mine@A1", embedder: Embedder | None = None) -> LaneGateway:
        return self.gateway.lane(
            name, model=self.models.model("m", role=f"memory.{name}"), embedder=embedder, seed=SEED
        )

    def vectors(self) -> Embedder:
        return self.models.embedder("e", role="embedder.mine")


@asynccontextmanager
async def front(
    server: Server, script: Script | None = None, cache: Path | None = None, **settings: Any
) -> AsyncIterator[Front]:
    """By default nothing is kept."""
    await server.play(script or Script())
    configured = {
        "m": ModelSettings(base_url=server.url, model="scripted", **settings),
        "e": ModelSettings(base_url=server.url, model="vectors", kind="embeddings", dimensions=8),
    }
    async with Models(configured, cache=cache) as models, open_gateway() as gateway:
        yield Front(gateway, models)


@asynccontextmanager
async def asking(
    lane: LaneGateway, memory: str | None = None, **options: Any
) -> AsyncIterator[openai.AsyncOpenAI]:
    """The client of one memory, which by default never asks a second time."""
    options = {"max_retries": 0, "api_key": "any"} | options
    async with openai.AsyncOpenAI(base_url=lane.url_of(memory or lane.lane), **options) as client:
        yield client


async def ask(client: openai.AsyncOpenAI, text: str, **fields: Any) -> ChatCompletion:
    messages: Any = [{"role": "user", "content": text}]
    completion: ChatCompletion = await client.chat.completions.create(
        **{"model": "gpt-4o-mini", "messages": messages, **fields}
    )
    return completion


async def said(client: openai.AsyncOpenAI, text: str, **fields: Any) -> str | None:
    return (await ask(client, text, **fields)).choices[0].message.content


async def refused(client: openai.AsyncOpenAI, text: str, **fields: Any) -> openai.APIStatusError:
    """What the client is told, which its system swallows."""
    with pytest.raises(openai.APIStatusError) as raised:
        await ask(client, text, **fields)
    return raised.value


async def failure(
    lane: LaneGateway, work: Callable[[openai.AsyncOpenAI], Awaitable[object]], memory: str | None = None
) -> ModelError:
    """What a stage raises in which a system does that without an error of its own."""
    with pytest.raises(ModelError) as raised:
        await stage_of(lane, work, memory)
    return raised.value


async def stage_of(
    lane: LaneGateway, work: Callable[[openai.AsyncOpenAI], Awaitable[object]], memory: str | None = None
) -> Stage:
    async with lane.stage(memory or lane.lane, "ingest") as stage, asking(lane, memory) as client:
        await work(client)
    return stage


async def until_asked(server: Server, calls: int = 1) -> None:
    with anyio.fail_after(60):
        while len(await server.asked()) < calls:  # noqa: ASYNC110  # the server is another process
            await anyio.sleep(0.01)
