"""Which partitions a member of a group owns, and what to do when that changes.

Every role of a group begins a partition at its first record and passes over what the log already holds of its
results: the log is the only state. Before it looks at those results it shuts out the partition's former
owner, so that nothing is written behind its back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from simulator.log.protocol import StoredRecord, Subscription


class Ownership:
    """Follows one subscription's partitions, by number: co-partitioned topics go together."""

    def __init__(self, subscription: Subscription, topics: Iterable[str]) -> None:
        self._subscription = subscription
        self._topics = tuple(topics)
        self.owned: frozenset[int] = frozenset()

    def change(self) -> tuple[frozenset[int], frozenset[int]]:
        """(gained, lost) since the last call."""
        before = self.owned
        self.owned = frozenset(tp.partition for tp in self._subscription.assignment)
        return self.owned - before, before - self.owned

    async def take_over(self, gained: Collection[int]) -> None:
        """Shut out the former owners of these partitions, and go back to their first records. Raises
        FencedError when they have gone again meanwhile."""
        first = {tp: 0 for tp in sorted(self._subscription.assignment) if tp.partition in gained}
        await self._subscription.transact([], first)
        for tp in first:
            await self._subscription.seek(tp, 0)

    def kept(self, records: Sequence[StoredRecord], gained: Collection[int]) -> Sequence[StoredRecord]:
        """The records that were read for partitions owned before and still: the others are read again from
        the first, or are somebody else's."""
        return [r for r in records if r.partition in self.owned and r.partition not in gained]


def partition_of(streams: Sequence[str], partitions: int) -> dict[str, int]:
    """Stream → partition: stream i lies in partition i mod `partitions`."""
    return {stream: i % partitions for i, stream in enumerate(streams)}
