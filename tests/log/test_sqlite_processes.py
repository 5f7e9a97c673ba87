"""The SQLite log among processes: real ones that append, read, wait, share a group, and are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import FencedError
from simulator.log import SqliteLog, TopicPartition, sqlite_groups, wakeup
from tests.conftest import ROOT
from tests.log.helpers import DEADLINE_S, integrity, places, read, record, settle, values

ZERO = TopicPartition("a", 0)


class Worker:
    """A process of `tests.log.worker` and what it says."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._text = TextReceiveStream(process.stdout)
        self._buffer = ""

    async def line(self) -> str:
        while "\n" not in self._buffer:
            self._buffer += await self._text.receive()
        line, _, self._buffer = self._buffer.partition("\n")
        return line

    async def rest(self) -> list[str]:
        with suppress(anyio.EndOfStream):
            while True:
                self._buffer += await self._text.receive()
        return self._buffer.splitlines()


@asynccontextmanager
async def worker(role: str, path: Path, argument: str = "") -> AsyncIterator[Worker]:
    command = [sys.executable, "-m", "tests.log.worker", role, str(path), argument]
    with anyio.fail_after(DEADLINE_S):
        async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
            started = Worker(process)
            try:
                assert (await started.line()).startswith("ready")
                yield started
            finally:
                with suppress(ProcessLookupError):
                    process.kill()


# --- processes --------------------------------------------------------------------------------------------


async def test_processes_append_and_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with SqliteLog.open(path) as log:
        await log.create_topics({"a": 1})
        async with (
            worker("write_some", path, "one") as one,
            worker("write_some", path, "two") as two,
            log.subscribe(["a"]) as subscription,
        ):
            got = await read(subscription, 2000)
            assert await one.process.wait() == await two.process.wait() == 0
        assert [r.offset for r in got] == list(range(2000))
        by_writer = defaultdict(list)
        for value in values(got):
            name, number, i = value.split()
            by_writer[name].append((int(number), int(i)))
        assert dict(by_writer) == {
            name: [(number, i) for number in range(50) for i in range(20)] for name in (b"one", b"two")
        }
    assert integrity(path) == "ok"


async def test_killing_a_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    acknowledged = []
    for life in range(3):
        async with worker("write", path, str(life)) as writer:
            while int(last := await writer.line()) < 20:
                pass
            writer.process.send_signal(signal.SIGKILL)
            last = (await writer.rest() or [last])[-1]
            acknowledged.append(int(last))
    async with SqliteLog.open(path, create=False) as log:
        total = (await log.end_offsets(["a"]))[ZERO]
        async with log.subscribe(["a"]) as subscription:
            got = await read(subscription, total)
            await log.append([record("a", b"next")])
            assert [r.offset for r in await read(subscription, 1)] == [total]
    assert [r.offset for r in got] == list(range(total))
    assert total % 20 == 0
    for life, last in enumerate(acknowledged):
        mine = [tuple(map(int, v.split()[1:])) for v in values(got) if v.startswith(b"%d " % life)]
        assert mine == [(number, i) for number in range(len(mine) // 20) for i in range(20)]
        assert len(mine) // 20 >= last + 1
    assert integrity(path) == "ok"


async def test_a_killed_member_leaves_its_partitions_to_the_others(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with SqliteLog.open(path) as log:
        await log.create_topics({"a": 2})
        async with log.subscribe(["a"], group="g") as survivor:
            async with worker("join", path, "g") as other:
                await log.append([record("a", b"%d" % p, partition=p) for p in (0, 1)])
                while len(survivor.assignment) != 1:
                    await survivor.poll(timeout_s=0.01)
                other.process.send_signal(signal.SIGKILL)
                await other.process.wait()
                await settle([survivor], places(a=2))
            assert {await survivor.position(tp) for tp in places(a=2)} <= {0, 1}


async def test_another_process_is_woken_without_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.sqlite"
    monkeypatch.setattr(wakeup, "SAFETY_NET_S", 3600.0)
    async with SqliteLog.open(path) as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"]) as subscription, worker("write_some", path, "w"):
            with anyio.fail_after(DEADLINE_S):
                got = []
                while len(got) < 1000:
                    got += await subscription.poll(timeout_s=3600)


async def test_writers_wake_readers_of_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with SqliteLog.open(path) as log, worker("echo", path) as reader:
        for number in range(20):
            await log.append([record("a", b"%d" % number)])
            assert await reader.line() == str(number)
        reader.process.kill()
        await reader.process.wait()
        stale = len(os.listdir(log.wakeup_folder))
        await log.append([record("a", b"nobody")])
        assert (stale, os.listdir(log.wakeup_folder)) == (1, [])


async def test_many_openers_of_a_new_file_agree(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"

    async def use(name: int) -> None:
        async with SqliteLog.open(path) as log:
            await log.create_topics({"a": 1})
            await log.append([record("a", b"%d" % name)])

    async def use_elsewhere() -> None:
        async with worker("write_some", path, "w") as other:
            assert await other.process.wait() == 0

    async with anyio.create_task_group() as tasks:
        for name in range(8):
            tasks.start_soon(use, name)
        for _ in range(2):
            tasks.start_soon(use_elsewhere)
    async with SqliteLog.open(path) as log:
        assert await log.end_offsets(["a"]) == {ZERO: 8 + 2 * 1000}


# --- wake-up ----------------------------------------------------------------------------------------------


async def test_each_of_many_waiting_tasks_is_woken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "SAFETY_NET_S", 3600.0)
    rounds, readers = 30, 5
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1, "turn": 1})

        async def answer(name: int) -> None:
            async with log.subscribe(["turn"]) as turns:
                for _ in range(rounds):
                    await turns.poll(max_records=1, timeout_s=3600)
                    await log.append([record("a", b"%d" % name)])

        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks, log.subscribe(["a"]) as answers:
                for name in range(readers):
                    tasks.start_soon(answer, name)
                for _ in range(rounds):
                    await log.append([record("turn", b"")])
                    got = 0
                    while got < readers:
                        got += len(await answers.poll(timeout_s=3600))


async def test_only_readers_of_the_topic_are_woken(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1, "b": 1})
        assert not wakeup.interest_of(["a"]) & wakeup.interest_of(["b"])
        listener = wakeup.Listener(log.wakeup_folder, ["a"])
        try:
            await log.append([record("b", b"x")])
            with pytest.raises(BlockingIOError):
                listener._socket.recv(1)
            await log.append([record("a", b"x")])
            assert listener._socket.recv(1) == b"\0"
        finally:
            listener.close()
        assert not log.wakeup_folder.exists()


