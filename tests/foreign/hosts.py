"""A foreign system's host for tests: the real process, in the system's own environment, on a scripted model server."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import msgspec

from adapters.foreign.catalogue import known
from adapters.foreign.environment import installed
from adapters.foreign.host.memories import Task
from adapters.foreign.memory import check_options
from adapters.foreign.process import ForeignProcess, start_process
from adapters.foreign.sources import variable_of
from simulator.events import MemoryRecord, RetrievedRecord, Turn
from tests.conftest import ROOT, skip_without
from tests.models.server import Script, Server

SOURCES: Mapping[str, str] = {"amem": "A-mem", "memoryos": "MemoryOS-BAI", "memskill": "MemSkill"}
DIMENSIONS = 512
START_US = 991_382_400_000_000
"""Friday, 1 June 2001, 08:00: no year that the wall clock will show again."""
MINUTE_US = 60_000_000


def script_for(name: str, **changes: Any) -> Script:
    """A model server that answers a system's prompts."""
    script = Script(
        rule=f"tests.foreign.rules:{name.partition(':')[0]}",
        vectors="tests.foreign.rules:bag",
        dimensions=DIMENSIONS,
    )
    return msgspec.structs.replace(script, **changes)


def checkout(name: str) -> Path | None:
    """Where a system's source is. Skips where it is not."""
    about = known(name.partition(":")[0])
    if about.source is None:
        return None
    named = os.environ.get(variable_of(about)) or ROOT.parent / "shared" / "memsys" / SOURCES[name]
    if not Path(named).is_dir():
        skip_without("systems", f"{name}'s source is not at {named}; set {variable_of(about)} to try it")
    return Path(named)


def need_of(system: str) -> str:
    """What `EGOSTREAM_REQUIRE` calls it: the heavy ones by their names, the others together."""
    return system if system in ("memos", "evermemos") else "systems"


class RefusedError(Exception):
    """The host answered a call with another status than 200."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


class Memory:
    """One memory of a host. `held`: what its deltas come to, by id."""

    def __init__(
        self, host: Host, name: str, top_k: int, held: Mapping[str, MemoryRecord] | None = None
    ) -> None:
        self.name = name
        self.top_k = top_k
        self.held = dict(held or {})
        self.stored_bytes = 0
        self._host = host

    async def ingest(self, number: int, *texts: str) -> tuple[MemoryRecord, ...]:
        """Take in segment `number`, which ends so many minutes after the start, with one observation a second."""
        end_us = START_US + number * MINUTE_US
        observations = [
            {"source": "dialog", "text": text, "event_time_us": end_us - (len(texts) - place) * 1_000_000}
            for place, text in enumerate(texts)
        ]
        segment = {"segment": number, "end_time_us": end_us, "observations": observations}
        return self._keep(await self._host.call("/ingest", memory=self.name, segment=segment))

    async def commit(self, name: str, number: int, *turns: Turn) -> tuple[MemoryRecord, ...]:
        """Take in a conversation of minute `number`."""
        at_us = START_US + number * MINUTE_US
        interaction = {"id": name, "event_time_us": at_us, "turns": msgspec.to_builtins(turns)}
        return self._keep(await self._host.call("/commit", memory=self.name, interaction=interaction))

    async def search(self, text: str, number: int) -> list[RetrievedRecord]:
        """What it finds in minute `number`."""
        request = {
            "text": text,
            "phase": "R1",
            "history": [],
            "event_time_us": START_US + number * MINUTE_US,
        }
        said = await self._host.call("/answer", memory=self.name, request=request)
        return msgspec.convert(said["retrieved"], list[RetrievedRecord])

    async def fork(self) -> Memory:
        """A copy."""
        return Memory(self._host, await self._host.fork(self.name, self.top_k), self.top_k, self.held)

    def _keep(self, said: dict[str, Any]) -> tuple[MemoryRecord, ...]:
        records = msgspec.convert(said["records"], tuple[MemoryRecord, ...])
        self.stored_bytes += said["stored_bytes"]
        for record in records:
            assert (record.id in self.held) == (record.op != "add"), record
            if record.op == "delete":
                del self.held[record.id]
            else:
                self.held[record.id] = record
        return records


class Host:
    """The running host, of which tests may share one. `directory`: all that it may write into; `log`: what it said."""

    def __init__(self, process: ForeignProcess, directory: Path) -> None:
        self.directory = directory
        self.log = directory.with_name("host.log")
        self.pid = process.pid
        self._process = process
        self._numbers = itertools.count()

    async def memory(self, top_k: int = 10) -> Memory:
        """An empty one."""
        return Memory(self, await self.fork(None, top_k), top_k)

    async def fork(self, memory: str | None, top_k: int) -> str:
        """The name of a copy, or of a new memory."""
        name = f"lane/{next(self._numbers)}"
        await self.call("/fork", memory=memory, fork=name, context={"top_k": top_k})
        return name

    async def call(self, path: str, **body: Any) -> Any:
        """What it answers. Raises RefusedError."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client:
            url, content = self._process.url + path, msgspec.json.encode(body)
            said = await client.post(url, content=content, headers=key)
        if said.status_code != 200:
            raise RefusedError(said.status_code, said.text)
        return said.json()


@asynccontextmanager
async def running_host(
    name: str,
    server: Server,
    folder: Path,
    driver: Path | None = None,
    own: Mapping[str, str] | None = None,
    **options: str,
) -> AsyncIterator[Host]:
    """The host of a system, each memory of which asks the server under an address of its own. `name`: may go on with
    `:option=value`. `driver`: instead of the system's, with options of its `own`. Skips where the system is not
    installed."""
    system, _, option = name.partition(":")
    about = known(system)
    options |= dict([option.split("=")] if option else [])
    check_options(about, None, options)
    options |= own or {}
    source = checkout(name)
    environment = installed(about)
    if environment is None:
        skip_without(need_of(system), f"{system} is not installed: egostream systems install {system}")
    if system == "evermemos" and "TIKTOKEN_CACHE_DIR" not in os.environ:
        skip_without(
            system, "EverOS loads tiktoken's vocabulary: set TIKTOKEN_CACHE_DIR to a folder that has it"
        )
    directory = folder / "host"
    task = Task(
        driver=str(driver or about.driver),
        directory=str(directory),
        base_url=server.url.removesuffix("/v1") + "/m/{memory}/v1",
        model="scripted",
        embedder="scripted",
        dimensions=DIMENSIONS,
        seed=7,
        source=None if source is None else str(source),
        options=options,
    )
    python, log = Path(environment.python), folder / "host.log"
    process = await start_process(python, task, about.environment, log)
    try:
        yield Host(process, directory)
    finally:
        await process.aclose()


def memory_of(path: str) -> str:
    """Whose call it was, by the path that the server saw."""
    return unquote(path.split("/")[2])


def prompts(asked: Sequence[Any]) -> str:
    """All that models were told, as one text."""
    return "\n".join(msgspec.json.encode(call.body).decode() for call in asked)
