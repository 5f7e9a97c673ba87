"""What the SQLite log must do beyond what every log must: real files, whole writes, exact look-up by time."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import ConfigError, LogError
from simulator.log import Record, SqliteLog, TopicPartition, open_log
from simulator.log.sqlite_store import CHUNK_RECORDS
from tests.log.helpers import DEADLINE_S, read, record, values

ZERO = TopicPartition("a", 0)


# --- files ------------------------------------------------------------------------------------------------


async def test_files_of_others_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are notes, and no log\n" * 100)
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as conn:
        conn.execute("CREATE TABLE t (x)")
    conn.close()
    for path in (text, foreign):
        before = path.read_bytes()
        with pytest.raises(LogError, match=path.name):
            async with open_log(str(path)):
                pass
        assert path.read_bytes() == before
    for path in (tmp_path, tmp_path / "missing" / "log.sqlite"):
        with pytest.raises(LogError, match="folder"):
            async with open_log(str(path)):
                pass
    with pytest.raises(LogError, match="no log at"):
        async with open_log(str(tmp_path / "new.sqlite"), create=False):
            pass
    assert not (tmp_path / "new.sqlite").exists()


async def test_a_newer_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with SqliteLog.open(path):
        pass
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE egostream_log SET schema_version = schema_version + 1")
    conn.close()
    with pytest.raises(LogError, match="newer"):
        async with SqliteLog.open(path):
            pass


async def test_other_schemes_are_refused() -> None:
    with pytest.raises(ConfigError, match="mqtt"):
        async with open_log("mqtt://x"):
            pass


async def test_a_closed_log_says_so(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"], group="g") as subscription:
            await log.aclose()
            await log.aclose()
            for use in (log.topics(), log.append([record("a", b"x")]), subscription.poll()):
                with pytest.raises(LogError, match="closed"):
                    await use
    assert os.listdir(tmp_path) == ["log.sqlite"]


async def test_wrong_types_are_refused_and_spoil_nothing(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1})
        good = record("a", b"good")
        wrong = [{"key": "text"}, {"value": None}, {"timestamp_ms": 1.5}, {"headers": (("h", "text"),)}]
        wrong += [{"timestamp_ms": 1 << 63}, {"timestamp_ms": -(1 << 63) - 1}]
        for fields in wrong:
            with pytest.raises(LogError):
                await log.append([good, good._replace(**fields)])
        await log.append([good])
        async with log.subscribe(["a"]) as subscription:
            assert values(await subscription.poll()) == [b"good"]


async def test_a_write_ends_no_sooner_than_its_transaction(tmp_path: Path) -> None:
    """The task whose turn it is is cancelled by asyncio, while its thread works on another task's write as
    well."""
    first, second = _Gate(), _Gate()
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(log.write(first.operation))
            await first.reached()
            turn = tasks.create_task(log.write(second.operation))
            append = tasks.create_task(log.append([record("a", b"x")]))
            await anyio.wait_all_tasks_blocked()
            first.open.set()
            await second.reached()
            turn.cancel()
            await asyncio.sleep(0.05)
            assert not append.done()
            second.open.set()
            await append
            assert await log.end_offsets(["a"]) == {ZERO: 1}


class _Gate:
    """A write that stands in its transaction until it is let through."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self._reached = threading.Event()

    def operation(self, *_: object) -> tuple[None, tuple[str, ...]]:
        self._reached.set()
        assert self.open.wait(DEADLINE_S)
        return None, ()

    async def reached(self) -> None:
        assert await anyio.to_thread.run_sync(self._reached.wait, DEADLINE_S)


async def test_partitions_take_turns(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 3})
        await log.append([record("a", b"x", partition=i % 3) for i in range(30)])
        async with log.subscribe(["a"]) as subscription:
            turns = [(await subscription.poll(max_records=1))[0].partition for _ in range(9)]
    assert all(set(turns[first : first + 3]) == {0, 1, 2} for first in (0, 3, 6))


