"""MemOS's two kinds of memory: what its model is asked, what is found, and the server under one of them."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread
import pytest

from simulator.events import Turn
from tests.foreign.helpers import wait_until
from tests.foreign.hosts import Host, RefusedError, prompts, running_host, script_for
from tests.models.server import CHAT, EMBEDDINGS, Server, Step

TREE, GENERAL = "memos", "memos:memory=general_text"
both = pytest.mark.parametrize("name", [TREE, GENERAL])


def databases(host: Host) -> int:
    """How many there are beside those that a new server has."""
    return len(list((postgres(host) / "base").iterdir())) - 3


def postgres(host: Host) -> Path:
    return host.directory / "memories" / "postgres"


def postmaster(host: Host) -> int:
    return int((postgres(host) / "postmaster.pid").read_text().split()[0])


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@both
async def test_each_line_has_its_simulated_time_and_each_memory_a_record(
    name: str, server: Server, tmp_path: Path
) -> None:
    await server.play(script_for("memos"))
    async with running_host(name, server, tmp_path) as host:
        memory = await host.memory()
        records = await memory.ingest(1, "the kettle is broken", "the passport lies in the drawer")
        assert [(record.id, record.text) for record in records] == [
            ("s1/m0", "On 2001-06-01 08:00:58 the user said: the kettle is broken"),
            ("s1/m1", "On 2001-06-01 08:00:59 the user said: the passport lies in the drawer"),
        ]
        turns = (Turn(role="user", text="where is it?"), Turn(role="assistant", text="in the drawer"))
        records = await memory.commit("s1/e0", 2, *turns)
        assert [record.text for record in records] == [
            "On 2001-06-01 08:02:00 the user said: where is it?",
            "On 2001-06-01 08:02:00 the assistant said: in the drawer",
        ]
        asked = [call.body for call in await server.asked() if "messages" in call.body]
        assert len(asked) == 2
        assert {(body["temperature"], body["seed"], body["model"]) for body in asked} == {
            (0.0, 7, "scripted")
        }


async def test_a_long_segment_is_read_in_windows(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("memos"))
    async with running_host(TREE, server, tmp_path) as host:
        memory = await host.memory()
        await memory.ingest(
            1, *(f"observation {number} of a long day, told at length" for number in range(200))
        )
        calls = [call for call in await server.asked() if call.path.endswith(CHAT)]
        assert len(calls) > 2
        assert all(f"observation {number} " in prompts(calls) for number in range(200))


async def test_pieces_of_a_segment_keep_their_order_whichever_is_read_first(
    server: Server, tmp_path: Path
) -> None:
    await server.play(script_for("memos", steps=(Step(delay_s=0.5),)))
    async with running_host(TREE, server, tmp_path) as host:
        memory = await host.memory()
        records = await memory.ingest(1, *(f"observation {number} of a day" for number in range(30)))
        told = [int(record.text.split()[7]) for record in records]
        pieces = (range(10), range(8, 18), range(16, 26), range(24, 30))
        assert told == [number for piece in pieces for number in piece]
        paths = [call.path for call in await server.asked()]
        assert sum(path.endswith(CHAT) for path in paths) == len(pieces)
        assert sum(path.endswith(EMBEDDINGS) for path in paths) == 1


async def test_memories_of_both_kinds_are_found_by_how_near_they_are(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("memos"))
    async with running_host(TREE, server, tmp_path) as host:
        memory = await host.memory(top_k=3)
        for number in range(1, 30):
            await memory.ingest(number, f"noise {number} about weather", f"more noise {number} about traffic")
        await memory.ingest(30, "the violin needs strings", "strings for the violin were bought")
        found = await memory.search("violin strings", 40)
        assert [record.id for record in found[:2]] in (["s30/m0", "s30/m1"], ["s30/m1", "s30/m0"])
        assert found[0].score > found[2].score


async def test_its_server_keeps_what_is_open_and_ends_with_the_process(
    server: Server, tmp_path: Path
) -> None:
    await server.play(script_for("memos"))
    async with running_host(TREE, server, tmp_path) as host:
        memory = await host.memory()
        await memory.ingest(1, "the kettle is broken")
        pid = postmaster(host)
        assert runs(pid)
        forks = [await memory.fork() for _ in range(3)]
        assert databases(host) == 4
        for fork in forks:
            await host.call("/close", memory=fork.name)
        await anyio.to_thread.run_sync(wait_until, lambda: databases(host) == 1)
    assert not runs(pid)


async def test_its_server_ends_with_a_process_that_is_killed(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("memos"))
    async with running_host(TREE, server, tmp_path) as host:
        await host.memory()
        pid = postmaster(host)
        os.kill(host.pid, 9)
        await anyio.to_thread.run_sync(wait_until, lambda: not runs(pid))


@both
async def test_an_answer_that_is_no_json(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for("memos", steps=(Step(say="I'd rather not."),)))
    async with running_host(name, server, tmp_path) as host:
        memory = await host.memory()
        if name == GENERAL:
            with pytest.raises(RefusedError, match="memory list"):
                await memory.ingest(1, "the kettle is broken")
        else:  # it keeps what was said instead
            (record,) = await memory.ingest(1, "the kettle is broken")
            assert "user: [2001-06-01 08:00:59]: the kettle is broken" in record.text


async def test_what_its_reader_stumbles_over_fails_the_call(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("memos", steps=(Step(say='{"memory list": null}'),)))
    async with running_host(TREE, server, tmp_path) as host:
        memory = await host.memory()
        with pytest.raises(RefusedError, match="TypeError"):
            await memory.ingest(1, "the kettle is broken")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="its socket needs /proc to have a long path")
async def test_the_socket_of_its_server_is_in_its_folder_also_where_the_path_is_long(
    server: Server, tmp_path: Path
) -> None:
    await server.play(script_for("memos"))
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    async with running_host(TREE, server, folder) as host:
        memory = await host.memory()
        await memory.ingest(1, "the kettle is broken")
        assert [record.text for record in await memory.search("kettle", 2)]
        assert (postgres(host) / ".s.PGSQL.5432").is_socket()
