"""A consumer of a Kafka log: its partitions, its positions, and its membership in a group.

aiokafka joins and shares anew in the background, whether or not anybody polls. What this subscription shows
(`assignment`, positions) changes only in `poll`, which takes the new share over: partitions that were kept
without a break keep their position and what was fetched; the others begin where the group has committed.
Until then `transact` and `commit` refuse partitions that are gone, without asking the broker.

`transact` is one transaction for each partition number in its offsets, since each number has its own owner to
fence: where one is fenced, the others take place all the same. A record goes with the number of its own partition
where its topic is divided as the group's topics are. All others (control, dead letters) go into the first
transaction, before any other's offsets are committed: a crash between two of them can repeat such a record under
the same event id, and never loses one.

Nothing is written for a partition that went and came back before the caller could see it: what it has ready may
be written already by whoever had it in between. So `poll` returns as soon as it has taken a share over, and a
`transact` that began before refuses what was taken over meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import aiokafka
import aiokafka.errors as kafka_errors
import anyio
from aiokafka import TopicPartition as KafkaPartition
from anyio.lowlevel import checkpoint

from simulator.errors import LogError
from simulator.log.kafka_client import RETRY_S, close, log_error, may_pass, retried
from simulator.log.kafka_fence import FencedAppender, take_identity
from simulator.log.kafka_membership import Membership, assignor_for
from simulator.log.kafka_places import AsStored, Place
from simulator.log.kafka_producer import place_records
from simulator.log.protocol import Record, StoredRecord, Subscription, TopicPartition

if TYPE_CHECKING:
    from simulator.log.kafka import KafkaLog

Start = Literal["earliest", "latest"] | Mapping[TopicPartition, int]

_QUIET_S = 10.0
"""Longer than from one heartbeat to the next."""
_ASK_AFTER_S = 10.0
"""After so long without a record, a reader asks whether there still is a broker: aiokafka keeps that to
itself."""


class KafkaSubscription:
    """A `Subscription`. For one task: only `commit` and `transact` may run beside a `poll`."""

    def __init__(
        self, log: KafkaLog, topics: tuple[str, ...], group: str | None, start: Start, exclusive: bool
    ) -> None:
        self._log = log
        self._config = log.config
        self._topics = topics
        self._group = group
        self._start = start
        self._exclusive = exclusive
        self._consumer: Any = None
        self._membership: Membership | None = None
        self._places: dict[TopicPartition, Place] = {}
        self._appender: FencedAppender | None = None
        self._guarded: frozenset[str] = frozenset()
        self._gained: set[TopicPartition] = set()
        self._order: deque[TopicPartition] = deque()
        self._changing = anyio.Lock()  # of the share, or by a transaction
        self._polling = anyio.ResourceGuard("polling this subscription")
        self._heard_s = time.monotonic()
        self._failing_since_s: float | None = None
        self._failed_s = 0.0
        self._recovered = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        log: KafkaLog,
        topics: tuple[str, ...],
        group: str | None,
        start: Start,
        *,
        exclusive: bool = False,
        only: TopicPartition | None = None,
    ) -> AsyncIterator[Subscription]:
        """Subscribe, and leave again at the end. `only` reads a single partition, without a group."""
        subscription = cls(log, topics, group, start, exclusive)
        places = [only] if only is not None else await log.places(topics)
        try:
            await (subscription._assign(places) if group is None else subscription._join(group, places))
            yield subscription
        finally:
            with anyio.CancelScope(shield=True):
                await subscription._let_go()
                if subscription._membership is not None:
                    await subscription._membership.aclose()
                if subscription._consumer is not None:
                    await close(subscription._consumer)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """See `Subscription`."""
        return frozenset(self._places)

    def gained(self) -> frozenset[TopicPartition]:
        """See `Subscription`."""
        gained = frozenset(self._gained & self._places.keys())
        self._gained.clear()
        return gained

    async def poll(self, *, max_records: int = 1000, timeout_s: float = 1.0) -> Sequence[StoredRecord]:
        """See `Subscription`. Ready partitions share `max_records` fairly. Raises LogError when no broker has
        been there for `timeout_ms`, or an offset is asked for that the topic does not hold."""
        deadline_s = time.monotonic() + timeout_s
        with self._polling:
            await checkpoint()
            while True:
                left_s = deadline_s - time.monotonic()
                if self._membership is None or self._membership.is_current:
                    await self._fetch(0.0)
                    if taken := self._take(max_records):
                        return taken
                    if (left_s := deadline_s - time.monotonic()) > 0:
                        await self._fetch(left_s)
                elif await self._follow_group(self._membership, left_s):
                    return []
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
        several transactions is fenced, those of partitions that this member still owned have taken place: the
        FencedError carries what they wrote."""
        membership = self._membership
        if offsets and membership is None:
            raise LogError("a subscription without a group has nowhere to commit to")
        for tp, offset in offsets.items():
            if tp.topic not in self._topics or offset < 0:
                raise LogError(f"can't commit offset {offset} of {tp.topic!r} partition {tp.partition}")
        owners = {} if membership is None else membership.owners
        placed = await place_records(self._log.admin, records)
        if not placed and not offsets:
            return
        if membership is None:
            await self._log.append(records)
            return
        async with self._changing:
            await membership.wait_settled(self._config.timeout_s)
            membership.check_held(offsets, owners)
            if membership.numbers:
                await membership.transact(placed, offsets)
            else:  # an idle member: nobody can be in its place
                await self._log.append(records)

    async def guard(self, topics: Iterable[str]) -> None:
        """See `Subscription` and the module `kafka_fence`."""
        topics = tuple(topics)
        if self._group is None or not self._exclusive:
            raise LogError("only a member of an exclusive group can append as the one at work")
        await self._prove()
        await self._let_go()
        places = [self._kafka(tp) for tp in await self._log.places(topics)]
        name = f"{self._config.prefix}{self._group}-append"
        identity = await take_identity(self._config, self._log.options, name, places)
        await self._prove()  # the one that took over meanwhile may have its id from before this one
        self._guarded = frozenset(topics)
        self._appender = FencedAppender(
            self._config, self._log.options, self._log.ends, identity, self._prove
        )
        await self._appender.connect()

    async def append(self, records: Sequence[Record]) -> None:
        """See `Subscription`. Raises LogError for a topic that is not guarded."""
        if self._appender is None or any(record.topic not in self._guarded for record in records):
            raise LogError("only guarded topics can be appended to as the one at work")
        if records:
            await self._appender.append(await place_records(self._log.admin, records))

    async def _prove(self) -> None:
        """Raises FencedError unless this member is the one at work."""
        await self.transact((), {TopicPartition(self._topics[0], 0): 0})

    async def _let_go(self) -> None:
        appender, self._appender = self._appender, None
        if appender is not None:
            await appender.aclose()

    # --- reading --------------------------------------------------------------------------------------------

    async def _fetch(self, timeout_s: float) -> None:
        """Take over what has been fetched for partitions that have nothing ready; wait for it up to
        `timeout_s`."""
        empty = {place.kafka: place for place in self._places.values() if not place.fetched}
        if not empty:
            if (
                not self._places and timeout_s > 0
            ):  # poll all the same, so that aiokafka sees that this member lives
                await self._get_many((), timeout_s)
            return
        found = await self._get_many(empty, timeout_s)
        if found:
            self._heard_s = time.monotonic()
        for kafka, records in found.items():
            empty[kafka].fetched.extend(records)
            empty[kafka].after = records[-1].offset + 1
        for kafka, place in empty.items():  # also past marks of transactions, where no record was
            # A new share's positions are none yet. With the old one, nothing is waited for here.
            if self._membership is None or self._membership.is_current:
                place.after = await self._consumer.position(kafka)

    async def _get_many(
        self, places: Iterable[KafkaPartition], timeout_s: float
    ) -> Mapping[KafkaPartition, list[StoredRecord]]:
        """What has been fetched; waits for it up to `timeout_s`. aiokafka hands over here what its group's tasks met in
        the background. What may pass is raised only when it has come back for `timeout_ms`; meanwhile the member joins
        again, which begins its heartbeat anew."""
        try:
            if timeout_s <= 0:
                found: Mapping[KafkaPartition, list[StoredRecord]] = await self._consumer.getmany(*places)
            else:
                found = {}
                with anyio.move_on_after(timeout_s) as scope:
                    if self._membership is not None:
                        self._membership.interrupts = scope
                    # A cancelled `getmany` has taken nothing: it waits only before it takes
                    found = await self._consumer.getmany(*places, timeout_ms=max(1, int(timeout_s * 1000)))
        except kafka_errors.OffsetOutOfRangeError as error:
            raise LogError(
                f"Kafka at {self._config}: an offset is not there (any more, or yet): {error}"
            ) from error
        except kafka_errors.KafkaError as error:
            if not may_pass(error) or self._has_failed_for_long():
                raise log_error(self._config, f"read {', '.join(self._topics)}", error) from error
            if self._membership is not None:
                self._consumer._coordinator.request_rejoin()
            await anyio.sleep(RETRY_S)
            return {}
        if self._membership is None:
            self._recovered = True
        return found

    def _has_failed_for_long(self) -> bool:
        """Note that reading failed; whether it has for `timeout_ms`, or can't recover. What comes after a share was
        taken over, and some time without a failure, is another."""
        now_s = time.monotonic()
        if self._failing_since_s is None or (self._recovered and now_s - self._failed_s > _QUIET_S):
            self._failing_since_s = now_s
        self._failed_s, self._recovered = now_s, False
        task = self._membership and self._consumer._coordinator._coordination_task
        return now_s - self._failing_since_s > self._config.timeout_s or bool(task and task.done())

    def _take(self, max_records: int) -> list[StoredRecord]:
        """Hand out records, from every ready partition alike, and move the positions past them."""
        ready = [tp for tp in self._order if self._places[tp].fetched]
        taken: list[StoredRecord] = []
        for i, tp in enumerate(ready):
            share = -(-(max_records - len(taken)) // (len(ready) - i))
            taken += self._places[tp].take(share)
            if len(taken) >= max_records:
                break
        self._order.rotate(-1)
        return taken

    async def _check_brokers(self) -> None:
        if time.monotonic() - self._heard_s > _ASK_AFTER_S:
            await self._log.admin.topics()
            self._heard_s = time.monotonic()

    def _place(self, tp: TopicPartition) -> Place:
        place = self._places.get(tp)
        if place is None:
            raise LogError(f"this subscription does not read {tp.topic!r} partition {tp.partition} now")
        return place

    # --- places ---------------------------------------------------------------------------------------------

    def _kafka(self, tp: TopicPartition) -> KafkaPartition:
        return KafkaPartition(self._config.prefix + tp.topic, tp.partition)

    async def _start_consumer(self, prepare: Callable[[Any], None], **options: Any) -> None:
        """Make the consumer; `prepare` tells it what to read. aiokafka tries the first connection once: one that can't
        begin is made again, until `timeout_ms`."""

        async def attempt() -> None:
            self._consumer = aiokafka.AIOKafkaConsumer(
                **self._log.options,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="none",
                **options,
            )
            prepare(self._consumer)
            try:
                await self._consumer.start()
            except BaseException:
                failed, self._consumer = self._consumer, None
                await close(failed)
                raise

        what = f"read {', '.join(self._topics)}" + (f" as group {self._group!r}" if self._group else "")
        try:
            await retried(self._config, what, attempt)
        except LogError as error:
            if isinstance(error.__cause__, kafka_errors.InconsistentGroupProtocolError):
                raise LogError(
                    f"group {self._group!r} has members that read other topics, or share them otherwise"
                ) from error
            raise
        fetcher = self._consumer._fetcher
        fetcher._records = AsStored(self._config.prefix, fetcher._records)

    async def _assign(self, places: Sequence[TopicPartition]) -> None:
        firsts = await self._log.first_offsets(places, self._start)
        for tp, offset in firsts.items():
            self._places[tp] = Place(self._kafka(tp), offset)
        self._gained.update(firsts)
        kafka = [self._kafka(tp) for tp in places]
        await self._start_consumer(lambda consumer: consumer.assign(kafka))
        for place in self._places.values():
            self._consumer.seek(place.kafka, place.after)
        self._order = deque(self._places)

    async def _join(self, group: str, places: Sequence[TopicPartition]) -> None:
        topics = [self._config.prefix + topic for topic in self._topics]
        numbers = {topic: sum(tp.topic == topic for tp in places) for topic in self._topics}
        partitions = max(numbers.values())

        def prepare(consumer: Any) -> None:
            self._membership = Membership(self._log, group, consumer, partitions)
            consumer.subscribe(topics, listener=self._membership)

        await self._start_consumer(
            prepare,
            group_id=self._config.prefix + group,
            # Members are sorted by name: one that comes later takes from the end, and the first keep what
            # they have
            client_id=f"egostream-{time.time_ns():020d}",
            partition_assignment_strategy=(assignor_for(numbers, self._exclusive, self._config.prefix),),
            session_timeout_ms=self._config.session_timeout_ms,
            heartbeat_interval_ms=self._config.heartbeat_interval_ms,
            max_poll_interval_ms=self._config.max_poll_interval_ms,
        )
        membership = self._membership
        assert membership is not None
        deadline_s = time.monotonic() + self._config.timeout_s
        while not await self._follow_group(membership, deadline_s - time.monotonic()):
            if time.monotonic() > deadline_s:  # else it shared anew while this member took its share over
                raise LogError(f"group {group!r} does not share its partitions: a member holds up the others")

    async def _wait_shared(self, membership: Membership, timeout_s: float) -> bool:
        """Wait until the group does not share anew; whether it does not. Polls all the same, although nothing can come:
        else aiokafka takes this member for idle and does not let it join again, and what its tasks met in the
        background keeps them waiting until somebody has taken note."""
        deadline_s = time.monotonic() + timeout_s
        while membership.is_sharing and (left_s := deadline_s - time.monotonic()) > 0:
            await self._get_many((), left_s)
        return not membership.is_sharing

    async def _follow_group(self, membership: Membership, timeout_s: float) -> bool:
        """Take over what the group assigns to this member now. False: it still shares anew after
        `timeout_s`."""
        if membership.is_current:
            return True
        if not await self._wait_shared(membership, timeout_s):
            return False
        async with self._changing:
            kept, new = await membership.take_over()
            committed = await self._log.admin.committed(membership.group, new)
            if not membership.settled_on(kept, new):
                return False
            firsts = await self._log.first_offsets([tp for tp in new if tp not in committed], self._start)
            if not membership.settled_on(kept, new):
                return False
            places = {tp: self._places[tp] for tp in kept}
            for tp in new:
                places[tp] = Place(self._kafka(tp), committed[tp].offset if tp in committed else firsts[tp])
            for place in places.values():  # what is fetched stays: go on after it
                self._consumer.seek(place.kafka, place.after)
                self._consumer.resume(place.kafka)
            self._places = dict(sorted(places.items()))
            self._gained.update(new)
            self._order = deque(self._places)
            membership.taken_over(committed)
            self._recovered = True
        return True
