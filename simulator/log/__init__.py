"""The event log: protocol and implementations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from simulator.errors import ConfigError
from simulator.log.protocol import Headers, Log, Record, StoredRecord, Subscription, TopicPartition
from simulator.log.sqlite import SqliteLog

__all__ = [
    "Headers",
    "Log",
    "Record",
    "SqliteLog",
    "StoredRecord",
    "Subscription",
    "TopicPartition",
    "open_log",
]


@asynccontextmanager
async def open_log(url: str, *, create: bool = True) -> AsyncIterator[Log]:
    """Open a log: `async with open_log("run/log.sqlite") as log`. A plain path is an SQLite file, made if it
    is missing and `create` is set. Raises ConfigError for `kafka://` and other schemes, LogError for what is
    no log."""
    scheme, separator, _ = url.partition("://")
    if separator:
        known = (
            "Kafka is not supported by this version" if scheme == "kafka" else f"unknown scheme {scheme!r}"
        )
        raise ConfigError(f"can't open the log {url}: {known}; give the path of an SQLite log")
    async with SqliteLog.open(url, create=create) as log:
        yield log
