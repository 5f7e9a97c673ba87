"""Mem0 itself, in its own environment (`egostream systems install mem0`)."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.foreign.catalogue import known
from adapters.foreign.environment import installed
from adapters.foreign.memory import ForeignMemory, foreign_systems
from adapters.memory import Request
from simulator.errors import ModelError
from simulator.events import MemoryRecord
from tests.adapters.helpers import segment
from tests.conftest import skip_without
from tests.foreign.helpers import interaction, lane_memory
from tests.foreign.test_memory import kill
from tests.models.server import Script, Server, Step

RULE = Script(rule="tests.foreign.rules:mem0")
ASKED = Request(text="where is the tea cup", phase="R1", event_time_us=9000)


@pytest.fixture(scope="module")
def mem0() -> type[ForeignMemory]:
    if installed(known("mem0")) is None:
        skip_without("systems", "mem0 is not installed: egostream systems install mem0")
    return foreign_systems()["mem0"]


async def test_facts_are_added_under_stable_names_and_dated_by_the_stream(
    mem0: type[ForeignMemory], server: Server, tmp_path: Path
) -> None:
    async with lane_memory(mem0, server, tmp_path, RULE) as memory:
        first = await memory.ingest(segment(0, "the tea cup is red", "Jake left"))
        assert first.records == (
            MemoryRecord(id="s0/m0", text="the tea cup is red", event_time_us=1),
            MemoryRecord(id="s0/m1", text="Jake left", event_time_us=1),
        )
        assert first.usage.calls == 1
        assert first.stored_bytes == len("the tea cup is redJake left") + 2 * 4 * 16
        again = await memory.ingest(segment(1, "Jake left"))
        assert again.records == ()  # the same text is not kept twice
        found = (await memory.answer(ASKED)).retrieved
        assert [record.id for record in found] == ["s0/m0", "s0/m1"]
        prompts = [call.body["messages"][-1]["content"] for call in await server.asked()]
    today = datetime.now(UTC).date().isoformat()
    for prompt in prompts:
        assert re.findall(r"## (Observation|Current) Date\n(\S+)", prompt) == [
            ("Observation", "1970-01-01"),
            ("Current", "1970-01-01"),
        ]
        assert today not in prompt
    assert not (tmp_path / "process").exists()


def kept_at(folder: Path) -> list[str]:
    """When the messages of all its memories were kept."""
    kept: list[str] = []
    for path in folder.glob("process/memories/*/history.db"):
        with closing(sqlite3.connect(path)) as database:
            kept += (at for (at,) in database.execute("SELECT created_at FROM messages"))
    return kept


async def test_messages_are_kept_under_simulated_times_and_the_last_ones_are_shown(
    mem0: type[ForeignMemory], server: Server, tmp_path: Path
) -> None:
    async with lane_memory(mem0, server, tmp_path, RULE) as memory:
        await memory.ingest(segment(0, "the tea cup is red"))
        for number in range(9):  # of one time
            await memory.commit(interaction(f"e{number}", f"question {number}", f"answer {number}"))
        prompt = [call.body for call in await server.asked() if "messages" in call.body][-1]["messages"][-1]
        kept = kept_at(tmp_path)
    last = re.findall(r"^\w+: (\w+ \d)$", prompt["content"].partition("## Recently")[0], re.MULTILINE)
    assert last == [f"{what} {number}" for number in range(3, 8) for what in ("question", "answer")]
    assert len(kept) >= 10
    assert all(at.startswith("1970-01-01T00:00:00") for at in kept)


async def test_of_the_last_segment_the_first_ten_messages_are_shown(
    mem0: type[ForeignMemory], server: Server, tmp_path: Path
) -> None:
    async with lane_memory(mem0, server, tmp_path, RULE) as memory:
        await memory.ingest(segment(0, *(f"cup {number}" for number in range(12))))
        await memory.ingest(segment(1, "Jake left"))
        prompt = [call.body for call in await server.asked() if "messages" in call.body][-1]["messages"][-1]
    shown = prompt["content"].partition("## Last k Messages")[2].partition("## Recently")[0]
    assert re.findall(r"cup \d+", shown) == [f"cup {number}" for number in range(10)]


async def test_a_branch_and_what_fails_leave_the_memory_alone_also_when_it_is_built_again(
    mem0: type[ForeignMemory], server: Server, tmp_path: Path
) -> None:
    async with lane_memory(mem0, server, tmp_path, RULE) as memory:
        for number in range(3):
            await memory.ingest(segment(number, f"the tea cup {number}", f"hat {number}"))
        branch = memory.fork()
        said = await branch.commit(interaction("e", "where is the tea cup", "on the shelf"))
        assert [record.id for record in said.records] == ["e/m0", "e/m1"]
        await server.play(Script(faults=(Step(does="refuse", status=400),), fault_share=1.0))
        with pytest.raises(ModelError, match="400"):
            await memory.ingest(segment(3, "milk"))
        before = [(await each.answer(ASKED)).retrieved for each in (memory, branch)]
        kill(memory)
        assert [(await each.answer(ASKED)).retrieved for each in (memory, branch)] == before
        await branch.aclose()
    assert before[0] != before[1]
