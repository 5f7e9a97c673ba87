"""What the log tests share. Deadlines are generous: they end a hang, they measure nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from simulator.intake import read_to_end
from simulator.log import Log, Record, StoredRecord, Subscription, TopicPartition

DEADLINE_S = 60.0


def record(topic: str, value: bytes, partition: int | None = 0, stamp: int = 0, key: bytes = b"k") -> Record:
    return Record(topic, key, value, stamp, (), partition)


def values(records: Iterable[StoredRecord]) -> list[bytes]:
    return [r.value for r in records]


async def read(subscription: Subscription, count: int) -> list[StoredRecord]:
    """Poll until `count` records have come."""
    found: list[StoredRecord] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found += await subscription.poll(timeout_s=5)
    return found


async def settle(
    subscriptions: Sequence[Subscription], partitions: set[TopicPartition]
) -> list[StoredRecord]:
    """Poll until the members share the partitions without overlap; returns what came meanwhile."""
    found: list[StoredRecord] = []
    deadline = time.monotonic() + DEADLINE_S
    while True:
        for subscription in subscriptions:
            found += await subscription.poll(timeout_s=0.01)
        shares = [subscription.assignment for subscription in subscriptions]
        if sum(map(len, shares)) == len(partitions) and frozenset().union(*shares) == partitions:
            return found
        assert time.monotonic() < deadline, f"the group does not settle: {shares}"


async def held(log: Log, topic: str) -> dict[int, list[bytes]]:
    """The values that a topic holds, by partition."""
    found: dict[int, list[bytes]] = {}
    async for got in read_to_end(log, [topic]):
        found.setdefault(got.partition, []).append(got.value)
    return found


def places(**topics: int) -> set[TopicPartition]:
    return {TopicPartition(topic, p) for topic, partitions in topics.items() for p in range(partitions)}


def integrity(path: Path) -> str:
    conn = sqlite3.connect(path)
    try:
        return str(conn.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        conn.close()
