"""The outbox: how a role that works on many things at once writes its results with the offsets they rest on.

Results become ready in any order, offsets may only be committed in order. The tracker (pure) keeps, for each
partition, what is still in work; the outbox appends all results that are ready and commits what is complete
in one transaction. A crash between the two therefore redelivers the input, and never loses or doubles a
result.

Where a group shares the work, partitions come and go. What was worked out for a partition that has gone is
dropped: its new owner works it out again, and the log refuses a late writer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import anyio

from simulator.errors import FencedError
from simulator.events import Event
from simulator.log.protocol import StoredRecord, Subscription, TopicPartition
from simulator.ownership import Ownership
from simulator.topics import Recorder

Ticket = tuple[TopicPartition, int]

REBALANCE_S = 60.0
"""How long a fenced member may take to learn which partitions it still has."""


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

    def begin_at(self, places: Mapping[TopicPartition, int]) -> None:
        """These partitions were taken over, and nothing of them is read: whatever is written from now on, their
        ownership is proved with it."""
        self._position.update(places)

    def begin(self, tp: TopicPartition, offset: int) -> Ticket:
        """Work that rests on the record at `offset` (and on later ones, until it is done) begins. Several
        works may rest on one record; all must be done."""
        pending = self._pending.setdefault(tp, {})
        pending[offset] = pending.get(offset, 0) + 1
        return (tp, offset)

    def done(self, ticket: Ticket) -> None:
        """That work's result is being written, or there is nothing to write. Nothing happens for a
        partition that has gone."""
        tp, offset = ticket
        pending = self._pending.get(tp, {})
        if pending.get(offset, 0) > 1:
            pending[offset] -= 1
        else:
            pending.pop(offset, None)

    def forget(self, partitions: Collection[int]) -> None:
        """These partitions, of every topic, belong to other members now."""
        self._position = {tp: at for tp, at in self._position.items() if tp.partition not in partitions}
        self._pending = {tp: works for tp, works in self._pending.items() if tp.partition not in partitions}

    def committable(self) -> dict[TopicPartition, int]:
        """Partition → the offset before which nothing is in work."""
        return {tp: min(self._pending.get(tp) or (position,)) for tp, position in self._position.items()}


class _Entry(NamedTuple):
    event: Event
    wall_times_us: dict[str, int]
    owner: int | None
    tenure: int | None
    ticket: Ticket | None


class Outbox:
    """Collects results and writes them, many in one transaction. Run `flush_forever` in the role's task
    group, and call `rebalanced` when the subscription's partitions have changed."""

    def __init__(self, subscription: Subscription, recorder: Recorder) -> None:
        self.offsets = OffsetTracker()
        self._subscription = subscription
        self._recorder = recorder
        self._ready: list[_Entry] = []
        self._gone: Counter[int] = Counter()
        self._wake = anyio.Event()
        self._rebalanced = anyio.Event()
        self._flushing = anyio.Lock()

    def tenure(self, partition: int) -> int:
        """How often this partition has gone: work that began in an earlier tenure counts for nothing."""
        return self._gone[partition]

    def put(
        self,
        event: Event,
        ticket: Ticket | None = None,
        *,
        owner: int | None = None,
        tenure: int | None = None,
        **wall_times_us: int,
    ) -> None:
        """Queue one result; its ticket is done once the result is in the log.

        `owner`: the partition it rests on, where no ticket says so. `tenure`: when the work began, if the
        partition may have gone and come back since.
        """
        if ticket is not None:
            owner = ticket[0].partition
        if owner is not None and tenure is None:
            tenure = self.tenure(owner)
        self._ready.append(_Entry(event, wall_times_us, owner, tenure, ticket))
        self._wake.set()

    def rebalanced(self, lost: Collection[int]) -> None:
        """These partitions have gone: what rests on them is dropped."""
        self._gone.update(lost)
        self.offsets.forget(lost)
        self._rebalanced.set()
        self._rebalanced = anyio.Event()

    async def rebalance(self, ownership: Ownership, gained: Collection[int], lost: Collection[int]) -> bool:
        """Drop what rests on the partitions lost, and go back to the first record of those gained, their former owners
        shut out. False where none has come, or they have gone on already."""
        if lost:
            self.rebalanced(lost)
        first = await ownership.take_over(gained) if gained else None
        if first is None:
            return False
        self.offsets.begin_at(first)
        return True

    async def flush(self) -> None:
        """Write all that is ready. When fenced, wait until it is known what this member still owns, and write
        the results for that. Raises FencedError when that does not become known."""
        async with self._flushing:
            while ready := [entry for entry in self._ready if self._is_ours(entry)]:
                self._ready = []
                for entry in ready:
                    if entry.ticket is not None:
                        self.offsets.done(entry.ticket)
                rebalanced = self._rebalanced
                # `wall_us` is this moment: what waits for a slow log was not written yet
                records = [self._recorder.record(e.event, **e.wall_times_us) for e in ready]
                try:
                    await self._subscription.transact(records, self.offsets.committable())
                except FencedError as error:
                    # What was written for partitions that are still ours would be written twice
                    written = {id(record) for record in error.written}
                    left = [e for e, record in zip(ready, records, strict=True) if id(record) not in written]
                    self._ready = left + self._ready
                    with anyio.move_on_after(REBALANCE_S) as waiting:
                        await rebalanced.wait()
                    if waiting.cancelled_caught:
                        raise
            self._ready = []

    def _is_ours(self, entry: _Entry) -> bool:
        return entry.owner is None or entry.tenure == self.tenure(entry.owner)

    async def flush_forever(self) -> None:
        """Write results as they become ready, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await self.flush()
