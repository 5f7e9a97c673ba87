"""MemOS (`MemoryOS` on PyPI, import name `memos`): memories that a model extracts from a conversation, as nodes of a
graph store (`tree_text`, the paper's, on PostgreSQL) or as plain items of a vector store (`general_text`, on Qdrant's
embedded one). Both only add: no memory is ever updated or deleted here.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import logging
import os
import shutil
import sys
import types
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from ..driver import Held, Message, Settings, moment
from ..patching import (
    SPEAKERS,
    CurrentClient,
    Inside,
    SimulatedDatetime,
    Threads,
    inside,
    pieces,
    unit_of,
)
from ..postgres import ROLE, server_in

_USER: Final = "user"
_CONNECTIONS: Final = 20
_MODULES: Final = (
    "memos.memories.textual.item",
    "memos.memories.textual.general",
    "memos.memories.textual.tree_text_memory.organize.manager",
    "memos.graph_dbs.postgres",
)


class _Clock(SimulatedDatetime):
    @classmethod
    def utcnow(cls) -> _Clock:
        return cls.now()


def _embed(_: object, texts: str | list[str]) -> list[list[float]]:
    vectors: list[list[float]] = inside().embed([texts] if isinstance(texts, str) else texts).tolist()
    return vectors


def _finished(futures: Sequence[Future[Any]]) -> list[Future[Any]]:
    """All of them, in their order. Raises what one raised: its reader logs that and goes on without its memories."""
    for future in futures:
        future.result()
    return list(futures)


def _with_vector(parse_row: Callable[..., Any]) -> Callable[..., Any]:
    """Its nodes with their vectors as numbers: it leaves them as PostgreSQL writes them, which its own types refuse."""

    @functools.wraps(parse_row)
    def parsed(*arguments: Any) -> Any:
        node = parse_row(*arguments)
        vector = node["metadata"].get("embedding")
        if isinstance(vector, str):
            node["metadata"]["embedding"] = json.loads(vector)
        return node

    return parsed


def _imported() -> tuple[Any, Any]:
    """MemOS's factories of configurations and of what they describe, patched."""
    warnings.simplefilter("ignore")  # of pydantic, which quotes configurations
    sys.modules["tiktoken"] = None  # type: ignore[assignment]  # its vocabulary is fetched from the internet
    configs = types.SimpleNamespace(
        memory=importlib.import_module("memos.configs.memory").MemoryConfigFactory,
        reader=importlib.import_module("memos.configs.mem_reader").MemReaderConfigFactory,
    )
    factories = types.SimpleNamespace(
        memory=importlib.import_module("memos.memories.factory").MemoryFactory,
        reader=importlib.import_module("memos.mem_reader.factory").MemReaderFactory,
    )
    for name in _MODULES:
        vars(importlib.import_module(name)).update(datetime=_Clock)
    for name, module in list(sys.modules.items()):
        if name.startswith("memos.") and hasattr(module, "ContextThreadPoolExecutor"):
            vars(module).update(ContextThreadPoolExecutor=Threads)
    vars(importlib.import_module("memos.llms.openai"))["openai"] = types.SimpleNamespace(Client=CurrentClient)
    embedders = importlib.import_module("memos.embedders.universal_api")
    vars(embedders)["OpenAIClient"] = CurrentClient
    embedders.UniversalAPIEmbedder.embed = _embed
    # Vectors are made when memories are added: its reader has a call for each, one after another
    reading = importlib.import_module("memos.mem_reader.simple_struct")
    reader = reading.SimpleStructMemReader
    reader._make_memory_item = functools.partialmethod(reader._make_memory_item, need_embed=False)
    # Pieces are read in threads, and their memories taken as they come, of those that raise none: here all of them in
    # the pieces' order, the same in each run
    vars(reading)["concurrent"] = types.SimpleNamespace(futures=types.SimpleNamespace(as_completed=_finished))
    store = importlib.import_module("memos.graph_dbs.postgres").PostgresGraphDB
    store._parse_row = _with_vector(store._parse_row)
    logging.disable()  # it logs every prompt and answer, each with the wall clock
    return configs, factories


