"""How a log lies in an SQLite file, and the blocking operations on it. It knows nothing of tasks or groups.

Each partition is a table of its own whose rows are *chunks*: up to `CHUNK_RECORDS` consecutive records,
packed by column, at the offset of their first. SQLite's price is paid by the row, so this makes appending
and reading cheaper than a row for each record would. `partitions` holds each partition's end and highest
stamp.

The sparse index for seeking by time has rows at the first offset of a chunk, at most one per
`INDEX_EVERY_RECORDS`, with the highest stamp *before* that offset. These never fall, so the last row below
the wanted stamp says from where to scan, in whatever order stamps came.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, repeat
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from simulator.errors import LogError, TopicError
from simulator.log.partitioner import partition_for
from simulator.log.protocol import Headers, Record, StoredRecord, TopicPartition
from simulator.wal import use_wal

SCHEMA_VERSION = 1
APPLICATION_ID = 0x65676F73  # "egos", in the file's header
BUSY_TIMEOUT_S = 30.0
CHUNK_RECORDS = 128
INDEX_EVERY_RECORDS = 512
FETCH_BYTES = 8 << 20
"""A fetch ends after the rows that reach this size."""

_LEGAL_IN_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

SCHEMA = """
CREATE TABLE egostream_log (schema_version INTEGER NOT NULL) STRICT;
CREATE TABLE partitions (
  id INTEGER PRIMARY KEY,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  end_offset INTEGER NOT NULL DEFAULT 0,
  max_timestamp_ms INTEGER NOT NULL DEFAULT -9223372036854775808,
  indexed_offset INTEGER NOT NULL DEFAULT 0,
  UNIQUE (topic, partition)
) STRICT;
CREATE TABLE time_index (
  partition_id INTEGER NOT NULL,
  max_before_ms INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  PRIMARY KEY (partition_id, max_before_ms, offset)
) STRICT, WITHOUT ROWID;
CREATE TABLE groups (
  name TEXT PRIMARY KEY,
  topics TEXT NOT NULL,
  exclusive INTEGER NOT NULL,
  generation INTEGER NOT NULL
) STRICT;
CREATE TABLE members (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  group_name TEXT NOT NULL,
  process TEXT NOT NULL,
  polled_s REAL NOT NULL,
  max_poll_interval_s REAL NOT NULL
) STRICT;
CREATE TABLE assignments (
  group_name TEXT NOT NULL,
  partition INTEGER NOT NULL,
  member_id INTEGER NOT NULL,
  since_generation INTEGER NOT NULL,
  PRIMARY KEY (group_name, partition)
) STRICT, WITHOUT ROWID;
CREATE TABLE committed (
  group_name TEXT NOT NULL,
  partition_id INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  PRIMARY KEY (group_name, partition_id)
) STRICT, WITHOUT ROWID;
"""

_BYTES = (bytes, bytearray, memoryview)


class _Stamps(msgspec.Struct, array_like=True, gc=False):
    """The beginning of a chunk."""

    timestamps_ms: list[int]


class _Chunk(_Stamps, array_like=True, gc=False):
    """Records by column. A column of equal keys or headers has one entry."""

    keys: list[bytes]
    headers: list[Headers]
    values: list[bytes]


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Chunk).decode
_unpack_stamps = msgspec.msgpack.Decoder(_Stamps).decode


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """A connection with our settings. The file must be our log already, unless `create`, which makes it one
    if it is new or empty. Raises LogError for anything else, and leaves the file as it was."""
    if path.is_dir():
        raise LogError(f"{path} is a folder, not a log file")
    if not create and not path.exists():
        raise LogError(f"there is no log at {path}")
    if not path.parent.is_dir():
        raise LogError(f"the folder of the log {path} does not exist")
    try:
        conn = sqlite3.connect(
            path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=1024,
        )
    except sqlite3.Error as error:
        raise LogError(f"can't open the log {path}: {error}") from error
    try:
        if create and _is_empty(conn):
            _create(conn)
        _check(conn, path)
        conn.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        conn.close()
        raise LogError(f"can't open the log {path}: {error}") from error
    except BaseException:
        conn.close()
        raise
    return conn


def _is_empty(conn: sqlite3.Connection) -> bool:
    empty: bool = conn.execute("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)").fetchone()[0]
    return empty


def _create(conn: sqlite3.Connection) -> None:
    use_wal(conn, BUSY_TIMEOUT_S)
    conn.execute("BEGIN IMMEDIATE")
    with conn:
        if _is_empty(conn):  # no other process was first
            for statement in SCHEMA.split(";"):
                conn.execute(statement)
            conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            conn.execute("INSERT INTO egostream_log VALUES (?)", (SCHEMA_VERSION,))


def _check(conn: sqlite3.Connection, path: Path) -> None:
    if conn.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise LogError(f"{path} is not an egostream log")
    (version,) = conn.execute("SELECT schema_version FROM egostream_log").fetchone()
    if version > SCHEMA_VERSION:
        raise LogError(
            f"the log {path} has schema version {version}, newer than {SCHEMA_VERSION}: upgrade egostream"
        )


class Catalogue:
    """Topic → the ids of its partitions. Topics never change once they exist, so what was read stays true."""

    def __init__(self) -> None:
        self._ids: dict[str, tuple[int, ...]] = {}

    def ids(self, conn: sqlite3.Connection, topic: str) -> tuple[int, ...]:
        """The ids of a topic's partitions, in order. Raises TopicError for an unknown topic."""
        found = self._ids.get(topic)
        if found is None:
            rows = conn.execute("SELECT id FROM partitions WHERE topic = ? ORDER BY partition", (topic,))
            found = tuple(row[0] for row in rows)
            if not found:
                known = ", ".join(sorted(topics(conn))) or "none"
                raise TopicError(f"there is no topic {topic!r}; topics: {known}")
            self._ids[topic] = found
        return found

    def id(self, conn: sqlite3.Connection, topic: str, partition: int) -> int:
        """The id of one partition. Raises TopicError for an unknown one."""
        ids = self.ids(conn, topic)
        if not 0 <= partition < len(ids):
            raise TopicError(f"topic {topic!r} has partitions 0 to {len(ids) - 1}, not {partition}")
        return ids[partition]

    def clear(self) -> None:
        """Forget all: for after a rolled-back transaction that may have created topics."""
        self._ids.clear()


