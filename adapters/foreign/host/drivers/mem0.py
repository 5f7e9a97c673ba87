"""Mem0 2.x, open source edition: a vector store in the memory's folder, and facts that a model extracts into it.

It tells its model which day it is, and takes no other than today's: the day of the call is put there. It keeps the last
messages under the wall clock, too: under the time of the call. Its memories are added and never changed, so a
contradiction is one more of them. Its store ranks equally near ones by the order in which it holds them, and by noise
in the last digits: both are made the same for a memory and for its copy on disk.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any, ClassVar

import mem0.embeddings.openai
import mem0.llms.openai
import mem0.memory.main
import mem0.memory.storage
import numpy
import qdrant_client.local.local_collection
import qdrant_client.local.persistence
from mem0 import Memory
from openai import DefaultHttpxClient, OpenAI

from ..driver import Driver, Held, Message, Settings, moment

_USER = {"user_id": "user"}
_ALL = 10_000_000
_ADDED = "added.json"
"""All memories, id → text, in the order in which they came: the store has them in that of their random ids."""

_today: ContextVar[str] = ContextVar("today")
_kept_at: ContextVar[datetime] = ContextVar("kept_at")
_generate = mem0.memory.main.generate_additive_extraction_prompt
_load = qdrant_client.local.persistence.CollectionPersistence.load
_nearness = qdrant_client.local.local_collection.calculate_distance


def _prompt(*args: Any, **given: Any) -> str:
    return str(_generate(*args, **{**given, "timestamp": _today.get(), "current_date": _today.get()}))


def _oldest_first(self: Any) -> Iterator[Any]:
    yield from reversed(list(_load(self)))


def _without_noise(*args: Any) -> Any:
    return numpy.round(_nearness(*args), 6)


class _Clock(datetime):
    """In place of `datetime` where messages are kept."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return _kept_at.get()


mem0.memory.main.generate_additive_extraction_prompt = _prompt
mem0.memory.storage.datetime = _Clock
qdrant_client.local.persistence.CollectionPersistence.load = _oldest_first
qdrant_client.local.local_collection.calculate_distance = _without_noise

# Each memory makes two clients, and each of these would read all certificates of the machine: for an address on it
_connections = DefaultHttpxClient(verify=False)
for _module in (mem0.llms.openai, mem0.embeddings.openai):
    _module.OpenAI = partial(OpenAI, http_client=_connections)
logging.getLogger("mem0").setLevel(logging.WARNING)


class Mem0:
    """One memory."""

    searching_changes: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        folder = settings.directory
        client = {"api_key": "none", "openai_base_url": settings.base_url}
        self._added: dict[str, str] = {}
        if (folder / _ADDED).exists():
            self._added = json.loads((folder / _ADDED).read_text())
        self._memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(folder / "qdrant"),
                        "on_disk": True,
                        "collection_name": "memories",
                        "embedding_model_dims": settings.dimensions,
                    },
                },
                "llm": {
                    "provider": "openai",
                    "config": {"model": settings.model, "temperature": 0, **client},
                },
                "embedder": {"provider": "openai", "config": {"model": settings.embedder, **client}},
                "history_db_path": str(folder / "history.db"),
            }
        )

    def ingest(self, messages: Sequence[Message], event_time_us: int) -> None:
        """One `add`: a segment's observations are all the user's."""
        now = moment(event_time_us)
        _today.set(now.date().isoformat())
        _kept_at.set(self._after_those_kept(now))
        said = [
            {"role": m.speaker if m.speaker == "assistant" else "user", "content": m.text} for m in messages
        ]
        if not said:
            return
        given = self._memory.add(said, **_USER, metadata={"created_at": now.isoformat()})
        self._added |= {result["id"]: result["memory"] for result in given["results"]}
        (self._settings.directory / _ADDED).write_text(json.dumps(self._added))

    def _after_those_kept(self, now: datetime) -> datetime:
        """A time for messages: which ones are the last is told by that alone, and several calls may have the same."""
        ((newest,),) = self._memory.db.connection.execute("SELECT max(created_at) FROM messages").fetchall()
        return now if newest is None else max(now, datetime.fromisoformat(newest) + timedelta(microseconds=1))

    def records(self) -> Mapping[str, Held]:
        """All memories, in the order in which they came."""
        found = self._memory.get_all(filters=_USER, top_k=_ALL)["results"]
        there = {result["id"]: Held(result["memory"]) for result in found}
        return {native: there[native] for native in self._added if native in there}

    def search(self, text: str, top_k: int, now_us: int) -> Sequence[tuple[str, float]]:
        """By vector."""
        found = self._memory.search(text, filters=_USER, top_k=top_k, threshold=0.0)
        return [(result["id"], result["score"]) for result in found["results"]]

    def stored_bytes(self) -> int:
        """Texts and vectors."""
        return sum(len(text.encode()) + 4 * self._settings.dimensions for text in self._added.values())

    def fork(self, settings: Settings) -> Driver:
        """A copy of the folder: the store writes all that it is told before it answers."""
        ignored = shutil.ignore_patterns(".lock")
        shutil.copytree(self._settings.directory, settings.directory, ignore=ignored, dirs_exist_ok=True)
        return Mem0(settings)

    def close(self) -> None:
        """Let go of both databases."""
        self._memory.vector_store.client.close()
        self._memory.db.close()


DRIVER = Mem0
