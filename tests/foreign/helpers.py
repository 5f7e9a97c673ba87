"""What the tests of foreign systems share."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from adapters.endpoints import Models, ModelSettings
from adapters.foreign.catalogue import Known, Option
from adapters.foreign.environment import Environment
from adapters.foreign.host.memories import Task
from adapters.foreign.memory import ForeignMemory
from adapters.foreign.process import ForeignProcess, start_process
from adapters.gateway.server import open_gateway
from adapters.memory import Interaction, LaneContext
from simulator.events import Turn
from tests.adapters.helpers import HashEmbedder
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


class ToyKnown(Known, frozen=True, kw_only=True):
    """The toy, as the catalogue would have it."""

    @property
    def pins(self) -> Path:
        return Path(__file__)

    @property
    def driver(self) -> Path:
        return TOY


TOY_KNOWN = ToyKnown(
    model_calls=1,
    own_tokens=10,
    name="toy",
    title="Toy",
    about="A toy.",
    version="1",
    licence="MIT",
    python=((3, 11), None),
    ingest="each note",
    search="by words",
    approximations=(),
    options={"colour": Option(about="its colour")},
)


class ToyMemory(ForeignMemory):
    """A toy."""

    __slots__ = ()
    about = TOY_KNOWN


def install_toy(folder: Path) -> None:
    """As if it had been, into `$EGOSTREAM_SYSTEMS`; our own environment is the toy's."""
    made = Environment(python=sys.executable, python_version="3.11")
    place = folder / f"toy-{TOY_KNOWN.pins_digest}"
    place.mkdir(parents=True)
    (place / "installed.json").write_bytes(msgspec.json.encode(made))


@asynccontextmanager
async def toy_memory(
    server: Server, folder: Path, script: Script | None = None, *, cache: bool = True
) -> AsyncIterator[ForeignMemory]:
    """A lane's memory of the toy."""
    async with lane_memory(ToyMemory, server, folder, script, cache=cache) as memory:
        yield memory


@asynccontextmanager
async def lane_memory(
    system: type[ForeignMemory],
    server: Server,
    folder: Path,
    script: Script | None = None,
    *,
    cache: bool = True,
) -> AsyncIterator[ForeignMemory]:
    """A lane's memory, whose model is at the scripted server; closed at the end."""
    await server.play(script or Script())
    settings = {"m": ModelSettings(base_url=server.url, model="scripted", attempts=1)}
    async with (
        Models(settings, cache=folder / "cache.db" if cache else None) as models,
        open_gateway() as gateway,
    ):
        model = models.model("m", role="memory.toy")
        lane = gateway.lane("it@A1", model=model, embedder=HashEmbedder(), seed=1)
        context = LaneContext(lane="it@A1", stream="A1", top_k=2, directory=folder, gateway=lane)
        memory = system(context, model="m")
        try:
            yield memory
        finally:
            await memory.aclose()


def interaction(name: str, *texts: str) -> Interaction:
    turns = tuple(Turn(role="user" if i % 2 == 0 else "assistant", text=text) for i, text in enumerate(texts))
    return Interaction(id=name, turns=turns, event_time_us=5000)


def wait_until(holds: Callable[[], bool], deadline_s: float = 60.0) -> None:
    end_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def children_of(process: subprocess.Popen[Any]) -> list[int]:
    """The hosts that a process of ours has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    threads = Path(f"/proc/{process.pid}/task").glob("*/children") if children.exists() else ()
    return [pid for thread in threads for pid in map(int, thread.read_text().split()) if is_host(pid)]


def is_host(pid: int) -> bool:
    """Whether this is the process of a foreign system, and there."""
    try:
        return b"foreign/host" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
