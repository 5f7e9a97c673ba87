"""What the tests of foreign systems share."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.foreign.host.memories import Task
from adapters.foreign.process import ForeignProcess, start_process
from adapters.memory import Interaction
from simulator.events import Turn
from tests.models.server import Script, Server

TOY = Path(__file__).with_name("toy.py")


def toy_task(server: Server, folder: Path, **changes: Any) -> Task:
    return Task(
        driver=str(TOY),
        directory=str(folder / "process"),
        base_url=server.url,
        model="scripted",
        embedder="scripted",
        dimensions=8,
        seed=1,
        source=None,
        options={},
    )._replace(**changes)


@asynccontextmanager
async def start_toy(server: Server, folder: Path, **changes: Any) -> AsyncIterator[ForeignProcess]:
    await server.play(Script())
    process = await start_process(
        Path(sys.executable), toy_task(server, folder, **changes), {"TOY": "{home}/toy"}, folder / "host.log"
    )
    try:
        yield process
    finally:
        await process.aclose()


def interaction(name: str, *texts: str) -> Interaction:
    turns = tuple(Turn(role="user" if i % 2 == 0 else "assistant", text=text) for i, text in enumerate(texts))
    return Interaction(id=name, turns=turns, event_time_us=5000)


def wait_until(holds: Callable[[], bool], deadline_s: float = 10.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)
