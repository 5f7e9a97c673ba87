"""What a group's member holds on Kafka: told by aiokafka in the background, taken over when it polls."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from simulator.errors import FencedError, LogError
from simulator.log.kafka_admin import Committed
from simulator.log.kafka_producer import Placed
from simulator.log.kafka_transactions import Transactor
from simulator.log.protocol import Record, TopicPartition

if TYPE_CHECKING:
    from simulator.log.kafka import KafkaLog


class _Ranges(RangePartitionAssignor):  # type: ignore[misc]  # aiokafka is untyped
    """Ranges of the partitions that this log knows of. aiokafka takes them from the broker that its consumer asked
    last: of a topic that is not known there yet, nobody would get a partition, for minutes."""

    partitions: Mapping[str, int] = {}

    @classmethod
    def partitions_for_topic(cls, topic: str) -> set[int]:
        """In the place of aiokafka's cluster."""
        return set(range(cls.partitions[topic]))

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        """Member → its share."""
        shares: dict[str, Any] = super().assign(cls, members)
        return shares


class _FirstTakesAll(_Ranges):
    """Every partition to the member that joined first: members are sorted by name, which says when."""

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        """Member → its share."""
        first = min(members)
        shares: dict[str, Any] = {
            member: ConsumerProtocolMemberAssignment(cls.version, [], b"") for member in members
        }
        shares[first] = super().assign(cluster, {first: members[first]})[first]
        return shares