async def test_asyncios_own_cancellation_breaks_no_transaction(tmp_path: Path) -> None:
    """It leaves worker threads running, where anyio's waits for them."""
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1})
        acknowledged = []

        async def append(name: int) -> None:
            for i in range(20):
                value = b"%d %d" % (name, i)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.0005 * (i % 5)):
                        await log.append([record("a", value)] * 100)
                        acknowledged.append(value)

        async with anyio.create_task_group() as tasks:
            for name in range(4):
                tasks.start_soon(append, name)
        await log.append([record("a", b"last")])
        total = (await log.end_offsets(["a"]))[ZERO]
        async with log.subscribe(["a"]) as subscription:
            got = values(await read(subscription, total))
    assert total % 100 == 1
    assert all(len(set(got[first : first + 100])) == 1 for first in range(0, total - 1, 100))
    assert set(acknowledged) <= set(got)


async def test_a_cancelled_append_is_whole_or_not_there(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1})
        for i in range(60):
            with anyio.move_on_after(0.0003 * (i % 10)):
                async with anyio.create_task_group() as tasks:
                    for j in range(3):
                        tasks.start_soon(log.append, [record("a", b"%d %d" % (i, j))] * 200)
        await log.append([record("a", b"last")])
        total = (await log.end_offsets(["a"]))[ZERO]
        async with log.subscribe(["a"]) as subscription:
            got = values(await read(subscription, total))
    assert total % 200 == 1
    assert all(len(set(got[first : first + 200])) == 1 for first in range(0, total - 1, 200))


# --- against a model --------------------------------------------------------------------------------------

_stamps = st.lists(st.integers(-5, 60), min_size=1, max_size=8)
_batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 1), st.integers(-50, 50)), max_size=6),
        st.sampled_from([1, 1, 50, 300]),
    ),
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(batches=_batches, wanted=_stamps, max_records=st.integers(1, 700), data=st.data())
def test_the_log_behaves_like_lists(
    batches: list[tuple[list[tuple[int, int]], int]], wanted: list[int], max_records: int, data: st.DataObject
) -> None:
    """Batches of (partition, stamp), each repeated some times with growing values."""
    model: dict[int, list[Record]] = {0: [], 1: []}

    async def run(path: Path) -> None:
        async with SqliteLog.open(path) as log:
            await log.create_topics({"a": 2})
            for batch, times in batches:
                records = [
                    Record(
                        "a", b"k%d" % (i % 2), b"%d" % i, stamp + i % 3, (("i", b"%d" % (i // 7)),), partition
                    )
                    for i, (partition, stamp) in enumerate(batch * times)
                ]
                await log.append(records)
                for r in records:
                    model[r.partition or 0].append(r)
            ends = {TopicPartition("a", p): len(kept) for p, kept in model.items()}
            assert await log.end_offsets(["a"]) == ends
            for p, kept in model.items():
                for stamp in wanted:
                    expected = next((i for i, r in enumerate(kept) if r.timestamp_ms >= stamp), None)
                    assert await log.offset_for_time(TopicPartition("a", p), stamp) == expected
            start = {tp: data.draw(st.integers(0, end)) for tp, end in ends.items()}
            got: dict[int, list[tuple[object, ...]]] = {0: [], 1: []}
            async with log.subscribe(["a"], start=start) as subscription:
                while some := await subscription.poll(max_records=max_records, timeout_s=0):
                    assert len(some) <= max_records
                    for r in some:
                        got[r.partition].append((r.offset, r.key, r.value, r.timestamp_ms, r.headers))
            for (_, p), first in start.items():
                assert got[p] == [
                    (i, r.key, r.value, r.timestamp_ms, r.headers)
                    for i, r in enumerate(model[p])
                    if i >= first
                ]

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(run, Path(folder) / "log.sqlite")


async def test_look_up_by_time_reads_little_of_a_long_partition(tmp_path: Path) -> None:
    count = CHUNK_RECORDS * 100
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1})
        await log.append([record("a", b"", stamp=i * 10) for i in range(count)])
        conn = sqlite3.connect(log.path)
        ((rows,),) = conn.execute("SELECT count(*) FROM time_index").fetchall()
        conn.close()
        assert rows == (count - 1) // 512
        for offset in range(0, count, 997):
            assert await log.offset_for_time(ZERO, offset * 10) == offset
            assert await log.offset_for_time(ZERO, offset * 10 + 1) == (
                offset + 1 if offset + 1 < count else None
            )
