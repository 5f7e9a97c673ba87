"""A foreign system as a memory system of ours: states, failures, and a process that dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from adapters.foreign.memory import ForeignMemory
from adapters.memory import Request
from simulator.errors import ConfigError, MemorySystemError, ModelError
from simulator.events import Usage
from tests.adapters.helpers import segment
from tests.foreign.helpers import ToyMemory, interaction, toy_memory, wait_until
from tests.models.server import Script, Server, Step

pytestmark = pytest.mark.usefixtures("toy")

ASKED = Request(text="tea cup", phase="R1", event_time_us=9000)


async def texts(memory: ForeignMemory) -> list[str]:
    return [record.text for record in (await memory.answer(ASKED)).retrieved]


def pid_of(memory: ForeignMemory) -> int:
    process = memory._lane._process
    assert process is not None
    return process.pid


def kill(memory: ForeignMemory) -> None:
    process = memory._lane._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


def folders_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def _asked(memory: ForeignMemory, old: int) -> list[Path]:
    """The folders of memories in a process that has followed the old one."""
    process = memory._lane._process
    folders = memory._lane._folder / "process" / "memories"
    return list(folders.glob("*")) if process is not None and process.pid != old else []


async def test_it_takes_in_answers_and_branches(server: Server, tmp_path: Path) -> None:
    async with toy_memory(server, tmp_path) as memory:
        await memory.prepare()
        delta = await memory.ingest(segment(0, "red tea", "blue cup"))
        assert [record.id for record in delta.records] == ["s0/m0", "s0/m1"]
        assert delta.usage == Usage(prompt_tokens=4, completion_tokens=4, calls=2)
        snapshot = memory.fork()
        await memory.ingest(segment(1, "tea cup"))
        branch, twin = snapshot.fork(), snapshot.fork()
        said = await branch.commit(interaction("e", "cup of tea"))
        assert [record.id for record in said.records] == ["e/m0"]
        answer = await twin.answer(ASKED)
        assert answer.text == "red tea\nblue cup"
        assert await texts(branch) == ["cup of tea", "red tea"]
        assert await texts(memory) == ["tea cup", "red tea"]
        for fork in (snapshot, branch, twin):
            await fork.aclose()
        assert await texts(memory) == ["tea cup", "red tea"]


async def test_a_folder_may_be_named_from_where_the_run_was_started(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs") / "mine"
    (tmp_path / folder).mkdir(parents=True)
    async with toy_memory(server, folder) as memory:
        await memory.ingest(segment(0, "red tea"))
        assert folders_in(tmp_path / folder / "process") == ["home", "memories", "tmp"]


async def test_the_feedback_is_searched_for_too(server: Server, tmp_path: Path) -> None:
    async with toy_memory(server, tmp_path) as memory:
        await memory.ingest(segment(0, "red tea", "a hat", "a coat"))
        told = interaction("e", "tea", "red", "no: hat coat").turns
        asked = Request(text="tea", phase="R_F", history=told, event_time_us=9000)
        assert {record.text for record in (await memory.answer(asked)).retrieved} == {"red tea", "a hat"}


@pytest.mark.parametrize("text", ["fail:milk", "swallow:milk", "die:always"])
async def test_a_failed_change_leaves_the_memory_as_it_was(server: Server, tmp_path: Path, text: str) -> None:
    async with toy_memory(server, tmp_path) as memory:
        await memory.ingest(segment(0, "red tea"))
        await server.play(Script(faults=(Step(does="refuse", status=400),), fault_share=1.0))
        with pytest.raises((MemorySystemError, ModelError)) as failed:
            await memory.ingest(segment(1, text))
        assert "127.0.0.1" not in str(failed.value)
        await server.play(Script())
        assert await texts(memory) == ["red tea"]
        delta = await memory.ingest(segment(2, "tea cup"))
        assert [record.id for record in delta.records] == ["s2/m0"]
        assert await texts(memory) == ["tea cup", "red tea"]


async def test_a_failure_of_the_model_is_the_reason_even_if_the_system_swallows_it(
    server: Server, tmp_path: Path
) -> None:
    async with toy_memory(server, tmp_path) as memory:
        await server.play(Script(faults=(Step(does="refuse", status=400),), fault_share=1.0))
        for text in ("plain", "swallow:milk"):
            with pytest.raises(ModelError, match="400"):
                await memory.ingest(segment(0, text))


async def test_a_process_that_was_killed_comes_back_with_the_same_memories(
    server: Server, tmp_path: Path
) -> None:
    async with toy_memory(server, tmp_path) as memory:
        forks = []
        for number in range(4):
            await memory.ingest(
                segment(number, f"tea number {number}", "change:tea cup" if number == 2 else "x")
            )
            if number % 2:
                forks.append(memory.fork())
        await forks[0].commit(interaction("e", "tea cup two"))
        memories = [memory, *forks]
        before = [(await each.answer(ASKED)).retrieved for each in memories]
        asked = len(await server.asked())
        kill(memory)
        assert [(await each.answer(ASKED)).retrieved for each in memories] == before
        kill(memory)
        delta = await memory.ingest(segment(4, "drop:", "tea cup four"))
        assert [(record.id, record.op) for record in delta.records] == [("s4/m0", "add"), ("s0/m0", "delete")]
        assert [(await each.answer(ASKED)).retrieved for each in forks] == before[1:]
        assert len(await server.asked()) == asked + 1  # all else was in the cache
        for fork in forks:
            await fork.aclose()


async def test_a_call_in_which_the_process_dies_is_made_again(server: Server, tmp_path: Path) -> None:
    async with toy_memory(server, tmp_path) as memory:
        await memory.ingest(segment(0, "red tea"))
        await memory.ingest(segment(1, "die:cup"))
        assert await texts(memory) == ["red tea", "cup"]
        with pytest.raises(MemorySystemError, match="its process ended with exit code 3"):
            await memory.ingest(segment(2, "die:always"))
        assert await texts(memory) == ["red tea", "cup"]


async def test_a_process_may_die_again_while_its_memories_are_built(server: Server, tmp_path: Path) -> None:
    async with toy_memory(server, tmp_path, cache=False) as memory:
        for number in range(3):
            await memory.ingest(segment(number, f"tea {number}"))
        before = await texts(memory)
        pid = pid_of(memory)
        kill(memory)
        await server.play(Script(delay_s=0.3))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(texts, memory)
            await anyio.to_thread.run_sync(wait_until, lambda: len(_asked(memory, pid)) > 0)
            kill(memory)
        assert await texts(memory) == before


async def test_a_memory_that_comes_back_as_another_is_none(server: Server, tmp_path: Path) -> None:
    script = Script(rule="tests.models.rules:drawn")
    async with toy_memory(server, tmp_path, script, cache=False) as memory:
        await memory.ingest(segment(0, "red tea"))
        kill(memory)
        with pytest.raises(MemorySystemError, match="it wrote other records than before its process died"):
            await memory.answer(ASKED)


async def test_the_last_memory_to_be_closed_ends_the_process(server: Server, tmp_path: Path) -> None:
    async with toy_memory(server, tmp_path) as memory:
        await memory.ingest(segment(0, "red tea"))
        fork, pid = memory.fork(), pid_of(memory)
        await memory.aclose()
        assert await texts(fork) == ["red tea"]
        await fork.aclose()
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
        assert not (tmp_path / "process").exists()


async def test_what_nobody_holds_is_not_kept(server: Server, tmp_path: Path) -> None:
    async with toy_memory(server, tmp_path) as memory:
        for number in range(5):
            await memory.ingest(segment(number, "tea"))
            branch = memory.fork()
            await branch.commit(interaction(f"e{number}", "cup"))
            await branch.aclose()
        # the empty one and the last
        wait_until(lambda: len(list((tmp_path / "process" / "memories").iterdir())) == 2)
        lane = memory._lane
        assert len(lane._agents) == 2
        assert lane._gateway._gateway._memories.keys() <= {"it@A1", *(agent.name for agent in lane._agents)}


async def test_options_that_are_none_are_refused(server: Server, tmp_path: Path) -> None:
    async with toy_memory(server, tmp_path) as memory:
        context = memory._context
        for options, says in {
            "colour=red,shape=round": "toy has no option 'shape': there are model, embedder, source, top_k, colour",
            "source=/nowhere": "toy is installed from a registry: leave source= away",
        }.items():
            given = dict(option.split("=") for option in options.split(","))
            with pytest.raises(ConfigError, match=says):
                ToyMemory(context, model="m", **given)
        with pytest.raises(ConfigError, match="toy needs a model: --system toy:model=NAME"):
            ToyMemory(context)


async def test_an_option_that_its_driver_refuses_is_told_without_the_port(
    server: Server, tmp_path: Path
) -> None:
    async with toy_memory(server, tmp_path) as memory:
        lane = memory._lane
        lane._task = lane._task._replace(options={"colour": "none"})
        with pytest.raises(MemorySystemError, match=r"toy/fork: 500 .*there is no such colour") as refused:
            await memory.prepare()
        assert "127.0.0.1" not in str(refused.value)
