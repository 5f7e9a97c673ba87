"""What the tests of models share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from adapters.endpoints import Endpoint, Models, ModelSettings
from adapters.model import Ask, Message
from tests.models.server import Script, Server, Step

VERDICTS = "tests.models.rules:verdict"
FAULTS = {
    "429": Step(does="refuse", status=429),
    "429 for a while": Step(does="refuse", status=429, retry_after="0.05"),
    "500": Step(does="refuse", status=500),
    "503": Step(does="refuse", status=503, retry_after="0"),
    "cut": Step(does="cut"),
    "hang": Step(does="hang"),
    "not_json": Step(does="not_json"),
    "wrong_shape": Step(does="wrong_shape"),
    "empty": Step(does="empty"),
}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge would ask for."""

    outcome: Literal["pass", "fail"]
    reason: str


def asking(text: str, **fields: Any) -> Ask:
    return Ask(messages=(Message(role="user", content=text),), **fields)


@asynccontextmanager
async def endpoint(
    server: Server, script: Script | None = None, cache: Path | None = None, **settings: Any
) -> AsyncIterator[tuple[Endpoint, Models]]:
    """A model at a server that plays a script; by default nothing is kept."""
    await server.play(script or Script())
    configured = {"m": ModelSettings(base_url=server.url, model="scripted", **settings)}
    async with Models(configured, cache=cache) as models:
        yield models.model("m", role="test"), models
