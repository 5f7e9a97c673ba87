"""A log in memory: what producers need of one, without files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

import anyio
import anyio.lowlevel

from simulator.events import Event, decode
from simulator.log.protocol import Record, StoredRecord, Subscription, TopicPartition


class MemorySubscription:
    """Reads a `MemoryLog` from the beginning."""

    def __init__(self, log: MemoryLog, topics: Sequence[str]) -> None:
        self._log = log
        self._next = {
            TopicPartition(topic, partition): 0 for topic in topics for partition in range(log.partitions)
        }
        self.assignment = frozenset(self._next)
        self._gained = self.assignment

    def gained(self) -> frozenset[TopicPartition]:
        gained, self._gained = self._gained, frozenset()
        return gained

    async def poll(self, *, max_records: int = 1000, timeout_s: float = 1.0) -> Sequence[StoredRecord]:
        await anyio.lowlevel.checkpoint()
        if not (found := self._take(max_records)) and timeout_s:
            with anyio.move_on_after(timeout_s):
                await self._log.appended.wait()
            found = self._take(max_records)
        return found

    def _take(self, max_records: int) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        for tp, position in self._next.items():
            new = self._log.records.get(tp, [])[position : position + max_records - len(found)]
            self._next[tp] += len(new)
            found += new
        return found

    async def position(self, tp: TopicPartition) -> int:
        return self._next[tp]

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        self._next[tp] = offset

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        raise NotImplementedError

    async def transact(self, records: Sequence[Record], offsets: Mapping[TopicPartition, int]) -> None:
        if records:
            raise NotImplementedError

    async def guard(self, topics: Iterable[str]) -> None:
        pass

    async def append(self, records: Sequence[Record]) -> None:
        await self._log.append(records)


class MemoryLog:
    """What the replayer needs of a log, in memory; keeps batches apart; `cost` is called in each append."""

    partitions = 2

    def __init__(self, cost: Callable[[Sequence[Record]], None] = lambda records: None) -> None:
        self._cost = cost
        self.batches: list[list[Record]] = []
        self.records: dict[TopicPartition, list[StoredRecord]] = {}
        self.appended = anyio.Event()

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        raise NotImplementedError

    async def topics(self) -> dict[str, int]:
        raise NotImplementedError

    async def exists(self, topic: str) -> bool:
        raise NotImplementedError

    async def append(self, records: Sequence[Record]) -> None:
        await anyio.lowlevel.checkpoint()
        self._cost(records)
        self.batches.append(list(records))
        for topic, key, value, timestamp_ms, headers, partition in records:
            place = TopicPartition(topic, partition or 0)
            stored = self.records.setdefault(place, [])
            stored.append(StoredRecord(topic, partition or 0, len(stored), key, value, timestamp_ms, headers))
        self.appended.set()
        self.appended = anyio.Event()

    async def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        wanted = set(topics)
        return {tp: len(stored) for tp, stored in self.records.items() if tp.topic in wanted}

    async def offset_for_time(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        raise NotImplementedError

    async def committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        raise NotImplementedError

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        group: str | None = None,
        start: Literal["earliest", "latest"] | Mapping[TopicPartition, int] = "earliest",
        exclusive: bool = False,
    ) -> AbstractAsyncContextManager[Subscription]:
        @asynccontextmanager
        async def subscribed() -> AsyncIterator[Subscription]:
            yield MemorySubscription(self, tuple(topics))

        return subscribed()

    async def aclose(self) -> None:
        raise NotImplementedError

    def events(self, topic: str) -> list[Event]:
        """Everything on a topic, in the order in which it was appended."""
        return [decode(r.value) for batch in self.batches for r in batch if r.topic == topic]
