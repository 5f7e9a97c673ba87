from __future__ import annotations

from adapters.memory import Interaction, Request
from adapters.registry import capabilities, open_system
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
