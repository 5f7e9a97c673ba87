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
    is missing and `create` is set; `kafka://host:port` is a Kafka cluster (see `simulator.log.kafka_config`
    for its options). Raises ConfigError for other schemes, a URL that can't be used, or if the Kafka client
    is not installed; LogError for what is no log or can't be reached."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        async with SqliteLog.open(url, create=create) as log:
            yield log
    elif scheme == "kafka":
        try:
            from simulator.log.kafka import KafkaLog
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "aiokafka":
                raise
            raise ConfigError(
                "a log on Kafka needs its client, which is not installed: pip install 'egostream[kafka]'"
            ) from error
        async with KafkaLog.open(url) as kafka_log:
            yield kafka_log
    else:
        raise ConfigError(
            f"can't open the log: unknown scheme {scheme!r}; give an SQLite path or kafka://host:port"
        )