def assignor_for(partitions: Mapping[str, int], exclusive: bool, prefix: str = "") -> type[Any]:
    """How a group that reads these topics (with so many partitions) shares them: in ranges of each topic, so that
    topics with equal numbers of partitions are shared alike; or, `exclusive`, all to one. The broker refuses a member
    whose way of sharing no other member knows: the name makes it refuse one that reads other topics."""
    digest = hashlib.sha256("\n".join(sorted(partitions)).encode()).hexdigest()[:16]
    way, base = ("first", _FirstTakesAll) if exclusive else ("range", _Ranges)
    known = {prefix + topic: number for topic, number in partitions.items()}
    return type("Assignor", (base,), {"name": f"egostream-{way}-{digest}", "partitions": known})


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """One member's share of its group.

    A partition is *held* while every share since it was taken over contained it. That is what the client
    knows: a member that the broker gave up on in between learns from its transactions, which the other owner
    has fenced.
    """

    def __init__(self, log: KafkaLog, group: str, consumer: Any, partitions: int) -> None:
        self.group = group
        self.interrupts: anyio.CancelScope | None = None
        """A wait to break off when the share changes."""
        self._log = log
        self._consumer = consumer
        self._partitions = partitions
        self._committed: dict[TopicPartition, int] = {}
        self._offered: frozenset[TopicPartition] = frozenset()
        self._held: frozenset[TopicPartition] = frozenset()
        self._transactors: dict[int, Transactor] = {}
        self._offers = 0
        self._taken = 0
        self._taking = 0
        self._sharing = True
        self._shared = anyio.Event()

    # --- called by aiokafka ---------------------------------------------------------------------------------

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """The group begins to share anew."""
        self._sharing = True
        self._shared = anyio.Event()
        self._interrupt()

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """The group has shared. Nothing is fetched until the share is taken over."""
        skip = len(self._log.config.prefix)
        self._offered = frozenset(TopicPartition(tp.topic[skip:], tp.partition) for tp in assigned)
        self._held &= self._offered
        for tp in assigned:
            self._consumer.pause(tp)
            self._consumer.seek(tp, 0)  # else aiokafka would look for the committed offset by itself
        self._offers += 1
        self._sharing = False
        self._shared.set()
        self._interrupt()

    def _interrupt(self) -> None:
        if self.interrupts is not None:
            self.interrupts.cancel()

    # --- called by the subscription -------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether the last share has been taken over, and every transactor of it works."""
        return (
            not self._sharing
            and self._taken == self._offers
            and all(transactor.usable for transactor in self._transactors.values())
        )

    @property
    def numbers(self) -> frozenset[int]:
        """The partition numbers held."""
        return frozenset(tp.partition for tp in self._held)

    def settled_with(self, tp: TopicPartition) -> bool:
        """Whether aiokafka reads this partition now."""
        return not self._sharing and tp in self._offered

    @property
    def is_sharing(self) -> bool:
        """Whether the group shares anew."""
        return self._sharing

    async def wait_settled(self, timeout_s: float) -> None:
        """Wait until the group does not share anew. Raises LogError after `timeout_s`."""
        with anyio.move_on_after(timeout_s):
            while self._sharing:
                await self._shared.wait()
        if self._sharing:
            raise LogError(f"group {self.group!r} does not share its partitions within {timeout_s:g} s")

    @property
    def owners(self) -> dict[int, Transactor]:
        """Partition number → what writes for it, which is another once it has been taken over anew."""
        return dict(self._transactors)

    def check_held(self, partitions: Iterable[TopicPartition], owners: Mapping[int, Transactor]) -> None:
        """Raises FencedError for partitions that are not held, or not as when these were the owners, without asking
        the broker."""
        for tp in partitions:
            owner = self._transactors.get(tp.partition)
            same = owner is not None and owner.usable and owner is owners.get(tp.partition)
            if tp not in self._held or not same:
                raise FencedError(
                    f"group {self.group!r}: {tp.topic!r} partition {tp.partition} is not this consumer's now"
                )

    async def take_over(self) -> tuple[frozenset[TopicPartition], frozenset[TopicPartition]]:
        """Become the owner of the last share: what is kept, and what is new. Former owners of what is new are
        fenced when this returns, and what they had open is ended, so that the committed offsets are final."""
        if any(not transactor.usable for transactor in self._transactors.values()):
            # Fenced, and yet in possession as far as we know: the next heartbeat tells if we have been given
            # up
            await anyio.sleep(2 * self._log.config.heartbeat_interval_ms / 1000)
        self._taking = self._offers
        offered = self._offered
        broken = {number for number, transactor in self._transactors.items() if not transactor.usable}
        fresh = {tp.partition for tp in offered - self._held} | broken
        kept = frozenset(tp for tp in self._held if tp.partition not in fresh)
        numbers = {tp.partition for tp in offered}
        for number in [n for n in self._transactors if n in fresh or n not in numbers]:
            await self._transactors.pop(number).aclose()
        self._held = kept
        for number in sorted(fresh & numbers):
            self._transactors[number] = Transactor(
                self._log.config, self._log.options, self._log.admin, self.group, number
            )
        await _together([self._transactors[number].start for number in sorted(fresh & numbers)])
        return kept, offered - kept

    def settled_on(self, kept: frozenset[TopicPartition], new: frozenset[TopicPartition]) -> bool:
        """Whether the share that is being taken over is still the last."""
        return (
            not self._sharing
            and self._taking == self._offers
            and kept <= self._held
            and kept | new == self._offered
        )

    def taken_over(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """The share is taken over; of what is new in it, this is committed."""
        self._committed = {tp: o for tp, o in self._committed.items() if tp in self._held}
        for tp, found in committed.items():
            self._committed[tp] = found.offset
            self._transactors[tp.partition].tokens[tp] = found.token
        self._held = self._offered
        self._taken = self._taking

    async def transact(self, placed: Placed, offsets: Mapping[TopicPartition, int]) -> None:
        """One transaction for each partition number, all at once, save that one which records ride with that
        belong to no number comes first. Raises FencedError or LogError after all have ended."""
        by_number, offsets_of, first = self._divide(placed, offsets)
        written: list[Record] = []

        async def run(number: int) -> None:
            mine = by_number.get(number, {})
            await self._transactors[number].run(mine, offsets_of[number])
            self._committed.update(offsets_of[number])
            written.extend(record for records in mine.values() for record in records)

        try:
            if first is not None:
                await run(first)
            await _together([partial(run, number) for number in sorted(offsets_of) if number != first])
        except FencedError as error:
            raise FencedError(str(error), written) from error

    def _divide(
        self, placed: Placed, offsets: Mapping[TopicPartition, int]
    ) -> tuple[dict[int, Placed], dict[int, dict[TopicPartition, int]], int | None]:
        """Records and offsets by partition number, and the number that must come first, if any."""
        by_number: dict[int, Placed] = {}
        offsets_of: dict[int, dict[TopicPartition, int]] = {}
        for tp, offset in offsets.items():
            offsets_of.setdefault(tp.partition, {})[tp] = offset
        ours = self.numbers
        first = min(offsets_of or ours)
        riders = False
        for tp, some in placed.items():
            alike = self._log.admin.known_partitions(tp.topic) == self._partitions
            rides = not alike or tp.partition not in ours
            by_number.setdefault(first if rides else tp.partition, {})[tp] = some
            riders = riders or rides
        for number in by_number:
            if number not in offsets_of:  # by an offset one can tell later whether the transaction took place
                known = {tp: o for tp, o in self._committed.items() if tp.partition == number}
                offsets_of[number] = dict(sorted(known.items())[:1])
        return by_number, offsets_of, first if riders else None

    async def aclose(self) -> None:
        """Close the producers."""
        transactors, self._transactors = self._transactors, {}
        for transactor in transactors.values():
            await transactor.aclose()


async def _together(steps: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run steps at once, all to their end; then raise the first FencedError, or else the first LogError."""
    errors: list[LogError] = []

    async def run(step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except LogError as error:
            errors.append(error)

    if len(steps) == 1:
        await steps[0]()
        return
    async with anyio.create_task_group() as tasks:
        for step in steps:
            tasks.start_soon(run, step)
    for error in sorted(errors, key=lambda error: not isinstance(error, FencedError)):
        raise error
