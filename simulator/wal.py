"""SQLite's write-ahead log in a file that several processes may be making at once."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

_PAUSE_S: Final = 0.01


def use_wal(db: sqlite3.Connection, timeout_s: float) -> None:
    """Have a file keep a write-ahead log from now on. Blocking, for so long at most where others write to it: the
    connection's own time-out does not hold for this switch, which fails at once. Raises sqlite3.Error."""
    ends_s = time.monotonic() + timeout_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= ends_s:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
