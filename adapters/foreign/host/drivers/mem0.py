"""Mem0 2.x, open source edition: a vector store in the memory's folder, and facts that a model extracts into it.

It tells its model which day it is, and takes no other than today's: the day of the call is put there. Its memories are
added and never changed, so a contradiction is one more of them.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar

import mem0.embeddings.openai
import mem0.llms.openai
import mem0.memory.main
from mem0 import Memory
from openai import DefaultHttpxClient, OpenAI

from ..driver import Driver, Held, Message, Settings, moment

_USER = {"user_id": "user"}
_ALL = 10_000_000
_ADDED = "added.json"
"""All memories, id → text, in the order in which they came: the store has them in that of their random ids."""

_today: ContextVar[str] = ContextVar("today")
_generate = mem0.memory.main.generate_additive_extraction_prompt


def _prompt(*args: Any, **given: Any) -> str:
    return str(_generate(*args, **{**given, "timestamp": _today.get(), "current_date": _today.get()}))


mem0.memory.main.generate_additive_extraction_prompt = _prompt

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
        said = [
            {"role": m.speaker if m.speaker == "assistant" else "user", "content": m.text} for m in messages
        ]
        if not said:
            return
        given = self._memory.add(said, **_USER, metadata={"created_at": now.isoformat()})
        self._added |= {result["id"]: result["memory"] for result in given["results"]}
        (self._settings.directory / _ADDED).write_text(json.dumps(self._added))

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
