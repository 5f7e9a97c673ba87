"""Where the wall clock shows: in texts, in files of whatever format, and in the cells of SQLite's tables."""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import AnyStr, Final, NamedTuple

UNITS_S: Final = (1.0, 1e-3, 1e-6, 1e-9)
"""In which times since 1970 are kept, as numbers of ten digits and of three more for each."""
POSTGRES_EPOCH_S: Final = 946_684_800
_SQLITE: Final = b"SQLite format 3\0"
_DAYS: Final = (
    "%Y[-/._]?%m[-/._]?%d",
    "%b[a-z]* 0?{0},? %Y",
    "{0}\\.? %b[a-z]*,? %Y",
)
"""Each begins with letters or digits, which is what makes it quick to look for it in megabytes."""


class WallClock(NamedTuple):
    """What was now, from the one to the other, in seconds since 1970; not more than a day."""

    since_s: float
    until_s: float

    def in_files(self, folder: Path, known: re.Pattern[str]) -> list[str]:
        """`path: what` or `path: table.column: what`, of all files and names in a folder but what begins as `known`
        says: of a file that it matches, nothing is read."""
        found = dict[str, None]()
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if known.match(name):
                continue
            found |= dict.fromkeys(f"{name}: {what}" for what in self.in_text(path.name.encode()))
            if not path.is_file() or path.name.endswith(("-wal", "-shm")):  # SQLite reads those
                continue
            with suppress(FileNotFoundError):  # by now: a server is at work
                found |= dict.fromkeys(f"{name}: {what}" for what in self._in_file(path))
        return [place for place in found if not known.match(place)]

    def in_text(self, text: bytes) -> Iterator[str]:
        """Days however they are written, numbers that are times, and ids that begin with one."""
        for at in {datetime.fromtimestamp(at_s, UTC) for at_s in self}:
            for form in _DAYS:
                yield from _whole(re.compile(at.strftime(form.format(at.day)).encode()), text, rb"\d")
        for long in range(10, 20, 3):
            begins = _common(*(str(int(end)) for end in self))
            number = re.compile(rf"{begins}\d{{{long - len(begins)}}}(?!\w)".encode())
            for found in _whole(number, text, rb"[\w.]"):
                if self._holds(int(found) * UNITS_S[(long - 10) // 3]):
                    yield found
        begins = _common(*(f"{int(end * 1000):012x}" for end in self))[:8]
        version_7 = rf"{begins}[0-9a-f]{{{8 - len(begins)}}}-?[0-9a-f]{{4}}-?7[0-9a-f]{{3}}-?[89ab]"
        for found in _whole(re.compile(version_7.encode()), text, rb"[0-9a-f]"):
            if self._holds(int(found.replace("-", "")[:12], 16) / 1000):
                yield f"id {found}"

    def in_binary(self, content: bytes) -> Iterator[str]:
        """Numbers of eight bytes, wherever they begin, and datetimes as they are pickled."""
        yield from self._packed("<d", content, self.since_s, self.until_s)
        yield from self._packed(">d", content, self.since_s, self.until_s)
        yield from self._packed("<q", content, *((at_s - POSTGRES_EPOCH_S) * 1e6 for at_s in self))
        for unit_s in UNITS_S[1:]:  # seconds are too short to be told from anything else
            yield from self._packed("<q", content, *(at_s / unit_s for at_s in self))
        for at in {
            datetime.fromtimestamp(at_s, UTC).replace(minute=0, second=0, microsecond=0) for at_s in self
        }:
            if bytes((*divmod(at.year, 256), at.month, at.day, at.hour)) in content:
                yield f"a datetime of {at}"

    def _holds(self, at_s: float) -> bool:
        return self.since_s <= at_s <= self.until_s

    def _packed(self, kind: str, content: bytes, low: float, high: float) -> Iterator[str]:
        """The first bytes of all of them are the same, so that few places need a look."""
        number = float if kind[1] == "d" else int
        ends = [struct.pack(f">{kind[1]}", number(end)) for end in (low, high)]
        common = _common(*ends)
        before = 0 if kind[0] == ">" else 8 - len(common)
        same = re.compile(re.escape(common if kind[0] == ">" else common[::-1]))
        for match in same.finditer(content):
            place = match.start() - before
            if 0 <= place <= len(content) - 8:
                (value,) = struct.unpack_from(kind, content, place)
                if low <= value <= high:
                    yield f"{kind} {value}"

    def _in_file(self, path: Path) -> Iterator[str]:
        content = path.read_bytes()
        if not content.startswith(_SQLITE):
            yield from self.in_text(content)
            yield from self.in_binary(content)
            return
        with closing(sqlite3.connect(path)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                rows = database.execute(f'SELECT * FROM "{table}"')
                columns = [column[0] for column in rows.description]
                for row in rows:
                    for column, cell in zip(columns, row, strict=True):
                        yield from (f"{table}.{column}: {what}" for what in self._in_cell(cell))

    def _in_cell(self, cell: object) -> Iterator[str]:
        if isinstance(cell, bytes):
            yield from self.in_binary(cell)
        yield from self.in_text(cell if isinstance(cell, bytes) else str(cell).encode())


def _whole(pattern: re.Pattern[bytes], text: bytes, before: bytes) -> Iterator[str]:
    """What matches, but where it goes on with `before` to the left."""
    for match in pattern.finditer(text):
        if not re.match(before, text[max(match.start() - 1, 0) : match.start()]):
            yield match[0].decode()


def _common(one: AnyStr, other: AnyStr) -> AnyStr:
    """What both begin with."""
    differ = [a != b for a, b in zip(one, other, strict=True)]
    return one[: differ.index(True)]
