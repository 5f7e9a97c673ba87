"""What a consumer has fetched of each partition and not handed out yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

from aiokafka import TopicPartition as KafkaPartition

from simulator.log.protocol import Headers, StoredRecord, TopicPartition

_new = tuple.__new__  # what a named tuple's own constructor adds is half of its time
_flat = chain.from_iterable
_headers_of = attrgetter("headers")
_value_of = itemgetter(1)


class Place:
    """A partition of the assignment: records that are fetched and not handed out, and the position after
    them."""

    __slots__ = ("after", "fetched", "kafka", "taken")

    def __init__(self, kafka: KafkaPartition, position: int) -> None:
        self.kafka = kafka
        self.fetched: list[Any] = []
        self.taken = 0
        self.after = position

    @property
    def position(self) -> int:
        """Of the next record to hand out."""
        return int(self.fetched[self.taken].offset) if self.fetched else self.after

    def take(self, max_records: int) -> list[Any]:
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


def stored(tp: TopicPartition, records: Sequence[Any]) -> list[StoredRecord]:
    """aiokafka's records as the log's."""
    topic, partition = tp
    # other clients may write headers without a value
    filled = None in map(_value_of, _flat(map(_headers_of, records)))
    return [
        _new(
            StoredRecord,
            (
                topic,
                partition,
                record.offset,
                record.key or b"",
                record.value or b"",
                record.timestamp,
                _filled(record.headers) if filled else record.headers,
            ),
        )
        for record in records
    ]


def _filled(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    return tuple((name, value or b"") for name, value in headers)