_CONFIGS, _FACTORIES = _imported()
_POOL: Final[Any] = importlib.import_module("psycopg2.pool").ThreadedConnectionPool


def _info() -> dict[str, str]:
    return {"user_id": _USER, "session_id": _USER}


def _turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as MemOS wants them: what is no turn was perceived by the user."""
    return [
        {
            "role": message.speaker if message.speaker in SPEAKERS else "user",
            "content": message.text,
            "chat_time": moment(message.event_time_us).strftime("%Y-%m-%d %H:%M:%S"),
        }
        for message in messages
    ]


def _model(settings: Settings) -> dict[str, Any]:
    config = {"model_name_or_path": settings.model, "api_key": "unused"}
    return {"backend": "openai", "config": config}


def _embedder(settings: Settings) -> dict[str, Any]:
    config = {"provider": "openai", "model_name_or_path": settings.embedder, "api_key": "unused"}
    return {"backend": "universal_api", "config": config}


class _General:
    """`general_text`: one call for each piece, whose memories go into a collection of vectors."""

    def __init__(self, settings: Settings, origin: _General | None = None) -> None:
        self._path = settings.directory / "qdrant"
        if origin is not None:
            shutil.copytree(origin._path, self._path, ignore=shutil.ignore_patterns(".lock"))
        vectors = {
            "collection_name": "memories",
            "distance_metric": "cosine",
            "vector_dimension": settings.dimensions,
            "path": str(self._path),
        }
        config = {
            "extractor_llm": _model(settings),
            "embedder": _embedder(settings),
            "vector_db": {"backend": "qdrant", "config": vectors},
        }
        self._memory = _FACTORIES.memory.from_config(_CONFIGS.memory(backend="general_text", config=config))

    def extract(self, messages: Sequence[Message]) -> list[Any]:
        turns = [
            {**turn, "content": f"[{turn['chat_time']}]: {turn['content']}"} for turn in _turns(messages)
        ]
        items: list[Any] = self._memory.extract(turns)
        return items

    def add(self, items: Sequence[Any]) -> None:
        self._memory.add(items)

    def texts(self) -> dict[str, str]:
        return {item.id: item.memory for item in self._memory.get_all()}

    def search(self, text: str, top_k: int) -> list[tuple[str, float]]:
        if not (held := self._memory.vector_db.count()):
            return []
        (vector,) = self._memory.embedder.embed([text])
        # all of them, since a copy's scores differ in their last bits, which shall not say where the cut is
        found = self._memory.vector_db.search(vector, held)
        return [(item.id, item.score) for item in found]

    def close(self) -> None:
        self._memory.vector_db.client.close()


class _Tree:
    """`tree_text`: a scene is read ten turns at a time with a call each, whose memories are nodes in a database of
    their own. Between calls nobody is connected to it, so that it can be copied, and so that many can be open."""

    def __init__(self, settings: Settings, origin: _Tree | None = None) -> None:
        self._server = server_in(settings.directory.parent / "postgres")
        self._database = "m" + hashlib.sha256(os.fsencode(settings.directory)).hexdigest()[:16]
        self._server.create(self._database, origin._database if origin else None)
        database = {
            "host": self._server.host,
            "user": ROLE,
            "password": "",
            "db_name": self._database,
            "user_name": _USER,
            "embedding_dimension": settings.dimensions,
            "maxconn": _CONNECTIONS,
        }
        config = {
            "extractor_llm": _model(settings),
            "dispatcher_llm": _model(settings),
            "embedder": _embedder(settings),
            "graph_db": {"backend": "postgres", "config": database},
            "include_embedding": True,  # without, its reranker takes all nodes for equally near
        }
        self._memory = _FACTORIES.memory.from_config(_CONFIGS.memory(backend="tree_text", config=config))
        self._store = self._memory.graph_store
        self._store.close()
        chunker = {"backend": "sentence", "config": {"tokenizer_or_token_counter": "character"}}
        config = {"llm": _model(settings), "embedder": _embedder(settings), "chunker": chunker}
        config["created_at"] = inside().now
        self._reader = _FACTORIES.reader.from_config(_CONFIGS.reader(backend="simple_struct", config=config))

    def extract(self, messages: Sequence[Message]) -> list[Any]:
        scenes = self._reader.get_memory([_turns(messages)], type="chat", info=_info(), mode="fine")
        return [item for scene in scenes for item in scene]

    def add(self, items: Sequence[Any]) -> None:
        vectors = self._memory.embedder.embed([item.memory for item in items])
        for item, vector in zip(items, vectors, strict=True):
            item.metadata.embedding = vector
        with self._connected():
            self._memory.add(items, user_name=_USER)

    def texts(self) -> dict[str, str]:
        # `get_all` reads what each node is from, too, and that is most of it
        table = f"{self._store.schema}.memories"
        with self._connected(), self._store.pool.getconn().cursor() as cursor:
            cursor.execute(f"SELECT id, memory FROM {table}")
            return dict(cursor.fetchall())

    def search(self, text: str, top_k: int) -> list[tuple[str, float]]:
        with self._connected():
            found = self._memory.search(text, top_k, mode="fast", user_name=_USER, info=_info())
        return [(item.id, item.metadata.relativity) for item in found]

    def close(self) -> None:
        self._server.drop(self._database)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        where = {"host": self._server.host, "user": ROLE, "dbname": self._database}
        self._store.pool = _POOL(1, _CONNECTIONS, connect_timeout=30, **where)
        self._store._pool_closed = False
        try:
            yield
        finally:
            self._store.close()


_KINDS: Final = {"tree_text": _Tree, "general_text": _General}


class MemOS:
    """One memory. Options: `unit`; `memory`: `tree_text` (the default) or `general_text`."""

    searching_changes: ClassVar[bool] = False

    def __init__(self, settings: Settings, origin: MemOS | None = None) -> None:
        self._unit = unit_of(settings)
        self._dimensions = settings.dimensions
        self._inside = Inside(settings)
        made: Any = _KINDS[settings.options.get("memory", "tree_text")]
        with self._inside.called(0):
            self._system: Any = made(settings, origin._system if origin else None)
        self._held: dict[str, Held] = dict(origin._held) if origin else self._read()

    def ingest(self, messages: Sequence[Message], event_time_us: int) -> None:
        """A call of the model for each piece or, in `tree_text`, each ten turns of it."""
        for piece in pieces(messages, self._unit):
            with self._inside.called(max(message.event_time_us for message in piece)):
                items = [item for item in self._system.extract(piece) if item.memory.strip()]
                for number, item in enumerate(items, len(self._held) + 1):
                    item.id = str(uuid.UUID(int=number))  # by number, so that each run has the same
                if items:
                    self._system.add(items)
                self._held = self._read()
                if lost := {item.id for item in items} - self._held.keys():
                    raise RuntimeError(f"{len(lost)} of {len(items)} memories were not stored")

    def records(self) -> Mapping[str, Held]:
        """In the order of writing."""
        return self._held

    def search(self, text: str, top_k: int, now_us: int) -> Sequence[tuple[str, float]]:
        """In `tree_text` the nodes of each kind that are near, reranked by their vectors: its mode `fast`."""
        with self._inside.called(now_us):
            found = [(native, round(float(score), 6)) for native, score in self._system.search(text, top_k)]
        return sorted(found, key=lambda hit: (-hit[1], hit[0]))[:top_k]

    def stored_bytes(self) -> int:
        """Texts and vectors."""
        return sum(len(held.text.encode()) + 4 * self._dimensions for held in self._held.values())

    def fork(self, settings: Settings) -> MemOS:
        """A copy of the collection's files, or of the database."""
        return MemOS(settings, self)

    def close(self) -> None:
        """The database of a `tree_text` is deleted."""
        self._system.close()

    def _read(self) -> dict[str, Held]:
        return {native: Held(text) for native, text in sorted(self._system.texts().items())}


DRIVER = MemOS