def topics(conn: sqlite3.Connection) -> dict[str, int]:
    """Topic → number of partitions."""
    return dict(conn.execute("SELECT topic, count(*) FROM partitions GROUP BY topic"))


def create_topics(conn: sqlite3.Connection, wanted: Mapping[str, int]) -> None:
    """Create topics. Raises TopicError for an illegal name or number, or one that exists otherwise."""
    existing = topics(conn)
    for topic, partitions in wanted.items():
        if not 0 < len(topic) <= 249 or not _LEGAL_IN_NAMES.issuperset(topic) or topic in {".", ".."}:
            raise TopicError(f"{topic!r} is no topic name: 1 to 249 ASCII letters, digits, '.', '_' or '-'")
        if partitions < 1:
            raise TopicError(f"topic {topic!r} needs at least one partition, not {partitions}")
        if topic in existing:
            if existing[topic] != partitions:
                raise TopicError(
                    f"topic {topic!r} has {existing[topic]} partition{'s'[: existing[topic] != 1]}, not "
                    f"{partitions}: it is another run's; choose another log"
                )
            continue
        for partition in range(partitions):
            row = conn.execute("INSERT INTO partitions (topic, partition) VALUES (?, ?)", (topic, partition))
            conn.execute(
                f"CREATE TABLE chunks_{row.lastrowid} (offset INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT"
            )


def append(conn: sqlite3.Connection, catalogue: Catalogue, records: Iterable[Record]) -> set[str]:
    """Append within the open transaction; returns the topics written to. Raises TopicError for an unknown
    topic or partition, LogError for a record with wrong types; the caller rolls back."""
    places: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        topic, partition = record[0], record[5]
        if partition is None:
            partition = partition_for(record.key, len(catalogue.ids(conn, topic)))
        place = places.get((topic, partition))
        if place is None:
            place = places[topic, partition] = []
        place.append(record)
    for (topic, partition), placed in places.items():
        _append_to(conn, catalogue.id(conn, topic, partition), placed)
    return {topic for topic, _ in places}


def _append_to(conn: sqlite3.Connection, partition_id: int, records: list[Record]) -> None:
    end, newest_ms, indexed = conn.execute(
        "SELECT end_offset, max_timestamp_ms, indexed_offset FROM partitions WHERE id = ?", (partition_id,)
    ).fetchone()
    for first in range(0, len(records), CHUNK_RECORDS):
        some = records[first : first + CHUNK_RECORDS]
        chunk = _chunk(some)
        if end - indexed >= INDEX_EVERY_RECORDS:
            indexed = end
            conn.execute("INSERT INTO time_index VALUES (?, ?, ?)", (partition_id, newest_ms, end))
        conn.execute(f"INSERT INTO chunks_{partition_id} VALUES (?, ?)", (end, _pack(chunk)))
        end += len(some)
        newest_ms = max(newest_ms, *chunk.timestamps_ms)
    conn.execute(
        "UPDATE partitions SET end_offset = ?, max_timestamp_ms = ?, indexed_offset = ? WHERE id = ?",
        (end, newest_ms, indexed, partition_id),
    )


