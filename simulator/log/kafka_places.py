"""What a consumer has fetched of each partition and not handed out yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import TopicPartition as KafkaPartition
from aiokafka.consumer.fetcher import FetchResult

from simulator.log.protocol import Headers, StoredRecord

_new = tuple.__new__  # what a named tuple's own constructor adds is half of its time


class Place:
    """A partition of the assignment: records that are fetched and not handed out, and the position after
    them."""

    __slots__ = ("after", "fetched", "kafka", "taken")

    def __init__(self, kafka: KafkaPartition, position: int) -> None:
        self.kafka = kafka
        self.fetched: list[StoredRecord] = []
        self.taken = 0
        self.after = position

    @property
    def position(self) -> int:
        """Of the next record to hand out."""
        return self.fetched[self.taken].offset if self.fetched else self.after

    def take(self, max_records: int) -> list[StoredRecord]:
        """Hand out records."""
        some = self.fetched[self.taken : self.taken + max_records]
        self.taken += len(some)
        if self.taken == len(self.fetched):
            self.clear()
        return some

    def clear(self) -> None:
        """Forget what is fetched."""
        self.fetched = []
        self.taken = 0


class AsStored(dict[KafkaPartition, Any]):
    """In the place of a fetcher's results by partition: they hand out the log's records in place of aiokafka's,
    which would be made for each record only to be copied (a tenth of the time of an end-to-end replay)."""

    def __init__(self, prefix: str, results: Mapping[KafkaPartition, Any]) -> None:
        super().__init__()
        self._prefix = prefix
        for place, result in results.items():
            self[place] = result

    def __setitem__(self, place: KafkaPartition, result: Any) -> None:
        if isinstance(result, FetchResult):  # else an error
            topic = place.topic.removeprefix(self._prefix)
            result._partition_records._consumer_record = _storing(topic, place.partition)
        super().__setitem__(place, result)


def _storing(topic: str, partition: int) -> Callable[[KafkaPartition, Any], StoredRecord]:
    """Makes the log's records of a fetched partition."""
    shared: Headers = ()

    def store(_: KafkaPartition, record: Any) -> StoredRecord:
        nonlocal shared
        headers = tuple(record.headers)
        if headers != shared:  # records mostly share theirs with the one before
            # other clients may write headers without a value
            shared = tuple((name, value or b"") for name, value in headers)
        fields = (
            topic,
            partition,
            record.offset,
            record.key or b"",
            record.value or b"",
            record.timestamp,
            shared,
        )
        return _new(StoredRecord, fields)

    return store
