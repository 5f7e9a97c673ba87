"""The log: one small protocol that SQLite and Kafka both keep.

A log holds topics; a topic holds partitions; a partition holds records at rising offsets. Order exists
within a partition only. A record has a key, a value, headers and a time stamp in milliseconds that carries
event time (as Kafka's `CreateTime`).

Consumers subscribe, alone or as a member of a group. A group shares the partitions of its topics;
co-partitioned topics are shared alike (partition p of each goes to the same member). What a group has
committed survives its members. `Subscription.transact` appends records and commits offsets in one
transaction: both or neither are seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol

Headers = tuple[tuple[str, bytes], ...]


def header_of(headers: Headers, name: str) -> bytes:
    """The first header of that name; empty where there is none."""
    return next((value for key, value in headers if key == name), b"")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record to append. Without `partition`, the key's murmur2 hash picks it, as Kafka's clients do."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int
    headers: Headers = ()
    partition: int | None = None


class StoredRecord(NamedTuple):
    """A record as read. When it was appended is not offered: Kafka's stamps carry event time instead."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    timestamp_ms: int
    headers: Headers


class Subscription(Protocol):
    """A consumer's place in its partitions. Use inside `async with log.subscribe(...)`."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now. In a group it may change in `poll`."""

    def gained(self) -> frozenset[TopicPartition]:
        """Partitions of the assignment that came since the last call. One that had gone and came back is among
        them: in between another member may have owned it, and this one's position is what the group committed.
        In a group it may change in `poll`."""

    async def poll(self, *, max_records: int = 1000, timeout_s: float = 1.0) -> Sequence[StoredRecord]:
        """Next records, in offset order within each partition; waits up to `timeout_s` for the first, then
        returns what is ready. Empty on time-out, and where the assignment has changed."""

    async def position(self, tp: TopicPartition) -> int:
        """Offset of the next record that `poll` would give for a partition of the assignment."""

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """The next `poll` reads this partition from `offset`."""

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Store offsets (of the next record to process) for the group; without any, the positions.
        Raises FencedError when a partition no longer belongs to this member."""

    async def transact(self, records: Sequence[Record], offsets: Mapping[TopicPartition, int]) -> None:
        """Append records and commit offsets in one transaction. Raises FencedError as `commit` does, and
        then nothing was appended but what the error names."""

    async def guard(self, topics: Iterable[str]) -> None:
        """For the one at work of an exclusive group: whoever was before it can't `append` to these topics any more
        when this returns. Raises FencedError where another is at work."""

    async def append(self, records: Sequence[Record]) -> None:
        """Append to guarded topics as `Log.append` does, and at its price. Raises FencedError, and then nothing was
        appended, once another member has taken over. (On Kafka up to what `simulator.log.kafka_fence` says.)"""


class Log(Protocol):
    """An event log. Safe to use from many tasks; SQLite also from many processes on one machine."""

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics with their numbers of partitions. What exists alike is left alone; a topic with
        another number of partitions raises TopicError."""

    async def topics(self) -> dict[str, int]:
        """Topic → number of partitions."""

    async def exists(self, topic: str) -> bool:
        """Whether there is a topic of this name. Raises LogError where its log does not let this reader know:
        `topics` leaves such topics out."""

    async def append(self, records: Sequence[Record]) -> None:
        """Append a batch, all or nothing, in the order given within each partition. Raises TopicError for an
        unknown topic or partition."""

    async def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will get."""

    async def offset_for_time(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """The smallest offset whose stamp is at or after `timestamp_ms`; None if there is none."""

    async def committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """What a group has committed; partitions without a commit are left out."""

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        group: str | None = None,
        start: Literal["earliest", "latest"] | Mapping[TopicPartition, int] = "earliest",
        exclusive: bool = False,
    ) -> AbstractAsyncContextManager[Subscription]:
        """Read topics, alone (every partition) or as a member of a group (a share of them, from what the
        group committed). In an `exclusive` group the member that joined first has every partition and the others
        stand by with none; all members must say it alike. `start` holds where nothing was committed; a mapping
        names offsets, and partitions that it lacks start at the earliest record."""

    async def aclose(self) -> None:
        """Let go of files and connections. What was appended stays."""
