"""The SQLite log against plain `executemany` and `select` of the same rows in one table.

    python benchmarks/bench_log.py [--records 100000] [--rounds 5]

Both sides use the same pragmas, batches and rows, and take turns. A ratio of 1 means as fast as plain SQLite.
"""

from __future__ import annotations

import argparse
import gc
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from simulator.log import Record, SqliteLog, TopicPartition

BATCH = 1000
VALUE_BYTES = 250
COLUMNS = (
    "(offset INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL, "
    "timestamp_ms INTEGER NOT NULL, headers BLOB NOT NULL)"
)


def make_records(count: int, *, shared_headers: bool) -> list[Record]:
    shared = (("kind", b"observation"), ("v", b"1"), ("wall_us", b"1755302400000000"))
    value = b"x" * (VALUE_BYTES - 8)
    return [
        Record(
            "run.observations",
            b"A1_JAKE",
            b"%08d" % i + value,
            1_755_302_400_000 + i,
            shared if shared_headers else (*shared[:2], ("wall_us", b"%d" % (1_755_302_400_000_000 + i))),
            0,
        )
        for i in range(count)
    ]


def plain(path: Path, rows: Sequence[tuple[int, bytes, bytes, int, bytes]]) -> tuple[float, float]:
    """Seconds to insert and to select the rows."""
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = NORMAL")
    conn.execute(f"CREATE TABLE records {COLUMNS}")
    began = time.perf_counter()
    for first in range(0, len(rows), BATCH):
        conn.execute("BEGIN IMMEDIATE")
        conn.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows[first : first + BATCH])
        conn.execute("COMMIT")
    inserted = time.perf_counter()
    count = 0
    for first in range(0, len(rows), BATCH):
        found = conn.execute(
            "SELECT offset, key, value, timestamp_ms, headers FROM records WHERE offset BETWEEN ? AND ?",
            (first, first + BATCH - 1),
        ).fetchall()
        count += len(found)
    selected = time.perf_counter()
    assert count == len(rows)
    conn.close()
    return inserted - began, selected - inserted


async def ours(path: Path, records: Sequence[Record]) -> tuple[float, float, float, float]:
    """Seconds to append, to read alone, to read as a group, and for one transaction."""
    async with SqliteLog.open(path) as log:
        await log.create_topics({"run.observations": 1, "run.deltas": 1})
        began = time.perf_counter()
        for first in range(0, len(records), BATCH):
            await log.append(records[first : first + BATCH])
        append_s = time.perf_counter() - began
        read_s = []
        for group in (None, "readers"):
            count = 0
            async with log.subscribe(["run.observations"], group=group) as subscription:
                began = time.perf_counter()
                while count < len(records):
                    count += len(await subscription.poll(max_records=BATCH))
                read_s.append(time.perf_counter() - began)
        tp = TopicPartition("run.observations", 0)
        delta = records[0]._replace(topic="run.deltas")
        transactions = 300
        async with log.subscribe(["run.observations"], group="agents") as subscription:
            began = time.perf_counter()
            for i in range(transactions):
                await subscription.transact([delta], {tp: i + 1})
            transact_s = (time.perf_counter() - began) / transactions
    return append_s, read_s[0], read_s[1], transact_s


def show(name: str, ratios: Sequence[float], seconds: Sequence[float], count: int) -> None:
    rate = count / statistics.median(seconds)
    print(
        f"{name:34} {statistics.median(ratios):5.2f} x plain SQLite "
        f"(min {min(ratios):.2f}, max {max(ratios):.2f}), {rate:,.0f} records/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for shared_headers in (True, False):
        records = make_records(options.records, shared_headers=shared_headers)
        rows = [
            (i, r.key, r.value, r.timestamp_ms, msgspec.msgpack.encode(r.headers))
            for i, r in enumerate(records)
        ]
        gc.collect()
        gc.freeze()  # the input is no part of what is measured: neither side pays for scanning it
        measured = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                insert_s, select_s = plain(Path(folder) / "plain.sqlite", rows)
                append_s, read_s, group_s, transact_s = anyio.run(ours, Path(folder) / "log.sqlite", records)
            measured.append((insert_s, select_s, append_s, read_s, group_s, transact_s))
        inserts, selects, appends, reads, groups, transacts = zip(*measured, strict=True)
        print("headers shared by all records" if shared_headers else "headers of their own for each record")
        count = len(records)
        show("  append", [p / o for p, o in zip(inserts, appends, strict=True)], appends, count)
        show("  read", [p / o for p, o in zip(selects, reads, strict=True)], reads, count)
        show(
            "  read as a member of a group",
            [p / o for p, o in zip(selects, groups, strict=True)],
            groups,
            count,
        )
        print(f"  transact, 1 record and 1 offset   {statistics.median(transacts) * 1e6:5.0f} us")


if __name__ == "__main__":
    main()
