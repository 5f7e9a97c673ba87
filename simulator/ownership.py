"""Which partitions a member of a group owns, and what to do when that changes.

Every role of a group begins a partition at its first record and passes over what the log already holds of its
results: the log is the only state. Before it looks at those results it shuts out the partition's former
owner, so that nothing is written behind its back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from simulator.errors import FencedError
from simulator.log.protocol import StoredRecord, Subscription, TopicPartition


class Ownership:
    """Follows one subscription's partitions, by number: co-partitioned topics go together."""

    def __init__(self, subscription: Subscription, topics: Iterable[str]) -> None:
        self._subscription = subscription
        self._topics = tuple(topics)
        self.owned: frozenset[int] = frozenset()
        self._again: frozenset[int] = frozenset()

    def change(self) -> tuple[frozenset[int], frozenset[int]]:
        """(gained, lost) since the last call. A partition that went and came back in between is in both: what was
        known of it is out of date."""
        before = self.owned
        came = frozenset(tp.partition for tp in self._subscription.gained()) | self._again
        self._again = frozenset()
        self.owned = frozenset(tp.partition for tp in self._subscription.assignment)
        gained = (self.owned - before) | (self.owned & came)
        return gained, (before - self.owned) | (before & gained)

    async def take_over(self, gained: Collection[int]) -> dict[TopicPartition, int] | None:
        """Shut out the former owners of these partitions, and go back to their first records; gives those places.
        None when they have gone again meanwhile: `change` says so after the next poll."""
        first = {tp: 0 for tp in sorted(self._subscription.assignment) if tp.partition in gained}
        try:
            await self._subscription.transact([], first)
        except FencedError:
            self.put_off(gained)
            return None
        for tp in first:
            await self._subscription.seek(tp, 0)
        return first

    def put_off(self, gained: Collection[int]) -> None:
        """These were not taken over. Those that are still there come again with the next change."""
        self._again |= frozenset(gained)
        self.owned -= self._again

    def kept(self, records: Sequence[StoredRecord], gained: Collection[int]) -> Sequence[StoredRecord]:
        """The records that were read for partitions owned before and still: the others are read again from
        the first, or are somebody else's."""
        return [r for r in records if r.partition in self.owned and r.partition not in gained]
