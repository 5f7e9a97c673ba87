from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from adapters.memory import Interaction, Request
from adapters.registry import capabilities, open_system
from consumers.directories import copy_directory
from simulator.events import Turn
from tests.adapters.helpers import context, segment


async def test_the_example_of_one_s_own_memory_system_works() -> None:
    spec = "own=examples.own_memory:LongestLines:per_segment=2"
    assert not capabilities(spec).privileged
    system = open_system(spec, context(top_k=1))
    delta = await system.ingest(segment(0, "tea", "I look for the blue key", "the dog likes rain"))
    assert [r.text for r in delta.records] == ["I look for the blue key", "the dog likes rain"]
    fork = system.fork()
    turns = (Turn(role="user", text="where is my cup?"), Turn(role="assistant", text="on the shelf"))
    await fork.commit(Interaction(id="i0", turns=turns, event_time_us=9))
    question = Request(text="where is my cup?", phase="R2")
    assert "shelf" in (await fork.answer(question)).text
    assert "shelf" not in (await system.answer(question)).text


async def test_the_example_of_a_memory_on_disk_is_one_after_a_copy(tmp_path: Path) -> None:
    spec = "disk=examples.directory_memory:NotesOnDisk"
    assert capabilities(spec).fork == "copy"
    (tmp_path / "main").mkdir()
    system: Any = open_system(spec, replace(context(top_k=1), directory=tmp_path / "main"))
    await system.ingest(segment(0, "tea", "I look for the blue key"))
    await system.flush()
    await copy_directory(system.directory, tmp_path / "copy")
    branch = open_system(spec, replace(context(top_k=1), directory=tmp_path / "copy"))
    question = Request(text="where is my blue cup?", phase="R2")
    assert await branch.answer(question) == await system.answer(question)
    turns = (Turn(role="user", text="where is my blue cup?"), Turn(role="assistant", text="on the shelf"))
    await branch.commit(Interaction(id="i0", turns=turns, event_time_us=9))
    await system.ingest(segment(1, "my blue cup is in the sink"))
    assert "shelf" in (await branch.answer(question)).text
    assert "sink" in (await system.answer(question)).text
    await branch.aclose()
    await system.aclose()
