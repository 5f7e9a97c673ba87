"""A consumer of a Kafka log: its partitions, its positions, and its membership in a group.

aiokafka joins and shares anew in the background, whether or not anybody polls. What this subscription shows
(`assignment`, positions) changes only in `poll`, which takes the new share over: partitions that were kept
without a break keep their position and what was fetched; the others begin where the group has committed.
Until then `transact` and `commit` refuse partitions that are gone, without asking the broker.

`transact` is one transaction for each partition number in its offsets, since each number has its own owner to
fence. A record goes with the number of its own partition where its topic is divided as the group's topics
are. All others (control, dead letters) go into the first transaction, before any other's offsets are
committed: a crash between two of them can repeat such a record under the same event id, and never loses one.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import aiokafka
import aiokafka.errors as kafka_errors
import anyio
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from anyio.lowlevel import checkpoint

from simulator.errors import FencedError, LogError
from simulator.log.kafka_client import close, log_error, translated
from simulator.log.kafka_membership import Membership
from simulator.log.kafka_producer import Placed, place_records
from simulator.log.protocol import Headers, Record, StoredRecord, Subscription, TopicPartition

if TYPE_CHECKING:
    from simulator.log.kafka import KafkaLog

Start = Literal["earliest", "latest"] | Mapping[TopicPartition, int]

_new = tuple.__new__  # what a named tuple's own constructor adds is half of its time
_flat = chain.from_iterable
_ASK_AFTER_S = 10.0
"""After so long without a record, a reader asks whether there still is a broker: aiokafka keeps that to
itself."""


class _Place:
    """A partition of the assignment: records that are fetched and not handed out, and the position after
    them."""

    __slots__ = ("after", "fetched", "kafka", "taken")

    def __init__(self, kafka: KafkaPartition, position: int) -> None:
        self.kafka = kafka
        self.fetched: list[Any] = []
        self.taken = 0
        self.after = position

    @property
    def position(self) -> int:
        """Of the next record to hand out."""
        return int(self.fetched[self.taken].offset) if self.fetched else self.after

    def take(self, max_records: int) -> list[Any]:
        """Hand out records."""
        some = self.fetched[self.taken : self.taken + max_records]
        self.taken += len(some)
        if self.taken == len(self.fetched):
            self.clear()
        return some

    def clear(self) -> None:
        """Forget what is fetched."""
        self.fetched = []
        self.taken = 0


class KafkaSubscription:
    """A `Subscription`. For one task: only `commit` and `transact` may run beside a `poll`."""

    def __init__(self, log: KafkaLog, topics: tuple[str, ...], group: str | None, start: Start) -> None:
        self._log = log
        self._config = log.config
        self._topics = topics
        self._group = group
        self._start = start
        self._consumer: Any = None
        self._membership: Membership | None = None
        self._places: dict[TopicPartition, _Place] = {}
        self._order: deque[TopicPartition] = deque()
        self._committed: dict[TopicPartition, int] = {}
        self._numbers = 0
        self._changing = anyio.Lock()  # of the share, or by a transaction
        self._polling = anyio.ResourceGuard("polling this subscription")
        self._heard_s = time.monotonic()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        log: KafkaLog,
        topics: tuple[str, ...],
        group: str | None,
        start: Start,
        *,
        only: TopicPartition | None = None,
    ) -> AsyncIterator[Subscription]:
        """Subscribe, and leave again at the end. `only` reads a single partition, without a group."""
        subscription = cls(log, topics, group, start)
        places = [only] if only is not None else await log.places(topics)
        try:
            await (subscription._assign(places) if group is None else subscription._join(group, places))
            yield subscription
        finally:
            with anyio.CancelScope(shield=True):
                if subscription._membership is not None:
                    await subscription._membership.aclose()
                if subscription._consumer is not None:
                    await close(subscription._consumer)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """See `Subscription`."""
        return frozenset(self._places)

    async def poll(self, *, max_records: int = 1000, timeout_s: float = 1.0) -> Sequence[StoredRecord]:
        """See `Subscription`. Ready partitions share `max_records` fairly. Raises LogError when no broker has
        been there for `timeout_ms`, or an offset is asked for that the topic does not hold."""
        deadline_s = time.monotonic() + timeout_s
        with self._polling:
            await checkpoint()
            while True:
                left_s = deadline_s - time.monotonic()
                if self._membership is None or await self._follow_group(self._membership, left_s):
                    await self._fetch(0.0)
                    if taken := self._take(max_records):
                        return taken
                    if (left_s := deadline_s - time.monotonic()) > 0:
                        await self._fetch(left_s)
                if left_s <= 0:
                    await self._check_brokers()
                    return []

    async def position(self, tp: TopicPartition) -> int:
        """See `Subscription`. Raises LogError outside the assignment."""
        return self._place(tp).position

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """See `Subscription`. An offset that the topic does not hold makes the next `poll` raise a
        LogError."""
        place = self._place(tp)
        if offset < 0:
            raise LogError(f"can't seek {tp.topic!r} partition {tp.partition} to offset {offset}")
        place.clear()
        place.after = offset
        if self._membership is None or self._membership.settled_with(tp):
            self._consumer.seek(place.kafka, offset)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """See `Subscription`. Raises LogError without a group. It is a transaction without records: a commit
        by itself would not notice that the partition has been another's in between."""
        if offsets is None:
            offsets = {tp: place.position for tp, place in self._places.items()}
        if self._group is None:
            raise LogError("a subscription without a group has nowhere to commit to")
        await self.transact((), offsets)

    async def transact(self, records: Sequence[Record], offsets: Mapping[TopicPartition, int]) -> None:
        """See `Subscription` and this module. Raises LogError for offsets without a group. When one of
        several transactions is fenced, those of partitions that this member still owned have taken place."""
        membership = self._membership
        if offsets and membership is None:
            raise LogError("a subscription without a group has nowhere to commit to")
        for tp, offset in offsets.items():
            if tp.topic not in self._topics or offset < 0:
                raise LogError(f"can't commit offset {offset} of {tp.topic!r} partition {tp.partition}")
        placed = await place_records(self._log.admin, records)
        if not placed and not offsets:
            return
        if membership is None:
            await self._log.append(records)
            return
        async with self._changing:
            await membership.wait_settled(self._config.timeout_s)
            membership.check_held(offsets)
            if not membership.numbers:
                await self._log.append(records)
                return
            await self._run(membership, *self._divide(placed, offsets, membership))

    # --- transactions ---------------------------------------------------------------------------------------

    def _divide(
        self, placed: Placed, offsets: Mapping[TopicPartition, int], membership: Membership
    ) -> tuple[dict[int, Placed], dict[int, dict[TopicPartition, int]], int | None]:
        """Records and offsets by partition number, and the number that must come first, if any."""
        by_number: dict[int, Placed] = {}
        offsets_of: dict[int, dict[TopicPartition, int]] = {}
        for tp, offset in offsets.items():
            offsets_of.setdefault(tp.partition, {})[tp] = offset
        first = min(offsets_of or membership.numbers)
        riders = False
        for tp, some in placed.items():
            alike = self._log.admin.known_partitions(tp.topic) == self._numbers
            rides = not alike or tp.partition not in membership.numbers
            by_number.setdefault(first if rides else tp.partition, {})[tp] = some
            riders = riders or rides
        for (
            number
        ) in by_number:  # without an offset, nobody could tell later whether its transaction took place
            if number not in offsets_of:
                known = {tp: o for tp, o in self._committed.items() if tp.partition == number}
                offsets_of[number] = dict(sorted(known.items())[:1])
        return by_number, offsets_of, first if riders else None

    async def _run(
        self,
        membership: Membership,
        by_number: Mapping[int, Placed],
        offsets_of: Mapping[int, dict[TopicPartition, int]],
        first: int | None,
    ) -> None:
        errors: list[Exception] = []

        async def run(number: int) -> None:
            offsets = offsets_of.get(number, {})
            try:
                await membership.transactor(number).run(by_number.get(number, {}), offsets)
            except LogError as error:
                errors.append(error)
            else:
                self._committed.update(offsets)

        numbers = sorted({*by_number, *offsets_of})
        if first is not None:
            await run(first)
            if errors:
                raise errors[0]
            numbers.remove(first)
        if len(numbers) == 1:
            await run(numbers[0])
        else:
            async with anyio.create_task_group() as tasks:
                for number in numbers:
                    tasks.start_soon(run, number)
        for error in sorted(errors, key=lambda error: not isinstance(error, FencedError)):
            raise error

    # --- reading --------------------------------------------------------------------------------------------

    async def _fetch(self, timeout_s: float) -> None:
        """Take over what has been fetched for partitions that have nothing ready; wait for it up to
        `timeout_s`."""
        empty = {place.kafka: place for place in self._places.values() if not place.fetched}
        if not empty:
            if not self._places and timeout_s > 0:
                await self._sleep(timeout_s)
            return
        found: Mapping[KafkaPartition, list[Any]] = {}
        try:
            if timeout_s <= 0:
                found = await self._consumer.getmany(*empty)
            else:
                with anyio.move_on_after(timeout_s) as scope:
                    if self._membership is not None:
                        self._membership.interrupts = scope
                    # A cancelled `getmany` has taken nothing: it waits only before it takes
                    found = await self._consumer.getmany(*empty, timeout_ms=max(1, int(timeout_s * 1000)))
        except kafka_errors.OffsetOutOfRangeError as error:
            raise LogError(
                f"Kafka at {self._config}: an offset is not there (any more, or yet): {error}"
            ) from error
        except kafka_errors.KafkaError as error:
            raise log_error(self._config, f"read {', '.join(self._topics)}", error) from error
        if found:
            self._heard_s = time.monotonic()
        for kafka, records in found.items():
            empty[kafka].fetched.extend(records)
        for kafka, place in empty.items():  # also past marks of transactions, where no record was
            try:
                place.after = await self._consumer.position(kafka)
            except kafka_errors.IllegalStateError:
                return  # the group shares anew: `poll` follows it next

    async def _sleep(self, timeout_s: float) -> None:
        """Own nothing; poll all the same, so that aiokafka sees that this member lives."""
        with anyio.move_on_after(timeout_s) as scope:
            if self._membership is not None:
                self._membership.interrupts = scope
            await self._consumer.getmany(timeout_ms=max(1, int(timeout_s * 1000)))

    def _take(self, max_records: int) -> list[StoredRecord]:
        """Hand out records, from every ready partition alike, and move the positions past them."""
        ready = [tp for tp in self._order if self._places[tp].fetched]
        taken: list[StoredRecord] = []
        for i, tp in enumerate(ready):
            share = -(-(max_records - len(taken)) // (len(ready) - i))
            taken += _stored(tp, self._places[tp].take(share))
            if len(taken) >= max_records:
                break
        self._order.rotate(-1)
        return taken

    async def _check_brokers(self) -> None:
        if time.monotonic() - self._heard_s > _ASK_AFTER_S:
            await self._log.admin.topics()
            self._heard_s = time.monotonic()

    def _place(self, tp: TopicPartition) -> _Place:
        place = self._places.get(tp)
        if place is None:
            raise LogError(f"this subscription does not read {tp.topic!r} partition {tp.partition} now")
        return place

    # --- places ---------------------------------------------------------------------------------------------

    def _kafka(self, tp: TopicPartition) -> KafkaPartition:
        return KafkaPartition(self._config.prefix + tp.topic, tp.partition)

    async def _begin(self, **options: Any) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            **self._log.options,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
            **options,
        )

    async def _start_consumer(self) -> None:
        what = f"read {', '.join(self._topics)}" + (f" as group {self._group!r}" if self._group else "")
        try:
            with translated(self._config, what), anyio.fail_after(self._config.timeout_s):
                await self._consumer.start()
        except LogError as error:
            if isinstance(error.__cause__, kafka_errors.InconsistentGroupProtocolError):
                raise LogError(f"group {self._group!r} has members that read other topics") from error
            raise

    async def _assign(self, places: Sequence[TopicPartition]) -> None:
        await self._begin()
        self._consumer.assign([self._kafka(tp) for tp in places])
        firsts = await self._first_offsets(places)
        for tp, offset in firsts.items():
            self._places[tp] = _Place(self._kafka(tp), offset)
        await self._start_consumer()
        for place in self._places.values():
            self._consumer.seek(place.kafka, place.after)
        self._order = deque(self._places)

    async def _join(self, group: str, places: Sequence[TopicPartition]) -> None:
        self._numbers = max(tp.partition for tp in places) + 1
        digest = hashlib.sha256("\n".join(sorted(self._topics)).encode()).hexdigest()[:16]
        # The broker refuses a member whose way of sharing no other member knows: the name makes it refuse one
        # that reads other topics. The range is per topic, so topics of equal numbers are shared alike.
        assignor = type("Assignor", (RangePartitionAssignor,), {"name": f"egostream-range-{digest}"})
        await self._begin(
            group_id=self._config.prefix + group,
            # Members are sorted by name: one that comes later takes from the end, and the first keep what
            # they have
            client_id=f"egostream-{time.time_ns():020d}",
            partition_assignment_strategy=(assignor,),
            session_timeout_ms=self._config.session_timeout_ms,
            heartbeat_interval_ms=self._config.heartbeat_interval_ms,
            max_poll_interval_ms=self._config.max_poll_interval_ms,
        )
        membership = Membership(self._log, group, self._consumer)
        self._consumer.subscribe([self._config.prefix + topic for topic in self._topics], listener=membership)
        await self._start_consumer()
        self._membership = membership
        if not await self._follow_group(membership, self._config.timeout_s):
            raise LogError(f"group {group!r} does not share its partitions: a member holds up the others")

    async def _follow_group(self, membership: Membership, timeout_s: float) -> bool:
        """Take over what the group assigns to this member now. False: it still shares anew after
        `timeout_s`."""
        if membership.is_current:
            return True
        if not await membership.wait_shared(timeout_s):
            return False
        async with self._changing:
            kept, new = await membership.take_over()
            committed = await self._log.admin.committed(membership.group, new)
            if not membership.settled_on(kept, new):
                return False
            firsts = await self._first_offsets([tp for tp in new if tp not in committed])
            if not membership.settled_on(kept, new):
                return False
            places = {tp: self._places[tp] for tp in kept}
            for tp in new:
                places[tp] = _Place(self._kafka(tp), committed[tp].offset if tp in committed else firsts[tp])
            for place in places.values():  # what is fetched stays: go on after it
                last = place.fetched[-1].offset + 1 if place.fetched else 0
                self._consumer.seek(place.kafka, max(place.after, last))
                self._consumer.resume(place.kafka)
            self._committed = {tp: o for tp, o in self._committed.items() if tp in kept}
            self._committed |= {tp: found.offset for tp, found in committed.items()}
            self._places = dict(sorted(places.items()))
            self._order = deque(self._places)
            membership.taken_over()
        return True

    async def _first_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions begin of which nothing is committed."""
        wanted = list(places)
        if self._start == "latest":
            return await self._log.offsets_of(wanted, "end")
        named = self._start if isinstance(self._start, Mapping) else {}
        firsts = await self._log.offsets_of([tp for tp in wanted if tp not in named], "begin")
        return {tp: named[tp] if tp in named else firsts[tp] for tp in wanted}


def _stored(tp: TopicPartition, records: Iterable[Any]) -> list[StoredRecord]:
    topic, partition = tp
    return [
        _new(
            StoredRecord,
            (
                topic,
                partition,
                record.offset,
                record.key or b"",
                record.value or b"",
                record.timestamp,
                # other clients may write headers without a value
                _filled(record.headers) if None in _flat(record.headers) else record.headers,
            ),
        )
        for record in records
    ]


def _filled(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    return tuple((name, value or b"") for name, value in headers)
