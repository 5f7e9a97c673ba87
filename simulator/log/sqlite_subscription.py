"""A consumer of an SQLite log: its partitions, its positions, and its membership in a group."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from simulator.errors import LogError
from simulator.log import sqlite_groups as groups
from simulator.log import sqlite_store as store
from simulator.log.protocol import Record, StoredRecord, Subscription, TopicPartition
from simulator.log.wakeup import Listener

if TYPE_CHECKING:
    from simulator.log.sqlite import SqliteLog

Start = Literal["earliest", "latest"] | Mapping[TopicPartition, int]

_CHECK_DEAD_S = 1.0


class SqliteSubscription:
    """A `Subscription`. For one task: only `commit` and `transact` may run beside a `poll`."""

    def __init__(
        self, log: SqliteLog, topics: tuple[str, ...], group: str | None, start: Start, exclusive: bool
    ) -> None:
        self._log = log
        self._topics = topics
        self._group = group
        self._start = start
        self._exclusive = exclusive
        self._member: groups.Member | None = None
        self._ids: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._gained: set[TopicPartition] = set()
        self._order: deque[TopicPartition] = deque()
        self._listener = Listener(log.wakeup_folder, topics)
        self._polling = anyio.ResourceGuard("polling this subscription")
        self._heartbeat_at = self._check_dead_at = 0.0

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        log: SqliteLog,
        topics: tuple[str, ...],
        group: str | None,
        start: Start,
        *,
        exclusive: bool = False,
    ) -> AsyncIterator[Subscription]:
        """Subscribe, and leave again at the end."""
        subscription = cls(log, topics, group, start, exclusive)
        try:
            await subscription._begin()
            yield subscription
        finally:
            subscription._listener.close()
            if subscription._member is not None:
                with anyio.CancelScope(shield=True):
                    await log.leave(subscription._member.group, subscription._member.id)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """See `Subscription`."""
        return frozenset(self._positions)

    def gained(self) -> frozenset[TopicPartition]:
        """See `Subscription`."""
        gained = frozenset(self._gained & self._positions.keys())
        self._gained.clear()
        return gained

    async def poll(self, *, max_records: int = 1000, timeout_s: float = 1.0) -> Sequence[StoredRecord]:
        """See `Subscription`. Ready partitions share `max_records` fairly."""
        deadline = time.monotonic() + timeout_s
        with self._polling:
            while True:
                if self._member is not None:
                    await self._keep_membership(self._member)
                self._listener.drain()
                if runs := await self._fetch(max_records):
                    # A read in its thread ends with its result all the same, and whom it would go to may be gone
                    await checkpoint_if_cancelled()
                    return self._take(runs)
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return []
                await self._listener.wait(left_s)

    async def position(self, tp: TopicPartition) -> int:
        """See `Subscription`. Raises LogError outside the assignment."""
        self._check_assigned(tp)
        return self._positions[tp]

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """See `Subscription`. Beyond the end, `poll` waits for that offset. Raises LogError outside the
        assignment or for a negative offset."""
        self._check_assigned(tp)
        if offset < 0:
            raise LogError(f"can't seek {tp.topic!r} partition {tp.partition} to offset {offset}")
        self._positions[tp] = offset

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """See `Subscription`. Raises LogError without a group."""
        await self.transact((), dict(self._positions) if offsets is None else offsets)

    async def transact(self, records: Sequence[Record], offsets: Mapping[TopicPartition, int]) -> None:
        """See `Subscription`. Raises LogError for offsets without a group."""
        member = self._member
        if offsets and member is None:
            raise LogError("a subscription without a group has nowhere to commit to")
        for tp, offset in offsets.items():
            if tp.topic not in self._topics or offset < 0:
                raise LogError(f"can't commit offset {offset} of {tp.topic!r} partition {tp.partition}")

        def run(conn: sqlite3.Connection, catalogue: store.Catalogue) -> tuple[None, Iterable[str]]:
            if member is not None:
                groups.commit(conn, catalogue, member, offsets)
            return None, store.append(conn, catalogue, records)

        if records or offsets:
            await self._log.write(run)

    async def guard(self, topics: Iterable[str]) -> None:
        """See `Subscription`. Nothing to prepare: each append looks."""
        await self.append(())

    async def append(self, records: Sequence[Record]) -> None:
        """See `Subscription`: one transaction looks who is at work, and appends. Raises LogError outside an exclusive
        group."""
        member = self._member
        if member is None or not self._exclusive:
            raise LogError("only a member of an exclusive group can append as the one at work")

        def run(conn: sqlite3.Connection, catalogue: store.Catalogue) -> tuple[None, Iterable[str]]:
            groups.check_owner(conn, member, self._topics[0], 0)
            return None, store.append(conn, catalogue, records)

        await self._log.write(run)

    # --- reading ------------------------------------------------------------------------------------------

    async def _fetch(self, max_records: int) -> list[store.Run]:
        """What is ready, after taking over a changed assignment."""
        while True:
            member = self._member
            positions = [store.Position(tp, self._ids[tp], self._positions[tp]) for tp in self._order]
            self._order.rotate(-1)
            runs = await self._log.read(partial(_fetch_as, member, positions, max_records))
            if runs is not None:
                return runs
            await self._follow_group()

    def _take(self, runs: Iterable[store.Run]) -> list[StoredRecord]:
        """Hand out records and move the positions past them."""
        taken: list[StoredRecord] = []
        for tp, records in runs:
            self._positions[tp] = records[-1].offset + 1
            taken += records
        return taken

    def _check_assigned(self, tp: TopicPartition) -> None:
        if tp not in self._positions:
            raise LogError(f"this subscription does not read {tp.topic!r} partition {tp.partition} now")

    # --- places -------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        def places(conn: sqlite3.Connection, catalogue: store.Catalogue) -> dict[TopicPartition, int]:
            return {
                TopicPartition(t, p): i for t in self._topics for p, i in enumerate(catalogue.ids(conn, t))
            }

        self._ids = await self._log.read(places)
        if self._group is not None:
            await self._join(self._group)
            await self._follow_group()
        else:
            ends = await self._log.end_offsets(self._topics)
            self._positions = {tp: self._first_offset(tp, ends) for tp in self._ids}
            self._gained.update(self._ids)
            self._order.extend(self._ids)

    async def _join(self, group: str) -> None:
        with anyio.CancelScope(shield=True):  # a member that nobody knows of would keep its partitions
            member = await self._log.join(group, self._topics, exclusive=self._exclusive)
        self._member = groups.Member(group, member, 0)
        now = time.monotonic()
        self._heartbeat_at = now + self._log.max_poll_interval_s / groups.HEARTBEATS
        self._check_dead_at = now + _CHECK_DEAD_S

    async def _follow_group(self) -> None:
        """Take over what the group assigns to this member now; join again if it was expelled. Partitions
        owned without a break keep their positions, others start from what is committed."""
        member = self._member
        assert member is not None

        def run(
            conn: sqlite3.Connection, catalogue: store.Catalogue
        ) -> tuple[groups.Share, dict[TopicPartition, int], dict[int, int]] | None:
            share = groups.share_of(conn, member.group, member.id)
            if share is None:
                return None
            committed = groups.committed(conn, catalogue, member.group, self._topics)
            return share, committed, store.end_offsets(conn, self._ids.values())

        found = await self._log.read(run)
        if found is None:
            self._positions = {}
            await self._join(member.group)
            await self._follow_group()
            return
        share, committed, ends_by_id = found
        ends = {tp: ends_by_id[partition_id] for tp, partition_id in self._ids.items()}
        positions = {}
        for tp in self._ids:
            if tp.partition not in share.since:
                continue
            if tp in self._positions and share.since[tp.partition] <= member.generation:
                positions[tp] = self._positions[tp]
            else:
                positions[tp] = committed[tp] if tp in committed else self._first_offset(tp, ends)
                self._gained.add(tp)
        self._positions = positions
        self._order = deque(positions)
        self._member = member._replace(generation=share.generation)

    def _first_offset(self, tp: TopicPartition, ends: Mapping[TopicPartition, int]) -> int:
        if self._start == "earliest":
            return 0
        if self._start == "latest":
            return ends[tp]
        return self._start.get(tp, 0)

    async def _keep_membership(self, member: groups.Member) -> None:
        """Say now and then that this member polls, and look for members that died."""
        now = time.monotonic()
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self._log.max_poll_interval_s / groups.HEARTBEATS

            def beat(conn: sqlite3.Connection, _: store.Catalogue) -> tuple[None, Iterable[str]]:
                groups.heartbeat(conn, member.id)
                return None, ()

            await self._log.write(beat)
        if now >= self._check_dead_at:
            self._check_dead_at = now + _CHECK_DEAD_S
            dead = await self._log.read(lambda conn, _: groups.dead_members(conn, member.group))
            if dead:
                await self._log.expel(member.group, dead)


def _fetch_as(
    member: groups.Member | None,
    positions: Sequence[store.Position],
    max_records: int,
    conn: sqlite3.Connection,
    _: store.Catalogue,
) -> list[store.Run] | None:
    """What is ready; None if the group's membership has changed since the member looked."""
    if member is not None and groups.generation_of(conn, member.group) != member.generation:
        return None
    return store.fetch(conn, positions, max_records)
