"""Following a run in numbers: reads its log now and then, keeps `consumers.gauges`, and tells whoever shows them.

It waits between two readings instead of being woken for each record: so a batch of many costs little more than one
record, and what is measured beside it is hardly disturbed. Observations, by far the most, are counted by their headers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from consumers.gauges import Gauges, State
from simulator.events import RunStartedEvent
from simulator.intake import decode_records
from simulator.log.protocol import Log, StoredRecord, Subscription
from simulator.topics import Topics, wall_us

LOOK_S = 0.5
_BATCH = 2000
_FETCH_S = 0.05
"""A broker's records may be on their way."""
_OBSERVATION = ("kind", b"observation")

Watcher = Callable[[Log, RunStartedEvent, anyio.Event], Coroutine[Any, Any, None]]
"""What reads along with a run, and changes nothing. Once the event is set it reads what is there by then, and ends."""


@asynccontextmanager
async def watched(log: Log, started: RunStartedEvent, watchers: Iterable[Watcher]) -> AsyncIterator[None]:
    """While the body runs, these watch the run. They end after it, or with it where it fails."""
    beside = tuple(watchers)
    if not beside:
        yield
        return
    over = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for watcher in beside:
            tasks.start_soon(watcher, log, started, over)
        yield
        over.set()


async def follow(
    log: Log,
    started: RunStartedEvent,
    over: anyio.Event,
    tell: Callable[[State], None],
    *,
    remembered: Callable[[int], None] = lambda late_us: None,
) -> None:
    """Tell how a run stands twice a second, from its first record on, until it has ended or `over` is set; and the last
    time with all that the log holds then. `remembered`: as `Gauges` has it."""
    gauges = Gauges(started, remembered)
    topics = [topic for topic in Topics.of(started.run) if topic != Topics.of(started.run).anchors]
    tell(gauges.state(wall_us()))
    async with log.subscribe(topics) as subscription:
        while not over.is_set():
            records = await subscription.poll(max_records=_BATCH, timeout_s=_FETCH_S)
            feed(gauges, started.run, records)
            if gauges.over:
                break  # that is told once, with all that there is
            tell(gauges.state(wall_us()))
            if len(records) < _BATCH:
                with anyio.move_on_after(LOOK_S):
                    await over.wait()
        await _catch_up(log, topics, subscription, partial(feed, gauges, started.run))
    tell(gauges.state(wall_us()))


def feed(gauges: Gauges, run: str, records: Sequence[StoredRecord]) -> None:
    """Feed records as they come from the log. What is no event of the run is buried by whoever acts on it."""
    rest: list[StoredRecord] = []
    for record in records:
        if _OBSERVATION in record.headers:
            gauges.observed(record.key.decode(errors="replace"), record.timestamp_ms * 1000, record.headers)
        else:
            rest.append(record)
    for event, record in decode_records(run, rest)[0]:
        gauges.feed(event, record.headers)


async def _catch_up(
    log: Log,
    topics: Sequence[str],
    subscription: Subscription,
    take: Callable[[Sequence[StoredRecord]], None],
) -> None:
    """Read what the topics hold now: by positions, since the last offsets may hold no record (Kafka keeps the marks of
    transactions there)."""
    ends = await log.end_offsets(topics)
    while [tp for tp, end in ends.items() if await subscription.position(tp) < end]:
        take(await subscription.poll(max_records=_BATCH))
