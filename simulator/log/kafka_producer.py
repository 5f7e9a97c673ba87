"""Appending to Kafka: batches, in the caller's order, many callers at once in one round.

Records are packed into few large batches (`create_batch`, `send_batch`): a price per batch, hardly one per
record. Calls that wait while a round is under way go into the next one together; one round at a time keeps
every partition in the order in which the calls came. The producer is idempotent and watched (`kafka_guard`),
so that a batch that is sent again after an error is in the log once.

All batches are built before the first is sent: an unknown topic, a wrong type or a record that is too large
appends nothing. But each batch is its own write. If the process or the cluster dies between two of them, some
of a call's batches may be in the log and others not; in a partition, what is there is always a beginning of
the call's records. Roles live with that: event ids are deterministic, and the replayer counts what the log
holds and goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import aiokafka.errors as kafka_errors
import anyio
from anyio.lowlevel import checkpoint

from simulator.errors import LogError, TopicError
from simulator.log.kafka_admin import MAX_RECORD_BYTES, KafkaAdmin
from simulator.log.kafka_client import discard_producer, log_error, look_at, start_producer
from simulator.log.kafka_config import KafkaConfig
from simulator.log.kafka_guard import Ends, ResendGuard
from simulator.log.partitioner import partition_for
from simulator.log.protocol import Headers, Record, TopicPartition

BATCH_BYTES = 1_000_000
"""A batch ends before this size, which the default `max.message.bytes` allows. A larger record is one
alone."""
_RECORDS_A_STEP = 2000
"""After so many records the event loop gets its turn."""

Placed = dict[TopicPartition, list[Record]]


async def place_records(admin: KafkaAdmin, records: Sequence[Record]) -> Placed:
    """Records by the partition that they go to. Raises TopicError for an unknown topic or partition, LogError
    for a record that is too large."""
    known = await admin.partitions({record[0] for record in records})
    by_place: dict[tuple[str, int], list[Record]] = {}
    last: tuple[str, int | None] | None = None
    placed: list[Record] = []
    for record in records:
        topic, key, value, _, _, partition = record
        if len(value) + len(key) > MAX_RECORD_BYTES:
            raise LogError(
                f"a record of {len(value) + len(key):,} bytes for topic {topic!r} is larger than the "
                f"{MAX_RECORD_BYTES:,} bytes that topics are made for"
            )
        if partition is None or (topic, partition) != last:  # records mostly come in runs for one place
            last = (topic, partition)
            count = known[topic]
            if partition is None:
                partition = partition_for(key, count)
            elif not 0 <= partition < count:
                raise TopicError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
            placed = by_place.setdefault((topic, partition), [])
        placed.append(record)
    return {TopicPartition(*place): found for place, found in by_place.items()}


async def build_batches(
    producer: Any, placed: Mapping[TopicPartition, Iterable[Record]]
) -> list[tuple[TopicPartition, Any]]:
    """Closed batches in the order to send them. Raises LogError for a record of wrong types."""
    batches = []
    built = 0
    for tp, records in placed.items():
        left = iter(records)
        record = next(left, None)
        while record is not None:
            batch = producer.create_batch()
            # The builder within: what `BatchBuilder.append` adds to it costs as much again for each record
            append = batch._builder.append
            shared: Headers | None = None
            as_list: list[tuple[str, bytes]] = []
            count = 0
            while record is not None:
                _, key, value, timestamp_ms, headers, _ = record
                try:
                    if headers is not shared:  # records mostly share theirs
                        shared, as_list = headers, list(headers)
                    if append(count, timestamp_ms, key, value, as_list) is None:
                        break  # full: the record begins the next batch
                except (TypeError, ValueError, OverflowError, AttributeError) as error:
                    raise LogError(f"a record for topic {tp.topic!r} has wrong types: {error}") from error
                count += 1
                record = next(left, None)
            batch._relative_offset = count
            batch.close()
            batches.append((tp, batch))
            built += count
            if built >= _RECORDS_A_STEP:
                built = 0
                await checkpoint()
    return batches


async def send_batches(
    producer: Any,
    prefix: str,
    batches: Iterable[tuple[TopicPartition, Any]],
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> dict[TopicPartition, Exception]:
    """Send batches, do what is to be done `meanwhile`, and wait until all batches are in the log; returns what
    failed, by partition."""
    sent: list[tuple[TopicPartition, Any]] = []
    failed: dict[TopicPartition, Exception] = {}
    try:
        for tp, batch in batches:
            if tp in failed:
                continue
            try:
                future = await producer.send_batch(batch, prefix + tp.topic, partition=tp.partition)
                sent.append((tp, future))
            except (kafka_errors.KafkaError, AssertionError) as error:  # asserts that the partition is known
                failed[tp] = error
        if meanwhile is not None:
            await meanwhile()
        for tp, delivered in sent:
            try:
                await delivered
            except kafka_errors.KafkaError as error:
                failed.setdefault(tp, error)
    finally:
        for _, delivered in sent:
            look_at(delivered)
    return failed


class _Call:
    """An `append` that waits for its round, then its outcome."""

    __slots__ = ("done", "error", "placed")

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.error: Exception | None = None
        self.done = False


class Appender:
    """Appends for all tasks of a log, through one idempotent producer that is made at the first call."""

    def __init__(
        self,
        config: KafkaConfig,
        options: dict[str, Any],
        ends: Ends,
        *,
        identity: tuple[int, int] | None = None,
        may_send: Callable[[], None] | None = None,
    ) -> None:
        """`identity`: the producer's id and epoch, else it gets a new one. `may_send` is called before each batch
        goes out; what it raises is that batch's failure."""
        self._config = config
        self._identity = identity
        self._may_send = may_send
        self._failed = False
        """An append has failed: a producer of the same identity would not know its sequence numbers."""
        self._ends = ends
        self._client_options = options
        self._options = {
            **options,
            "acks": "all",
            "enable_idempotence": True,
            "max_batch_size": BATCH_BYTES,
            "compression_type": None if config.compression == "none" else config.compression,
        }
        self._producer: Any = None
        self._guard: ResendGuard | None = None
        self._turn = anyio.Lock()
        self._waiting: deque[_Call] = deque()

    async def append(self, placed: Placed) -> None:
        """Append what `place_records` gave. A round that has begun is finished even if the caller is
        cancelled. Raises LogError; what of the call is in the log then is unknown."""
        call = _Call(placed)
        self._waiting.append(call)
        try:
            async with self._turn:
                if not call.done:
                    with anyio.CancelScope(shield=True):
                        await self._round()
        finally:
            if not call.done and call in self._waiting:  # cancelled before its round
                self._waiting.remove(call)
        if call.error is not None:
            raise call.error

    async def connect(self) -> None:
        """Make the producer, if there is none. Raises LogError."""
        if self._producer is None:
            self._producer = await start_producer(
                self._config, "start to append", self._options, self._identity
            )
            self._guard = ResendGuard(
                self._config, self._client_options, self._ends, self._producer, self._may_send
            )

    async def aclose(self) -> None:
        """Close the producer. Nothing waits in it: every round waits for its batches."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await discard_producer(producer)

    async def _round(self) -> None:
        """Append all that waits."""
        calls = list(self._waiting)
        self._waiting.clear()
        failed: Mapping[TopicPartition, Exception] | None = None
        try:
            await self.connect()
            batches = await self._build(calls)
            with anyio.move_on_after(self._config.timeout_s):
                failed = await send_batches(self._producer, self._config.prefix, batches)
        except LogError as error:
            for call in calls:
                call.error = call.error or error
        finally:
            for call in calls:
                if call.error is None:
                    call.error = self._outcome(call, failed)
                call.done = True
            if failed is None or failed:  # its sequence numbers have a hole now
                self._failed = True
                await self.aclose()

    async def _build(self, calls: Iterable[_Call]) -> list[tuple[TopicPartition, Any]]:
        """Batches of all calls together; a call that can't be packed gets its error and is left out."""
        sound = list(calls)
        if len(sound) > 1:
            for call in sound:
                try:
                    await build_batches(self._producer, call.placed)
                except LogError as error:
                    call.error = error
            sound = [call for call in sound if call.error is None]
        merged: dict[TopicPartition, list[Record]] = {}
        for call in sound:
            for tp, records in call.placed.items():
                merged.setdefault(tp, []).extend(records)
        return await build_batches(self._producer, merged)

    def _outcome(self, call: _Call, failed: Mapping[TopicPartition, Exception] | None) -> Exception | None:
        if failed is None:
            topics = ", ".join(sorted({tp.topic for tp in call.placed}))
            return log_error(self._config, f"append to {topics}", TimeoutError())
        for tp in call.placed:
            if tp in failed:
                return log_error(self._config, f"append to {tp.topic}", failed[tp])
        return None
