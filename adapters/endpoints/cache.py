"""Answers that were paid for once, in one SQLite file that any number of processes share.

A key is a digest of everything that changes an answer; errors are never kept. Where two processes ask the same at
once, the answer that is kept first stands, and both go on with it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec

from simulator.errors import ConfigError
from simulator.wal import use_wal

APPLICATION_ID: Final = 0x65676D63  # "egmc", in the file's header
SCHEMA_VERSION: Final = 1
BUSY_TIMEOUT_S: Final = 60.0
_KEYS_AT_ONCE: Final = 500
_SCHEMA: Final = """
CREATE TABLE answers (
  key BLOB PRIMARY KEY,
  model TEXT NOT NULL,
  value BLOB NOT NULL,
  prompt_tokens INTEGER,
  completion_tokens INTEGER,
  kept_at_s INTEGER NOT NULL
) STRICT
"""

R = TypeVar("R")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: a text in UTF-8, or a vector's bytes. Tokens are None where the server did not say."""

    value: bytes
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ModelEntries(msgspec.Struct, frozen=True, kw_only=True):
    """What a cache holds of one model: entries, their bytes, and when the last was kept (Unix seconds)."""

    model: str
    entries: int
    value_bytes: int
    last_kept_at_s: int


def default_cache() -> Path:
    """`egostream/models.db` in the person's folder for caches: runs anywhere share it."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else Path.home() / ".cache") / "egostream" / "models.db"


def key_for(*parts: object) -> bytes:
    """A digest of all that changes an answer: equal parts, equal keys, in whatever order their fields stand."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).digest()


class Cache:
    """One open file. All methods raise ConfigError where it is no cache, damaged, or can't be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._one_at_a_time = anyio.CapacityLimiter(1)

    async def open(self) -> None:
        """Open the file; make it where there is none."""
        await self._in_thread(self._open)

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        """Those of the keys that are there."""
        return await self._in_thread(lambda: self._get(keys))

    async def put(
        self, model: str, entries: dict[bytes, Entry], *, replace: bool = False
    ) -> dict[bytes, Entry]:
        """Keep answers of one model, and what is kept under these keys now: another process may have been first.
        `replace`: what is there turned out to be unusable. Finished even when the caller is cancelled: it is paid."""
        with anyio.CancelScope(shield=True):
            kept = await self._in_thread(lambda: self._put(model, entries, replace))
        return kept  # noqa: RET504  # a type checker thinks that the scope may swallow a return

    async def models(self) -> list[ModelEntries]:
        """What is in it, by model."""
        return await self._in_thread(self._models)

    async def prune(self, *, model: str | None = None, kept_before_s: int | None = None) -> int:
        """Delete what is of this model, and older than this; the number of entries deleted."""
        return await self._in_thread(lambda: self._prune(model, kept_before_s))

    async def aclose(self) -> None:
        """Close the file."""
        with anyio.CancelScope(shield=True):
            await self._in_thread(self._close)

    async def _in_thread(self, work: Callable[[], R]) -> R:
        def checked() -> R:
            try:
                return work()
            except sqlite3.Error as error:
                raise ConfigError(
                    f"the cache {self.path} can't be used: {error}; name another with --cache, or move it away"
                ) from error

        return await anyio.to_thread.run_sync(checked, limiter=self._one_at_a_time)

    # --- in the thread ------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.path.is_dir():
            raise ConfigError(f"the cache {self.path} is a folder, and should be a file")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the cache {self.path} can't be made: {error.strerror}") from error
        db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            if _is_empty(db):
                self._create(db)
            self._check(db)
            db.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            db.close()
            raise
        self._connection = db

    def _create(self, db: sqlite3.Connection) -> None:
        use_wal(db, BUSY_TIMEOUT_S)
        db.execute("BEGIN IMMEDIATE")
        with db:
            if _is_empty(db):  # no other process was first
                db.execute(_SCHEMA)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _check(self, db: sqlite3.Connection) -> None:
        found = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if found != APPLICATION_ID:
            raise ConfigError(f"{self.path} is no cache of egostream's: name another with --cache")
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"the cache {self.path} has version {version}, and this egostream reads {SCHEMA_VERSION}: name another "
                "with --cache"
            )

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError(f"the cache {self.path} is not open")
        return self._connection

    def _get(self, keys: Iterable[bytes]) -> dict[bytes, Entry]:
        wanted = list(keys)
        found: dict[bytes, Entry] = {}
        for start in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[start : start + _KEYS_AT_ONCE]
            marks = ",".join("?" * len(some))
            rows = self._db.execute(
                f"SELECT key, value, prompt_tokens, completion_tokens FROM answers WHERE key IN ({marks})",
                some,
            )
            for key, value, prompt_tokens, completion_tokens in rows:
                found[key] = Entry(
                    value=value, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
                )
        return found

    def _put(self, model: str, entries: dict[bytes, Entry], replace: bool) -> dict[bytes, Entry]:
        now_s = int(time.time())
        rows = [
            (key, model, entry.value, entry.prompt_tokens, entry.completion_tokens, now_s)
            for key, entry in entries.items()
        ]
        otherwise = "REPLACE" if replace else "IGNORE"
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        with db:
            db.executemany(f"INSERT OR {otherwise} INTO answers VALUES (?, ?, ?, ?, ?, ?)", rows)
        return self._get(entries)

    def _models(self) -> list[ModelEntries]:
        rows = self._db.execute(
            "SELECT model, count(*), sum(length(value)), max(kept_at_s) FROM answers GROUP BY model ORDER BY model"
        )
        return [
            ModelEntries(model=model, entries=entries, value_bytes=size, last_kept_at_s=last)
            for model, entries, size, last in rows
        ]

    def _prune(self, model: str | None, kept_before_s: int | None) -> int:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        with db:
            deleted = db.execute(
                "DELETE FROM answers WHERE (?1 IS NULL OR model = ?1) AND (?2 IS NULL OR kept_at_s < ?2)",
                (model, kept_before_s),
            ).rowcount
        db.execute("VACUUM")
        return deleted

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _is_empty(db: sqlite3.Connection) -> bool:
    empty: bool = db.execute("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)").fetchone()[0]
    return empty
