"""A file that another process is making at the same moment: it is waited for."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from adapters.endpoints.cache import Cache
from simulator.log.sqlite_store import connect
from simulator.wal import use_wal


@contextmanager
def held(path: Path, seconds: float = 0.0) -> Iterator[None]:
    """Somebody else writes to the file for so long (0: to the end of the block), and comes to nothing."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        end = threading.Timer(seconds, other.rollback)
        if seconds:
            end.start()
        yield
        if seconds:
            end.join()


async def test_a_cache_is_made_once_the_other_is_done(tmp_path: Path) -> None:
    with held(tmp_path / "c.db", 0.3):
        cache = Cache(tmp_path / "c.db")
        await cache.open()
        assert await cache.models() == []
        await cache.aclose()


def test_a_log_is_made_once_the_other_is_done(tmp_path: Path) -> None:
    with held(tmp_path / "log.db", 0.3):
        connect(tmp_path / "log.db", create=True).close()


def test_it_is_not_waited_for_longer_than_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with (
        held(path),
        closing(sqlite3.connect(path, timeout=60)) as db,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        use_wal(db, 0.05)
