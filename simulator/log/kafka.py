"""The log on Apache Kafka: `kafka://host:port[,host:port...][?option=value]`.

It keeps the `Log` protocol with three differences that Kafka makes:

- Offsets have gaps: each transaction leaves a mark that takes an offset, and aborted records take theirs.
  `position` steps over them, so that a loop until `position >= end` ends.
- `append` is all or nothing for each batch of about 1 MB, not for a call (see `kafka_producer`).
- `transact` is one transaction for each partition number that its offsets name (see `kafka_subscription`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import aiokafka
import anyio
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient

from simulator.errors import LogError, TopicError
from simulator.log.kafka_admin import KafkaAdmin
from simulator.log.kafka_client import check_reachable, quiet_aiokafka, retried, started
from simulator.log.kafka_config import KafkaConfig, parse_kafka_url
from simulator.log.kafka_producer import Appender, place_records
from simulator.log.kafka_subscription import KafkaSubscription, Start
from simulator.log.protocol import Record, Subscription, TopicPartition


class KafkaLog:
    """A `Log` on a Kafka cluster. Use `async with KafkaLog.open(url) as log`."""

    def __init__(self, config: KafkaConfig, options: dict[str, Any], stack: AsyncExitStack) -> None:
        self.config = config
        self.options = options
        self.admin: KafkaAdmin
        self._offsets: Any
        self._appender = Appender(config, options, self.ends)
        self._stack = stack
        self._closed = False

    def __repr__(self) -> str:
        return f"KafkaLog({self.config})"

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str | KafkaConfig) -> AsyncIterator[KafkaLog]:
        """Connect. Raises ConfigError for a URL that can't be used, LogError if no broker can be reached or
        it refuses the credentials, within `connect_timeout_ms`."""
        config = parse_kafka_url(url) if isinstance(url, str) else url
        quiet_aiokafka()
        options = config.client_options()
        await check_reachable(config, options)
        async with AsyncExitStack() as stack:
            log = cls(config, options, stack)
            await log._connect()
            try:
                yield log
            finally:
                with anyio.CancelScope(shield=True):
                    await log.aclose()

    async def _connect(self) -> None:
        client = AIOKafkaAdminClient(**self.options)
        self.admin = KafkaAdmin(
            self.config, await self._stack.enter_async_context(started(self.config, "connect", client))
        )
        # Uncommitted: the end is where the next record goes, whatever is still open before it
        offsets = aiokafka.AIOKafkaConsumer(
            **self.options, isolation_level="read_uncommitted", retry_backoff_ms=20
        )
        self._offsets = await self._stack.enter_async_context(started(self.config, "connect", offsets))

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """See `Log`. Raises TopicError also for an existing topic whose settings would lose or refuse a
        replayed lifelog."""
        await self.admin.create_topics(topics)

    async def topics(self) -> dict[str, int]:
        """See `Log`."""
        return await self.admin.topics()

    async def exists(self, topic: str) -> bool:
        """See `Log`."""
        return await self.admin.exists(topic)

    async def append(self, records: Sequence[Record]) -> None:
        """See `Log`, and the module `kafka_producer` for what a crash can leave."""
        if records:
            self._check_open()
            await self._appender.append(await place_records(self.admin, records))

    async def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """See `Log`. What open transactions have written counts, though readers do not see it yet."""
        return await self.offsets_of(await self.places(topics), "end")

    async def offset_for_time(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """See `Log`. Exact for stamps in any order: Kafka's answer may be a transaction's mark, which is
        stamped with wall time, so the record is looked for from there on."""
        known = (await self.admin.partitions([tp.topic]))[tp.topic]
        if not 0 <= tp.partition < known:
            raise TopicError(f"topic {tp.topic!r} has partitions 0 to {known - 1}, not {tp.partition}")
        place = KafkaPartition(self.config.prefix + tp.topic, tp.partition)
        found = await retried(
            self.config,
            f"look for a time in topic {tp.topic!r}",
            lambda: self._offsets.offsets_for_times({place: max(0, timestamp_ms)}),
        )
        if found[place] is None:
            return None
        end = (await self.offsets_of([tp], "end"))[tp]
        async with KafkaSubscription.open(
            self, (tp.topic,), None, {tp: found[place].offset}, only=tp
        ) as subscription:
            while await subscription.position(tp) < end:
                for record in await subscription.poll(max_records=100):
                    if record.timestamp_ms >= timestamp_ms:
                        return record.offset
        return None

    async def committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """See `Log`."""
        found = await self.admin.committed(group, await self.places(topics))
        return {tp: committed.offset for tp, committed in found.items()}

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        group: str | None = None,
        start: Start = "earliest",
        exclusive: bool = False,
    ) -> AbstractAsyncContextManager[Subscription]:
        """See `Log`. Members of one group must subscribe to the same topics, and share them alike: LogError
        otherwise."""
        return KafkaSubscription.open(self, tuple(dict.fromkeys(topics)), group, start, exclusive=exclusive)

    async def aclose(self) -> None:
        """Close all connections. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        await self._appender.aclose()
        await self._stack.aclose()

    # --- for subscriptions ----------------------------------------------------------------------------------

    async def places(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition of topics."""
        known = await self.admin.partitions(topics)
        return [TopicPartition(topic, p) for topic, partitions in known.items() for p in range(partitions)]

    async def offsets_of(
        self, partitions: Iterable[TopicPartition], which: Literal["begin", "end"]
    ) -> dict[TopicPartition, int]:
        """The first offset that partitions hold, or the one after their last."""
        prefix = self.config.prefix
        places = {KafkaPartition(prefix + tp.topic, tp.partition): tp for tp in partitions}
        if not places:
            return {}
        if which == "end":
            found = await self.ends(list(places))
        else:
            found = await retried(
                self.config, "read offsets", lambda: self._offsets.beginning_offsets(list(places))
            )
        return {places[place]: offset for place, offset in found.items()}

    async def first_offsets(
        self, partitions: Sequence[TopicPartition], start: Start
    ) -> dict[TopicPartition, int]:
        """Where partitions begin of which nothing is committed."""
        if start == "latest":
            return await self.offsets_of(partitions, "end")
        named = start if isinstance(start, Mapping) else {}
        firsts = await self.offsets_of([tp for tp in partitions if tp not in named], "begin")
        return {tp: named[tp] if tp in named else firsts[tp] for tp in partitions}

    async def ends(self, places: list[KafkaPartition]) -> Mapping[KafkaPartition, int]:
        """Where partitions end, by their full names."""
        found: Mapping[KafkaPartition, int] = await retried(
            self.config, "read offsets", lambda: self._offsets.end_offsets(places)
        )
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise LogError(f"the log at Kafka {self.config} is closed")
