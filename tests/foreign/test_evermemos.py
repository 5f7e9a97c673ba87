"""EverMemOS: what its episodes and its profile become here, and its process for each memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from adapters.foreign.catalogue import catalogue
from simulator.events import Turn
from tests.foreign.hosts import Host, RefusedError, prompts, running_host, script_for
from tests.models.server import CHAT, EMBEDDINGS, Server, Step


def processes(host: Host) -> list[int]:
    """Those of memories, by their ids: what a child of the host has forked."""
    said = subprocess.run(["ps", "-o", "pid=,ppid=", "-g", str(host.pid)], capture_output=True, text=True)
    parents = {int(pid): int(parent) for pid, parent in map(str.split, said.stdout.splitlines())}
    return [pid for pid, parent in parents.items() if parents.get(parent) == host.pid]


async def test_a_session_is_an_episode_with_simulated_times(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("evermemos"))
    async with running_host("evermemos", server, tmp_path) as host:
        memory = await host.memory()
        (record,) = await memory.ingest(1, "the kettle is broken", "the passport lies in the drawer")
        assert record.id == "s1/m0"
        assert record.text.startswith("Told: passport lies drawer [2001-06-01 08:00:5")
        assert "the kettle is broken" in record.text
        said = prompts(await server.asked())
        assert "[2001-06-01 08:00:58] user: the kettle is broken" in said
        turns = (Turn(role="user", text="where is it?"), Turn(role="assistant", text="in the drawer"))
        records = await memory.commit("s1/e0", 2, *turns)
        assert any("assistant" in r.text and "in the drawer" in r.text for r in records)
        bodies = [call.body for call in await server.asked() if call.path.endswith(CHAT)]
        assert {(body["temperature"], body["seed"], body["model"]) for body in bodies} == {
            (0.0, 7, "scripted")
        }


async def test_the_embedding_that_it_opens_with_may_take_longer_than_it_allows(
    server: Server, tmp_path: Path
) -> None:
    await server.play(script_for("evermemos", steps=(Step(delay_s=6.0),)))
    async with running_host("evermemos", server, tmp_path) as host:
        memory = await host.memory()
        assert await memory.ingest(1, "the kettle is broken")
        assert (await server.asked())[0].path.endswith(EMBEDDINGS)


async def test_a_fork_copies_no_version_of_the_index_but_the_newest(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("evermemos"))
    async with running_host("evermemos", server, tmp_path) as host:
        memory = await host.memory()
        for number in range(1, 5):
            memory = await memory.fork()
            await memory.ingest(number, f"the kettle is broken, day {number}")
        assert len(await memory.search("a broken kettle", 20)) == 4
        memory = await memory.fork()
        newest = max(host.directory.glob("memories/*"), key=lambda folder: int(folder.name))
        table = newest / "everos" / ".index" / "lancedb" / "episode.lance"
        versions, indices = [*table.glob("_versions/*.manifest")], [*table.glob("_indices/*")]
        assert 1 <= len(versions) <= 2  # and the one before, which compaction has replaced
        assert indices
        assert all(any(index.iterdir()) for index in indices)
        assert len(await memory.search("a broken kettle", 20)) == 4


async def test_the_profile_is_a_record_that_no_search_finds(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("evermemos"))
    async with running_host("evermemos", server, tmp_path) as host:
        memory = await host.memory()
        for number in range(1, 4):
            await memory.ingest(number, f"the kettle is broken, day {number}")
        (profile,) = [record for record in memory.held.values() if "has a home" in record.text]
        found = await memory.search("a home with a kettle", 20)
        assert len(found) == 3
        assert profile.id not in {record.id for record in found}


async def test_what_is_only_kept_has_no_process_and_one_that_dies_fails_its_call(
    server: Server, tmp_path: Path
) -> None:
    await server.play(script_for("evermemos"))
    folder = tmp_path / ("long" * 30)  # more than the path of a socket may have
    async with running_host("evermemos", server, folder) as host:
        memory = await host.memory()
        assert processes(host) == []
        await memory.ingest(1, "the kettle is broken")
        assert len(processes(host)) == 1
        fork = await memory.fork()
        assert processes(host) == []
        await fork.search("kettle", 20)
        (process,) = processes(host)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(RefusedError, match="its process ended"):
            await fork.search("kettle", 20)
        assert await fork.search("kettle", 20)
        assert await memory.search("kettle", 20)


async def test_an_answer_that_is_no_json_fails_the_call(server: Server, tmp_path: Path) -> None:
    async with running_host("evermemos", server, tmp_path) as host:
        for before in range(3):
            await server.play(
                script_for("evermemos", steps=(*(Step(),) * (before + 1), *(Step(say="no"),) * 9))
            )
            memory = await host.memory()
            with pytest.raises(RefusedError):
                await memory.ingest(1, "the kettle is broken")


async def test_what_its_index_fails_by_is_said(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("evermemos"))
    async with running_host("evermemos", server, tmp_path) as host:
        memory = await host.memory()
        await memory.ingest(1, "the kettle is broken")
        fork = await memory.fork()
        shutil.rmtree(host.directory / "tmp")
        with pytest.raises(RefusedError, match=r"could not index all that it wrote: .*temp dir"):
            await fork.ingest(2, "the passport lies in the drawer")


# The first is the default, by which the other tests search
@pytest.mark.parametrize("method", catalogue()["evermemos"].options["method"].choices[1:])
async def test_methods_are_those_that_need_no_model(method: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for("evermemos"))
    async with running_host("evermemos", server, tmp_path, method=method) as host:
        memory = await host.memory()
        await memory.ingest(1, "the kettle is broken")
        asked = len(await server.asked())
        assert "kettle" in str(await memory.search("the kettle", 2))
        assert all(call.path.endswith(EMBEDDINGS) for call in (await server.asked())[asked:])