async def test_a_long_temporary_directory_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    async with SqliteLog.open(tmp_path / "log.sqlite") as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"]) as subscription:
            await log.append([record("a", b"x")])
            assert values(await read(subscription, 1)) == [b"x"]
        assert os.listdir(long) == []


# --- groups -----------------------------------------------------------------------------------------------


async def test_a_member_that_does_not_poll_is_expelled_and_can_come_back(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    async with SqliteLog.open(path, max_poll_interval_s=0.5) as log, SqliteLog.open(path) as other:
        await log.create_topics({"a": 2})
        await log.append([record("a", b"%d" % i, partition=i % 2) for i in range(4)])
        async with log.subscribe(["a"], group="g") as idle:
            assert len(await read(idle, 4)) == 4
            async with other.subscribe(["a"], group="g") as busy:
                await settle([busy], places(a=2))
                with pytest.raises(FencedError):
                    await idle.commit()
                log.max_poll_interval_s = DEADLINE_S  # it comes back to stay
                await busy.commit(dict.fromkeys(places(a=2), 1))
                got = await settle([idle, busy], places(a=2))
                (mine,) = idle.assignment
                got += await read(idle, 1 - len([r for r in got if r.partition == mine.partition]))
                assert [r.offset for r in got if r.partition == mine.partition] == [1]


@given(members=st.integers(1, 40), partitions=st.integers(1, 100))
def test_ranges_cover_all_partitions_evenly(members: int, partitions: int) -> None:
    owners = sqlite_groups.assign(list(range(members)), partitions)
    assert owners == sorted(owners)
    assert len(owners) == partitions
    counts = [owners.count(member) for member in range(members)]
    assert max(counts) - min(counts) <= 1


def test_a_process_is_known_by_more_than_its_id() -> None:
    mine = sqlite_groups.this_process()
    assert not sqlite_groups._is_gone(mine)
    reused = mine.rsplit("|", 1)[0] + "|1"
    assert sqlite_groups._is_gone(reused)
    assert sqlite_groups._is_gone("another boot" + mine[mine.index("|") :])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells zombies by /proc")
def test_a_killed_child_that_nobody_waited_for_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        machine = sqlite_groups.this_process().split("|")[:2]
        process = "|".join([*machine, str(child.pid), sqlite_groups._started(child.pid)])
        assert not sqlite_groups._is_gone(process)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert sqlite_groups._is_gone(process)
