"""What every foreign system has to do, each for real: in its own environment, from its own source where it lies in a
checkout, on a model server that answers its prompts by rule."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from simulator.events import MemoryRecord, Turn
from tests.foreign.hosts import (
    MINUTE_US,
    START_US,
    Memory,
    RefusedError,
    checkout,
    memory_of,
    prompts,
    running_host,
    script_for,
)
from tests.models.server import Does, Server, Step

NAMES = ("amem", "memoryos", "memskill", "memos", "memos:memory=general_text", "evermemos")
pytestmark = pytest.mark.parametrize("name", NAMES)

DAYS = (
    ("Alice: my passport lies in the drawer", "Jake: the kettle is broken"),
    ("Alice: we cook dumplings tonight",),
    ("Jake: the violin lesson starts early",),
    ("Alice: somebody watered the orchids", "Jake: nobody did"),
    ("Jake: passport control takes long",),
    ("Alice: a parcel with candles arrived",),
    ("Jake: the violin needs strings", "Alice: the orchids bloom"),
    ("Alice: dumplings again, please",),
    ("Jake: candles smell of honey",),
)


async def live(memory: Memory) -> list[tuple[MemoryRecord, ...]]:
    return [await memory.ingest(number, *texts) for number, texts in enumerate(DAYS, 1)]


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def refusal(memory: Memory) -> str:
    """Why it did not take in another segment; empty where it did."""
    try:
        await memory.ingest(10, "Alice: the telescope stands upstairs")
    except RefusedError as refused:
        return str(refused)
    return ""


def texts(held: Mapping[str, MemoryRecord]) -> str:
    return "\n".join(record.text for record in held.values())


async def test_what_was_ingested_is_found_as_its_delta_named_it(
    name: str, server: Server, tmp_path: Path
) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path) as host:
        memory = await host.memory("lane/0")
        await live(memory)
        found = await memory.search("who has watered the orchids", 20)
        assert "orchids" in "\n".join(record.text for record in found[:3])
        assert len({record.id for record in found}) == len(found) <= 10
        assert [record.score for record in found] == sorted((r.score for r in found), reverse=True)
        for record in found:
            said = memory.held[record.id]
            assert (record.text, record.event_time_us) == (said.text, said.event_time_us)
            assert record.event_time_us <= START_US + 9 * MINUTE_US
        assert memory.stored_bytes > len(texts(memory.held).encode())


async def test_the_number_of_records_that_are_found_is_the_one_asked_for(
    name: str, server: Server, tmp_path: Path
) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path, top_k=3) as host:
        memory = await host.memory("lane/0")
        assert await memory.search("anything", 1) == []
        await live(memory)
        assert len(await memory.search("the passport in the drawer", 20)) == 3


async def test_conversations_are_taken_in(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path) as host:
        memory = await host.memory("lane/0")
        await live(memory)
        turns = (
            Turn(role="user", text="Where is the telescope?"),
            Turn(role="assistant", text="In the attic."),
            Turn(role="user", text="Not quite: the telescope is in the cellar."),
            Turn(role="assistant", text="The telescope is in the cellar."),
            Turn(role="user", text="Right."),
        )
        said = await memory.commit("s9/e0", 12, *turns)
        assert "cellar" in "\n".join(record.text for record in said)
        assert all(record.event_time_us == START_US + 12 * MINUTE_US for record in said)
        found = await memory.search("the telescope in the cellar", 20)
        assert any("cellar" in record.text and record.id.startswith("s9/e0/") for record in found)


async def test_forks_are_isolated_both_ways(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path, top_k=40) as host:
        memory = await host.memory("lane/0")
        await live(memory)
        before = await memory.search("telescope orchids passport", 20)
        fork = await memory.fork("lane/1")
        assert await fork.search("telescope orchids passport", 20) == before
        for number in range(10, 14):
            await fork.ingest(number, f"Alice: the telescope stands upstairs, night {number}")
        assert await memory.search("telescope orchids passport", 20) == before
        for number in range(10, 14):
            await memory.ingest(number, f"Jake: the submarine surfaced, passport {number}")
        assert "submarine" not in str(await fork.search("submarine telescope", 20))
        assert "telescope" not in str(await memory.search("submarine telescope", 20))
        assert "submarine" in texts(memory.held)
        assert "submarine" not in texts(fork.held)


async def test_a_search_changes_nothing(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path) as host:
        asked, unasked = await host.memory("lane/0"), await host.memory("lane/1")
        for number, observations in enumerate(DAYS, 1):
            for question in ("the passport", "the orchids", "the violin"):
                await asked.search(question, number)
            deltas = [await memory.ingest(number, *observations) for memory in (asked, unasked)]
            assert deltas[0] == deltas[1]


async def test_a_memory_that_is_built_again_is_the_same(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for(name))
    deltas, found = [], []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        async with running_host(name, server, tmp_path / folder) as host:
            memory = await host.memory("lane/0")
            deltas.append(await live(memory))
            found.append(await memory.search("the orchids bloom", 20))
    assert deltas[0] == deltas[1]
    assert found[0] == found[1]


async def test_no_prompt_text_or_file_holds_the_wall_clock(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path) as host:
        memory = await host.memory("lane/0")
        await live(memory)
        found = await memory.search("the orchids", 20)
        year = datetime.now(UTC).year
        clock = re.compile(rf"\b{year}[-/]?[01]\d[-/]?[0-3]\d|\b[A-Z][a-z]+ \d+, {year}\b")
        said = prompts(await server.asked())
        written = [
            path.read_bytes().decode("latin-1") for path in host.directory.rglob("*") if path.is_file()
        ]
        for text in (said, texts(memory.held), str(found), *written):
            assert not clock.search(text)
        assert re.search("2001-?06-?01", said + texts(memory.held))


async def test_all_that_is_written_is_in_the_folder_and_no_log_holds_what_was_lived(
    name: str, server: Server, tmp_path: Path
) -> None:
    await server.play(script_for(name))
    source = checkout(name) or tmp_path / "nothing"
    before = {path.name for path in source.rglob("*")}
    async with running_host(name, server, tmp_path) as host:
        memory = await host.memory("lane/0")
        await live(memory)
        await memory.search("the passport", 20)
        assert files_of(tmp_path) == {"host", "host.log"}
        assert "passport" not in host.log.read_text()
    assert {path.name for path in source.rglob("*")} == before


async def test_memories_that_are_called_at_once_never_mix(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for(name, delay_s=0.005))
    topics = ("violin", "orchids", "passport", "candles", "dumplings", "telescope")
    async with running_host(name, server, tmp_path) as host:
        memories = {topic: await host.memory(topic) for topic in topics}

        async def fill(topic: str) -> None:
            for number in range(1, 9):
                await memories[topic].ingest(number, f"Alice: {topic} {topic}-{number} again")
                await memories[topic].search(topic, number)

        async with anyio.create_task_group() as tasks:
            for topic in topics:
                tasks.start_soon(fill, topic)
        for call in await server.asked():
            others = set(topics) - {memory_of(call.path)}
            assert not any(other in prompts([call]) for other in others)
        for topic, memory in memories.items():
            assert not any(other in texts(memory.held) for other in set(topics) - {topic})
            assert all(f"{topic}-{number} " in texts(memory.held) for number in range(1, 9))


async def test_a_model_that_is_down_fails_the_call_at_once_and_leaves_no_trace(
    name: str, server: Server, tmp_path: Path
) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path, top_k=40) as host:
        memory = await host.memory("lane/0")
        await live(memory)
        down = Step(does="refuse", status=503, message="out of order")
        for answered in range(4):
            fork = await memory.fork(f"lane/{answered + 1}")
            steps = (Step(),) * answered
            await server.play(script_for(name, steps=steps, faults=(down,), fault_share=1.0))
            began = time.monotonic()
            said = await refusal(fork)
            assert time.monotonic() - began < 5
            assert said.startswith("500: ") if len(await server.asked()) > answered else not said
            assert ("out of order" in said) == bool(said)
        await server.play(script_for(name, faults=(down,), fault_share=1.0))
        with pytest.raises(RefusedError, match="out of order"):
            await memory.search("the telescope", 20)
        await server.play(script_for(name))
        await memory.ingest(10, "Alice: the telescope stands upstairs")
        found = await memory.search("the telescope", 20)
        assert "telescope" in str(found)
        assert "Error" not in texts(memory.held)


@pytest.mark.parametrize("does", ["wrong_shape", "not_json"])
async def test_an_answer_of_another_shape_fails_the_call(
    name: str, does: Does, server: Server, tmp_path: Path
) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path) as host:
        memory = await host.memory("lane/0")
        await live(memory)
        await server.play(script_for(name, faults=(Step(does=does),), fault_share=1.0))
        with pytest.raises(RefusedError):
            await memory.ingest(10, "Alice: the telescope stands upstairs")


async def test_many_segments(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path) as host:
        memory = await host.memory("lane/0")
        for number in range(1, 121):
            await memory.ingest(number, f"Alice: item-{number} was counted", f"Jake: and {number} more")
        assert all(f"item-{number} " in texts(memory.held) for number in range(1, 121))
        fork = await memory.fork("lane/1")
        assert await fork.search("item-60 was counted", 130) == await memory.search(
            "item-60 was counted", 130
        )


async def test_options_that_mean_nothing_are_refused(name: str, server: Server, tmp_path: Path) -> None:
    async with running_host(name, server, tmp_path, options={"unit": "sentence"}) as host:
        with pytest.raises(RefusedError, match="unit must be segment or observation, not 'sentence'"):
            await host.memory("lane/0")


async def test_observations_one_by_one(name: str, server: Server, tmp_path: Path) -> None:
    await server.play(script_for(name))
    async with running_host(name, server, tmp_path, options={"unit": "observation"}) as host:
        memory = await host.memory("lane/0")
        await memory.ingest(1, "Alice: the orchids bloom", "Jake: the kettle is broken")
        told = [record.text for record in memory.held.values()]
        assert sum("orchids" in text for text in told) == sum("kettle" in text for text in told) == 1
        assert not any("orchids" in text and "kettle" in text for text in told)
