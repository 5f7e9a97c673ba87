"""Offsets are committed when, and only when, all that rests on them is in the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import FencedError, LogError
from simulator.events import ReadyEvent, decode
from simulator.intake import read_to_end
from simulator.log import SqliteLog
from simulator.log.protocol import Log, Record, StoredRecord, Subscription, TopicPartition
from simulator.outbox import OffsetTracker, Outbox, Ticket, positions_after
from simulator.topics import Recorder, Topics

TOPICS = Topics.of("run")
TP = TopicPartition(TOPICS.deltas, 0)


def stored(offset: int, tp: TopicPartition = TP) -> StoredRecord:
    return StoredRecord(tp.topic, tp.partition, offset, b"", b"", 0, ())


def result(name: str) -> ReadyEvent:
    return ReadyEvent(id=name, run="run", event_time_us=0, role=name)


@given(
    works=st.lists(st.integers(0, 5), max_size=30),
    order=st.randoms(use_true_random=False),
    batch=st.integers(1, 7),
)
def test_what_may_be_committed_is_the_first_offset_in_work(
    works: list[int], order: object, batch: int
) -> None:
    """Record i has works[i] works resting on it. They are done in any order while more is read."""
    tracker = OffsetTracker()
    tickets: list[Ticket] = []
    left = dict(enumerate(works))
    read = 0
    while read < len(works) or tickets:
        if read < len(works):
            records = [stored(i) for i in range(read, min(read + batch, len(works)))]
            for record in records:
                tickets += [tracker.begin(TP, record.offset) for _ in range(works[record.offset])]
            tracker.reached_all(records)
            read += len(records)
        order.shuffle(tickets)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
        for ticket in tickets[: len(tickets) // 2 + 1]:
            tracker.done(ticket)
            left[ticket[1]] -= 1
        tickets = tickets[len(tickets) // 2 + 1 :]
        unfinished = [offset for offset in range(read) if left[offset]]
        assert tracker.committable() == {TP: min(unfinished, default=read)}


def test_partitions_are_kept_apart() -> None:
    other = TopicPartition(TOPICS.deltas, 1)
    tracker = OffsetTracker()
    ticket = tracker.begin(TP, 4)
    tracker.reached_all([stored(4), stored(9, other), stored(5), stored(10, other)])
    assert positions_after([stored(4), stored(9, other), stored(5)]) == {TP: 6, other: 10}
    assert tracker.committable() == {TP: 4, other: 11}
    tracker.done(ticket)
    assert tracker.committable() == {TP: 6, other: 11}


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[tuple[Log, Subscription]]:
    async with SqliteLog.open(path / "log.db") as log:
        await log.create_topics(TOPICS.partitions(1))
        await log.append([Record(TP.topic, b"", str(i).encode(), 0, (), 0) for i in range(3)])
        async with log.subscribe([TP.topic], group="g") as subscription:
            yield log, subscription


async def test_results_and_offsets_are_written_together(tmp_path: Path) -> None:
    async with reading(tmp_path) as (log, subscription):
        outbox = Outbox(subscription, Recorder("run", {}))
        records = await subscription.poll()
        tickets = [outbox.offsets.begin(TP, record.offset) for record in records]
        outbox.offsets.reached_all(records)
        await outbox.flush()  # nothing is ready: nothing is written
        assert await log.committed("g", [TP.topic]) == {}
        outbox.put(result("second"), tickets[1])
        await outbox.flush()
        assert await log.committed("g", [TP.topic]) == {TP: 0}
        outbox.put(result("first"), tickets[0])
        await outbox.flush()
        assert await log.committed("g", [TP.topic]) == {TP: 2}
        outbox.put(result("third"), tickets[2])
        await outbox.flush()
        assert await log.committed("g", [TP.topic]) == {TP: 3}
        assert len([r async for r in read_to_end(log, [TOPICS.control])]) == 3


async def test_results_put_during_a_flush_are_written_by_the_next(tmp_path: Path) -> None:
    async with reading(tmp_path) as (log, subscription):
        outbox = Outbox(subscription, Recorder("run", {}))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.flush_forever)
            async with log.subscribe([TOPICS.control]) as written:
                seen = 0
                for number in range(20):
                    outbox.put(result(f"{number}"))
                    if number % 3 == 0:
                        await anyio.lowlevel.checkpoint()
                with anyio.fail_after(20):
                    while seen < 20:
                        seen += len(await written.poll())
            tasks.cancel_scope.cancel()


async def test_write_that_fails_ends_the_role(tmp_path: Path) -> None:
    async with reading(tmp_path) as (_, subscription):
        outbox = Outbox(subscription, Recorder("run", {}))
        outbox.offsets.reached_all([stored(0, TopicPartition(TOPICS.tasks, 0))])  # is not read by this member
        outbox.put(result("lost"))
        with pytest.raises(LogError, match="can't commit"):
            await outbox.flush_forever()


class _CutShort:
    """A subscription whose first transaction is fenced after its first record was written."""

    def __init__(self, subscription: Subscription, log: Log) -> None:
        self._subscription = subscription
        self._log = log
        self.fenced = anyio.Event()

    async def transact(self, records: Sequence[Record], offsets: Mapping[TopicPartition, int]) -> None:
        if not self.fenced.is_set():
            self.fenced.set()
            await self._log.append(records[:1])
            raise FencedError("partition 0 has gone", records[:1])
        await self._subscription.transact(records, offsets)


async def test_what_a_fenced_write_has_written_is_not_written_again(tmp_path: Path) -> None:
    async with reading(tmp_path) as (log, subscription):
        cut_short = _CutShort(subscription, log)
        outbox = Outbox(cast(Subscription, cut_short), Recorder("run", {}))
        for name in ("first", "second", "third"):
            outbox.put(result(name))
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outbox.flush)
                await cut_short.fenced.wait()
                await anyio.wait_all_tasks_blocked()
                outbox.rebalanced([])
        there = [decode(record.value).id async for record in read_to_end(log, [TOPICS.control])]
    assert there == ["first", "second", "third"]