def _chunk(records: list[Record]) -> _Chunk:
    _, keys, values, stamps, headers, _ = zip(*records, strict=True)
    if all(map(eq, keys, repeat(keys[0]))):
        keys = keys[:1]
    if all(map(eq, headers, repeat(headers[0]))):
        headers = headers[:1]
    try:
        return msgspec.convert((stamps, keys, headers, values), _Chunk, builtin_types=_BYTES)
    except msgspec.ValidationError as error:
        raise LogError(
            f"can't append to {records[0].topic!r}: a record has a field of a wrong type: {error}"
        ) from error


class Position(NamedTuple):
    """From where to read a partition."""

    tp: TopicPartition
    id: int
    offset: int


Run = tuple[TopicPartition, list[StoredRecord]]
"""Records of one partition at consecutive offsets."""


def end_offsets(conn: sqlite3.Connection, ids: Iterable[int]) -> dict[int, int]:
    """Partition id → the offset that its next record will get."""
    wanted = ",".join(map(str, ids))
    return dict(conn.execute(f"SELECT id, end_offset FROM partitions WHERE id IN ({wanted})"))


def fetch(conn: sqlite3.Connection, positions: Sequence[Position], max_records: int) -> list[Run]:
    """What is ready at the positions, shared fairly: with more ready partitions than records allowed, the
    first of `positions` win (callers rotate them); otherwise each gets an equal share and what the others
    leave over."""
    ends = end_offsets(conn, [position.id for position in positions])
    ready = [(ends[p.id] - p.offset, p) for p in positions if ends[p.id] > p.offset][:max_records]
    ready.sort(key=lambda item: item[0])
    runs: list[Run] = []
    left_bytes = FETCH_BYTES
    for served, (backlog, position) in enumerate(ready):
        take = min(backlog, max_records // (len(ready) - served))
        records, read_bytes = _read(conn, position, take, left_bytes)
        max_records -= len(records)
        left_bytes -= read_bytes
        runs.append((position.tp, records))
    return runs


def _read(
    conn: sqlite3.Connection, position: Position, count: int, max_bytes: int
) -> tuple[list[StoredRecord], int]:
    """Records and the size of their chunks; ends after the chunk that reaches `max_bytes`."""
    (topic, partition), begin, end = position.tp, position.offset, position.offset + count
    cursor = conn.execute(
        f"SELECT offset, data FROM chunks_{position.id} WHERE offset < ?1 AND offset >= "
        f"(SELECT max(offset) FROM chunks_{position.id} WHERE offset <= ?2) ORDER BY offset",
        (end, begin),
    )
    records: list[StoredRecord] = []
    read_bytes = 0
    for first, data in cursor:
        chunk = _unpack(data)
        columns: Iterable[Any] = zip(
            repeat(topic),
            repeat(partition),
            range(first, first + len(chunk.values)),
            chunk.keys if len(chunk.keys) > 1 else repeat(chunk.keys[0]),
            chunk.values,
            chunk.timestamps_ms,
            chunk.headers if len(chunk.headers) > 1 else repeat(chunk.headers[0]),
            strict=False,  # some columns are endless
        )
        if first < begin or first + len(chunk.values) > end:
            columns = islice(columns, max(begin - first, 0), end - first)
        records += map(
            tuple.__new__, repeat(StoredRecord), columns
        )  # as StoredRecord._make, without its frames
        read_bytes += len(data)
        if read_bytes >= max_bytes:
            break
    cursor.close()
    if not records:
        raise LogError(f"the log is damaged: {topic} partition {partition} has no record at offset {begin}")
    return records, read_bytes


def offset_for_time(conn: sqlite3.Connection, partition_id: int, timestamp_ms: int) -> int | None:
    """The smallest offset whose stamp is at or after `timestamp_ms`, or None."""
    row = conn.execute(
        "SELECT offset FROM time_index WHERE partition_id = ? AND max_before_ms < ? "
        "ORDER BY max_before_ms DESC, offset DESC LIMIT 1",
        (partition_id, timestamp_ms),
    ).fetchone()
    for first, data in conn.execute(
        f"SELECT offset, data FROM chunks_{partition_id} WHERE offset >= ? ORDER BY offset",
        (row[0] if row else 0,),
    ):
        for offset, stamp in enumerate(_unpack_stamps(data).timestamps_ms, first):
            if stamp >= timestamp_ms:
                return offset
    return None
