"""Why a batch that is sent again is in the log once, although event time is years old.

A producer that gets no answer (the broker died, the connection broke) sends its batch again, and an idempotent
one relies on the broker to know the batch. The broker knows it by the producer's last sequence numbers, which it
keeps for a day *after the stamp of the newest record*: with a lifelog's stamps they are out of date at once. A
running broker forgets them only now and then, but one that starts again takes up none of them, and appends a
batch that it has already. (Seen with Kafka 4.3.1: with stamps of today the second copy is refused. Inside an
open transaction it is refused whatever the stamps, so only plain appends need this.)

So before a batch whose fate is unknown goes out again, the guard looks for it in the log, from the last offset
that was acknowledged, and answers in the broker's stead if it is there. Both together are safe: a broker that
lives may still append the first copy after the look, but it also still knows the numbers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import aiokafka
import aiokafka.errors as kafka_errors
import anyio
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.memory_records import MemoryRecords

from simulator.errors import LogError
from simulator.log.kafka_client import started
from simulator.log.kafka_config import KafkaConfig

_NOT_LEADER = kafka_errors.NotLeaderForPartitionError.errno
"""An answer to which the producer sends its batch again."""

Ends = Callable[[list[KafkaPartition]], Awaitable[Mapping[KafkaPartition, int]]]
"""Asks where partitions end."""

_Content = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


class _Answer(NamedTuple):
    """What a broker says to a produce request: (partition, error, offset, time, start of the log) by topic."""

    topics: list[tuple[str, list[tuple[int, int, int, int, int]]]]
    API_VERSION: int = 7


class ResendGuard:
    """Watches the produce requests of one idempotent producer."""

    def __init__(
        self,
        config: KafkaConfig,
        options: Mapping[str, Any],
        ends: Ends,
        producer: Any,
        may_send: Callable[[], None] | None = None,
    ) -> None:
        self._config = config
        self._ends = ends
        self._may_send = may_send
        self._options = {
            **options,
            "isolation_level": "read_uncommitted",
            "auto_offset_reset": "none",
            "retry_backoff_ms": 20,
        }
        self._original = producer.client.send
        self._from: dict[KafkaPartition, int] = {}
        self._doubtful: set[KafkaPartition] = set()
        producer.client.send = self._send

    async def _send(self, node_id: int, request: Any, **options: Any) -> Any:
        """In the place of the client's `send`."""
        if not isinstance(request, ProduceRequest):
            return await self._original(node_id, request, **options)
        batches = {
            KafkaPartition(topic, partition): data
            for topic, partitions in request._topics
            for partition, data in partitions
        }
        await self._note_ends(batches)
        if doubtful := self._doubtful.intersection(batches):
            found = {place: await self._find(place, batches[place]) for place in doubtful}
            self._doubtful -= doubtful
            if any(offset is not None for offset in found.values()):
                return self._take_note(_answer(batches, found))
        if self._may_send is not None:
            self._may_send()
        try:
            response = await self._original(node_id, request, **options)
        except kafka_errors.NodeNotReadyError:
            raise  # it was not sent
        except BaseException:
            self._doubtful |= batches.keys()
            raise
        return self._take_note(response)

    def _take_note(self, response: Any) -> Any:
        for topic, partitions in response.topics:
            for partition, code, offset, *_ in partitions:
                place = KafkaPartition(topic, partition)
                if code == kafka_errors.NoError.errno:
                    self._from[place] = max(offset + 1, self._from.get(place, 0))
                elif code in (
                    kafka_errors.RequestTimedOutError.errno,
                    kafka_errors.NotEnoughReplicasAfterAppendError.errno,
                ):
                    self._doubtful.add(place)
        return response

    async def _note_ends(self, places: Iterable[KafkaPartition]) -> None:
        """Before the first batch for a partition: where it will not be before."""
        new = [place for place in places if place not in self._from]
        if new:
            with _as_retriable(), anyio.fail_after(self._config.timeout_s):
                self._from.update(await self._ends(new))

    async def _find(self, place: KafkaPartition, data: Any) -> int | None:
        """The offset of a batch's first record, if the batch is in the log."""
        wanted = _contents(data)
        seen: list[_Content] = []
        offsets: list[int] = []
        consumer = aiokafka.AIOKafkaConsumer(**self._options)
        with _as_retriable(), anyio.fail_after(self._config.timeout_s):
            async with started(self._config, "append", consumer):
                end = (await self._ends([place]))[place]
                consumer.assign([place])
                consumer.seek(place, self._from[place])
                while await consumer.position(place) < end:
                    for record in (await consumer.getmany(place, timeout_ms=500)).get(place, ()):
                        offsets.append(record.offset)
                        seen.append((record.key, record.value, record.timestamp, record.headers))
        for i in range(len(seen) - len(wanted) + 1):
            if seen[i] == wanted[0] and seen[i : i + len(wanted)] == wanted:
                return offsets[i]
        return None


@contextmanager
def _as_retriable() -> Iterator[None]:
    """Turn a look that failed into an error after which aiokafka sends, and so looks, again."""
    try:
        yield
    except (LogError, kafka_errors.KafkaError, TimeoutError) as error:
        raise kafka_errors.KafkaConnectionError(f"can't look for a batch: {error}") from error


def _contents(data: Any) -> list[_Content]:
    """The records of a batch as it is sent."""
    batches = MemoryRecords(bytes(data))
    contents: list[_Content] = []
    while batches.has_next():
        contents += [
            (record.key, record.value, record.timestamp, tuple(record.headers))
            for record in batches.next_batch()
        ]
    return contents


def _answer(batches: Iterable[KafkaPartition], found: Mapping[KafkaPartition, int | None]) -> _Answer:
    """What was found is done; the rest of the request is to be sent again, without it."""
    topics: dict[str, list[tuple[int, int, int, int, int]]] = {}
    for place in batches:
        offset = found.get(place)
        code = _NOT_LEADER if offset is None else kafka_errors.NoError.errno
        topics.setdefault(place.topic, []).append(
            (place.partition, code, -1 if offset is None else offset, -1, -1)
        )
    return _Answer(list(topics.items()))
