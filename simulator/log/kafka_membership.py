"""What a group's member holds on Kafka: told by aiokafka in the background, taken over when it polls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import anyio
from aiokafka.abc import ConsumerRebalanceListener

from simulator.errors import FencedError, LogError
from simulator.log.kafka_transactions import Transactor
from simulator.log.protocol import TopicPartition

if TYPE_CHECKING:
    from simulator.log.kafka import KafkaLog


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """One member's share of its group.

    A partition is *held* while every share since it was taken over contained it. That is what the client
    knows: a member that the broker gave up on in between learns from its transactions, which the other owner
    has fenced.
    """

    def __init__(self, log: KafkaLog, group: str, consumer: Any) -> None:
        self.group = group
        self.interrupts: anyio.CancelScope | None = None
        """A wait to break off when the share changes."""
        self._log = log
        self._consumer = consumer
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

    async def wait_shared(self, timeout_s: float) -> bool:
        """Wait until the group does not share anew; whether it does not."""
        with anyio.move_on_after(max(0.0, timeout_s)):
            while self._sharing:
                await self._shared.wait()
        return not self._sharing

    async def wait_settled(self, timeout_s: float) -> None:
        """As `wait_shared`. Raises LogError after `timeout_s`."""
        if self._sharing and not await self.wait_shared(timeout_s):
            raise LogError(f"group {self.group!r} does not share its partitions within {timeout_s:g} s")

    def check_held(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises FencedError for partitions that are not held, without asking the broker."""
        for tp in partitions:
            if tp not in self._held or not self._transactors[tp.partition].usable:
                raise FencedError(
                    f"group {self.group!r}: {tp.topic!r} partition {tp.partition} is not this consumer's now"
                )

    def transactor(self, number: int) -> Transactor:
        """The transactions of a partition number held."""
        return self._transactors[number]

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
        async with anyio.create_task_group() as tasks:
            for number in sorted(fresh & numbers):
                self._transactors[number] = Transactor(
                    self._log.config, self._log.options, self._log.admin, self.group, number
                )
                tasks.start_soon(self._transactors[number].start)
        return kept, offered - kept

    def settled_on(self, kept: frozenset[TopicPartition], new: frozenset[TopicPartition]) -> bool:
        """Whether the share that is being taken over is still the last."""
        return (
            not self._sharing
            and self._taking == self._offers
            and kept <= self._held
            and kept | new == self._offered
        )

    def taken_over(self) -> None:
        """The share is taken over."""
        self._held = self._offered
        self._taken = self._taking

    async def aclose(self) -> None:
        """Close the producers."""
        transactors, self._transactors = self._transactors, {}
        for transactor in transactors.values():
            await transactor.aclose()
