"""The memories of one process, by name: what each call of docs/http-agent.md does to them."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from .driver import Driver, Message, Settings
from .ledger import Ledger

Body = dict[str, Any]


class UnknownMemoryError(Exception):
    """There is no memory of that name, or none any more."""


class Task(NamedTuple):
    """What a host is started with: one line of JSON. `driver`: its file. `directory`: all that the process writes goes
    in there. `base_url`: with `{memory}` where a memory's quoted name stands. The rest: see `Settings`."""

    driver: str
    directory: str
    base_url: str
    model: str
    embedder: str
    dimensions: int
    seed: int
    source: str | None
    options: Mapping[str, Any]


class _Memory:
    def __init__(self, driver: Driver, directory: Path, ledger: Ledger, top_k: int) -> None:
        self.driver = driver
        self.directory = directory
        self.ledger = ledger
        self.top_k = top_k
        self.stored_bytes = driver.stored_bytes()
        self.lock = threading.Lock()
        self.closed = False


class Memories:
    """All memories of one process. Calls come in threads; each memory sees one at a time."""

    def __init__(self, make: Callable[[Settings], Driver], task: Task) -> None:
        self._make = make
        self._task = task
        self._folder = Path(task.directory) / "memories"
        self._folder.mkdir(parents=True)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._memories: dict[str, _Memory] = {}

    def fork(self, call: Body) -> Body:
        """A copy of a memory under another name; a new one where none is named."""
        name, origin = call["fork"], call["memory"]
        if name in self._memories:
            return {}
        settings = self._settings(name)
        try:
            if origin is None:
                made = self._make(settings)
                memory = _Memory(made, settings.directory, Ledger(), call["context"]["top_k"])
            else:
                parent = self._find(origin)
                with parent.lock:
                    self._check(origin, parent)
                    made = parent.driver.fork(settings)
                    memory = _Memory(made, settings.directory, parent.ledger.copy(), parent.top_k)
        except BaseException:
            shutil.rmtree(settings.directory, ignore_errors=True)
            raise
        with self._lock:
            self._memories[name] = memory
        return {}

    def ingest(self, call: Body) -> Body:
        """Take in a segment."""
        segment = call["segment"]
        messages = [Message(o["source"], o["text"], o["event_time_us"]) for o in segment["observations"]]
        return self._change(call["memory"], messages, f"s{segment['segment']}", segment["end_time_us"])

    def commit(self, call: Body) -> Body:
        """Take in a finished conversation."""
        interaction = call["interaction"]
        at_us = interaction["event_time_us"]
        messages = [Message(turn["role"], turn["text"], at_us) for turn in interaction["turns"]]
        return self._change(call["memory"], messages, interaction["id"], at_us)

    def answer(self, call: Body) -> Body:
        """Search for what was asked: whoever asks makes an answer of it."""
        name, request = call["memory"], call["request"]
        memory = self._find(name)
        asked = request["text"], memory.top_k, request["event_time_us"]
        with memory.lock:
            self._check(name, memory)
            search = memory.driver.search
            if memory.driver.searching_changes:
                search = partial(self._search_fork, name, memory)
            found = [(memory.ledger.entry(native), float(score)) for native, score in search(*asked)]
        return {"text": "", "retrieved": [{**entry._asdict(), "score": score} for entry, score in found]}

    def close(self, call: Body) -> Body:
        """Forget a memory, once the call of it that is under way has ended."""
        name = call["memory"]
        memory = self._find(name)
        with self._lock:
            self._memories.pop(name, None)
        threading.Thread(target=self._close, args=(memory,), daemon=True).start()
        return {}

    def close_all(self) -> None:
        """Close those that nobody is using: the process ends."""
        for memory in list(self._memories.values()):
            if memory.lock.acquire(blocking=False):
                memory.closed = True
                memory.driver.close()

    def _change(self, name: str, messages: list[Message], origin: str, at_us: int) -> Body:
        """One change, whole. A memory of which one failed may hold a part of it, so it is gone: who wants to go on has
        forked it before."""
        memory = self._find(name)
        newest_us = max((message.event_time_us for message in messages), default=at_us)
        with memory.lock:
            self._check(name, memory)
            try:
                memory.driver.ingest(messages, at_us)
                changes = memory.ledger.take(memory.driver.records(), origin, newest_us)
                stored_bytes = memory.driver.stored_bytes()
            except BaseException:
                with self._lock:
                    self._memories.pop(name, None)
                threading.Thread(target=self._close, args=(memory,), daemon=True).start()
                raise
            more_bytes = stored_bytes - memory.stored_bytes
            memory.stored_bytes = stored_bytes
        records = [{**change.entry._asdict(), "op": change.op} for change in changes]
        return {"records": records, "stored_bytes": more_bytes}

    def _search_fork(
        self, name: str, memory: _Memory, text: str, top_k: int, now_us: int
    ) -> Sequence[tuple[str, float]]:
        settings = self._settings(name)
        try:
            fork = memory.driver.fork(settings)
            try:
                return fork.search(text, top_k, now_us)
            finally:
                fork.close()
        finally:
            shutil.rmtree(settings.directory, ignore_errors=True)

    def _settings(self, name: str) -> Settings:
        task = self._task
        directory = self._folder / str(next(self._numbers))
        directory.mkdir()
        return Settings(
            directory=directory,
            base_url=task.base_url.replace("{memory}", quote(name, safe="")),
            model=task.model,
            embedder=task.embedder,
            dimensions=task.dimensions,
            seed=task.seed,
            source=Path(task.source) if task.source else None,
            options=task.options,
        )

    def _find(self, name: str) -> _Memory:
        try:
            return self._memories[name]
        except KeyError:
            raise UnknownMemoryError(f"there is no memory {name!r} here") from None

    def _check(self, name: str, memory: _Memory) -> None:
        """It was not closed while this call waited for it."""
        if memory.closed:
            raise UnknownMemoryError(f"the memory {name!r} was closed")

    def _close(self, memory: _Memory) -> None:
        with memory.lock:
            if not memory.closed:
                memory.closed = True
                try:
                    memory.driver.close()
                finally:
                    shutil.rmtree(memory.directory, ignore_errors=True)
