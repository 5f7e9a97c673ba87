"""The log in one SQLite file: WAL, several processes at once.

Durability: what was appended survives the death of any process, kill -9 included. With `synchronous=NORMAL`
a power cut or a crash of the operating system can lose the last transactions (each of them wholly, the
newest first), never corrupt the file or leave half a batch.

SQLite blocks, so it runs in worker threads: one connection writes, others read. Writes that wait while one
is under way go into the next transaction together (group commit); each still happens wholly or not at all. A
write that has begun is finished even if the task that asked for it is cancelled.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import anyio
import msgspec
from anyio import to_thread

from simulator.errors import EgostreamError, LogError
from simulator.log import sqlite_groups as groups
from simulator.log import sqlite_store as store
from simulator.log.protocol import Record, Subscription, TopicPartition
from simulator.log.sqlite_subscription import SqliteSubscription
from simulator.log.wakeup import Notifier, wakeup_folder

_T = TypeVar("_T")
_READERS = 4

WriteOperation = Callable[[sqlite3.Connection, store.Catalogue], tuple[_T, Iterable[str]]]
"""Runs within a transaction; returns its result and the topics whose readers are to be woken."""
ReadOperation = Callable[[sqlite3.Connection, store.Catalogue], _T]
"""Runs on one snapshot of the log."""


def user_of(path: Path) -> int | None:
    """The id of another process that takes part in a run in the log there; None where there is none, or no log.
    Blocking."""
    try:
        with closing(store.connect(path)) as conn:
            return groups.user_of(conn)
    except (LogError, sqlite3.Error):
        return None


class _Write:
    """A write that waits for its transaction, then its outcome."""

    __slots__ = ("done", "error", "operation", "result", "woken")

    def __init__(self, operation: WriteOperation[Any]) -> None:
        self.operation = operation
        self.result: Any = None
        self.woken: Iterable[str] = ()
        self.error: Exception | None = None
        self.done = False


class SqliteLog:
    """A `Log` in one file. Use `async with SqliteLog.open(path) as log`."""

    def __init__(self, path: Path, writer: sqlite3.Connection, max_poll_interval_s: float) -> None:
        self.path = path
        self.max_poll_interval_s = max_poll_interval_s
        self.wakeup_folder = wakeup_folder(path)
        self._writer = writer
        self._notifier = Notifier(self.wakeup_folder)
        self._writing = threading.Lock()  # a thread outlives its task if asyncio, not anyio, cancels that
        self._waiting: deque[_Write] = deque()
        self._turn = anyio.Lock()
        self._writer_catalogue = store.Catalogue()  # may hold topics that are not committed yet
        self._catalogue = store.Catalogue()
        self._readers: list[sqlite3.Connection] = []
        self._writer_threads = anyio.CapacityLimiter(1)
        self._reader_threads = anyio.CapacityLimiter(_READERS)
        self._members: dict[int, str] = {}
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | PathLike[str], *, create: bool = True, max_poll_interval_s: float = 300.0
    ) -> AsyncIterator[SqliteLog]:
        """Open the log at `path`; with `create`, make it if there is none. A group member that does not poll
        for `max_poll_interval_s` loses its partitions. Raises LogError if the file is no log of ours or is
        newer."""
        file = Path(path)
        writer = await to_thread.run_sync(partial(store.connect, file, create=create))
        log = cls(file, writer, max_poll_interval_s)
        try:
            yield log
        finally:
            with anyio.CancelScope(shield=True):
                await log.aclose()

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """See `Log`. Names are legal Kafka topic names; others raise TopicError."""

        def run(conn: sqlite3.Connection, _: store.Catalogue) -> tuple[None, Iterable[str]]:
            store.create_topics(conn, topics)
            return None, ()

        await self.write(run)

    async def topics(self) -> dict[str, int]:
        """See `Log`."""
        return await self.read(lambda conn, _: store.topics(conn))

    async def exists(self, topic: str) -> bool:
        """See `Log`."""
        return topic in await self.topics()

    async def append(self, records: Sequence[Record]) -> None:
        """See `Log`."""
        if records:
            await self.write(lambda conn, catalogue: (None, store.append(conn, catalogue, records)))

    async def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """See `Log`. Raises TopicError for an unknown topic."""
        wanted = list(topics)

        def run(conn: sqlite3.Connection, catalogue: store.Catalogue) -> dict[TopicPartition, int]:
            places = {TopicPartition(t, p): i for t in wanted for p, i in enumerate(catalogue.ids(conn, t))}
            ends = store.end_offsets(conn, places.values())
            return {tp: ends[partition_id] for tp, partition_id in places.items()}

        return await self.read(run)

    async def offset_for_time(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """See `Log`. Exact for stamps in any order. Raises TopicError for an unknown partition."""
        return await self.read(
            lambda conn, catalogue: store.offset_for_time(conn, catalogue.id(conn, *tp), timestamp_ms)
        )

    async def committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """See `Log`. Raises TopicError for an unknown topic."""
        wanted = list(topics)
        return await self.read(lambda conn, catalogue: groups.committed(conn, catalogue, group, wanted))

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        group: str | None = None,
        start: Literal["earliest", "latest"] | Mapping[TopicPartition, int] = "earliest",
        exclusive: bool = False,
    ) -> AbstractAsyncContextManager[Subscription]:
        """See `Log`. Members of one group must subscribe to the same topics. Raises TopicError for an unknown
        topic, LogError if other members read other topics or share them otherwise."""
        return SqliteSubscription.open(self, tuple(dict.fromkeys(topics)), group, start, exclusive=exclusive)

    async def aclose(self) -> None:
        """Leave all groups and close the file. Safe to call again."""
        if self._closed:
            return
        for member, group in list(self._members.items()):
            await self.leave(group, member)
        self._closed = True
        await to_thread.run_sync(self._close)

    # --- for subscriptions --------------------------------------------------------------------------------

    async def join(self, group: str, topics: Iterable[str], *, exclusive: bool = False) -> int:
        """Become a member of a group; returns the member's id."""

        def run(conn: sqlite3.Connection, catalogue: store.Catalogue) -> tuple[int, Iterable[str]]:
            member = groups.join(
                conn, catalogue, group, topics, self.max_poll_interval_s, exclusive=exclusive
            )
            return member, topics

        member = await self.write(run)
        self._members[member] = group
        return member

    async def leave(self, group: str, member: int) -> None:
        """Give up a membership; without effect if it ended already or the log is closed."""
        if self._members.pop(member, None) is not None:
            await self.expel(group, [member])

    async def expel(self, group: str, members: Iterable[int]) -> None:
        """End memberships and share out what they had."""

        def run(conn: sqlite3.Connection, catalogue: store.Catalogue) -> tuple[None, Iterable[str]]:
            return None, groups.remove(conn, catalogue, group, members)

        await self.write(run)

    async def write(self, operation: WriteOperation[_T]) -> _T:
        """Run an operation in a transaction, perhaps together with others', and wake readers."""
        self._check_open()
        write = _Write(operation)
        self._waiting.append(write)
        try:
            async with self._turn:
                if not write.done:  # by another task's turn
                    await to_thread.run_sync(self._run_waiting, limiter=self._writer_threads)
        except BaseException:
            with suppress(ValueError):  # it has begun, and will be finished
                self._waiting.remove(write)
            raise
        if write.error is not None:
            raise write.error
        return cast(_T, write.result)

    async def read(self, operation: ReadOperation[_T]) -> _T:
        """Run an operation on a snapshot of what is committed."""
        self._check_open()
        return await to_thread.run_sync(self._run_read, operation, limiter=self._reader_threads)

    # --- in worker threads --------------------------------------------------------------------------------

    def _run_waiting(self) -> None:
        with self._writing:
            writes: list[_Write] = []
            while self._waiting:
                writes.append(self._waiting.popleft())
            if not writes:
                return
            try:
                self._commit(writes)
            finally:
                for write in writes:
                    write.done = True

    def _commit(self, writes: Sequence[_Write]) -> None:
        conn = self._writer
        try:
            self._check_open()
            conn.execute("BEGIN IMMEDIATE")
            for write in writes:
                self._run_one(conn, write)
            conn.execute("COMMIT")
        except (sqlite3.Error, LogError) as error:
            if not self._closed and conn.in_transaction:
                conn.execute("ROLLBACK")
            self._writer_catalogue.clear()
            refusal = LogError(f"can't write to the log {self.path}: {error}")
            refusal.__cause__ = error
            for write in writes:
                write.error = refusal
        else:
            self._notifier.wake({topic for write in writes for topic in write.woken})

    def _run_one(self, conn: sqlite3.Connection, write: _Write) -> None:
        conn.execute("SAVEPOINT one")
        try:
            write.result, write.woken = write.operation(conn, self._writer_catalogue)
        except Exception as error:
            if not conn.in_transaction:
                raise  # such as a full disk: SQLite has rolled back the others' writes as well
            conn.execute("ROLLBACK TO one")
            self._writer_catalogue.clear()
            if isinstance(error, EgostreamError):
                write.error = error
            else:
                write.error = LogError(f"the log {self.path} can't store this: {error}")
                write.error.__cause__ = error
        conn.execute("RELEASE one")

    def _run_read(self, operation: ReadOperation[_T]) -> _T:
        self._check_open()
        conn = self._idle_reader() or store.connect(self.path)
        try:
            conn.execute("BEGIN")
            try:
                return operation(conn, self._catalogue)
            finally:
                conn.execute("COMMIT")
        except sqlite3.Error as error:
            raise LogError(f"can't read the log {self.path}: {error}") from error
        except msgspec.DecodeError as error:
            raise LogError(
                f"the log {self.path} is damaged: it holds what is no chunk of records: {error}"
            ) from error
        finally:
            self._readers.append(conn)
            if self._closed:
                self._close_readers()

    def _idle_reader(self) -> sqlite3.Connection | None:
        try:
            return self._readers.pop()
        except IndexError:
            return None

    def _close_readers(self) -> None:
        while conn := self._idle_reader():
            conn.close()

    def _close(self) -> None:
        with self._writing:
            self._close_readers()
            self._writer.close()
            self._notifier.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogError(f"the log {self.path} is closed")
