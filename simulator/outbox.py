"""The outbox: how a role that works on many things at once writes its results with the offsets they rest on.

Results become ready in any order, offsets may only be committed in order. The tracker (pure) keeps, for each
partition, what is still in work; the outbox appends all results that are ready and commits what is complete
in one transaction. A crash between the two therefore redelivers the input, and never loses or doubles a
result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from simulator.events import Event
from simulator.log.protocol import Record, StoredRecord, Subscription, TopicPartition
from simulator.topics import Recorder

Ticket = tuple[TopicPartition, int]


def positions_after(records: Sequence[StoredRecord]) -> dict[TopicPartition, int]:
    """Partition → the offset that follows the last of some records just read."""
    last = {(record.topic, record.partition): record.offset for record in records}
    return {TopicPartition(*place): offset + 1 for place, offset in last.items()}


class OffsetTracker:
    """For each partition: the position reached and the offsets whose work is not finished."""

    def __init__(self) -> None:
        self._position: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, dict[int, int]] = {}
        """Offset → how many works rest on it, in the order of beginning, which is that of the offsets."""

    def reached_all(self, records: Sequence[StoredRecord]) -> None:
        """All records up to these were read."""
        self._position.update(positions_after(records))

    def begin(self, tp: TopicPartition, offset: int) -> Ticket:
        """Work that rests on the record at `offset` (and on later ones, until it is done) begins. Several
        works may rest on one record; all must be done."""
        pending = self._pending.setdefault(tp, {})
        pending[offset] = pending.get(offset, 0) + 1
        return (tp, offset)

    def done(self, ticket: Ticket) -> None:
        """That work's result is being written."""
        tp, offset = ticket
        pending = self._pending[tp]
        if pending[offset] == 1:
            del pending[offset]
        else:
            pending[offset] -= 1

    def committable(self) -> dict[TopicPartition, int]:
        """Partition → the offset before which nothing is in work."""
        return {tp: min(self._pending.get(tp) or (position,)) for tp, position in self._position.items()}


class Outbox:
    """Collects results and writes them, many in one transaction. Run `flush_forever` in the role's task
    group."""

    def __init__(self, subscription: Subscription, recorder: Recorder) -> None:
        self.offsets = OffsetTracker()
        self._subscription = subscription
        self._recorder = recorder
        self._ready: list[tuple[Record, Ticket | None]] = []
        self._wake = anyio.Event()
        self._flushing = anyio.Lock()

    def put(self, event: Event, ticket: Ticket | None = None, **wall_times_us: int) -> None:
        """Queue one result; its ticket is done once the result is in the log."""
        self._ready.append((self._recorder.record(event, **wall_times_us), ticket))
        self._wake.set()

    async def flush(self) -> None:
        """Write all that is ready. Raises FencedError when this member has lost its partitions."""
        async with self._flushing:
            ready, self._ready = self._ready, []
            if not ready:
                return
            for _, ticket in ready:
                if ticket is not None:
                    self.offsets.done(ticket)
            await self._subscription.transact([record for record, _ in ready], self.offsets.committable())

    async def flush_forever(self, written: Callable[[], None] | None = None) -> None:
        """Write results as they become ready, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await self.flush()
            if written is not None:
                written()
