"""A-Mem's notes: what its model says about them, the links between them, and how they change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.foreign.hosts import Host, prompts, running_host, script_for
from tests.models.server import Server, Step


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    async with running_host("amem", server, tmp_path_factory.mktemp("amem")) as running:
        yield running


@pytest.fixture
async def system(shared: Host, server: Server) -> Host:
    await server.play(script_for("amem"))
    return shared


async def test_a_new_note_rewrites_its_neighbours(system: Host) -> None:
    memory = await system.memory()
    (passport,) = await memory.ingest(1, "the passport lies in the drawer")
    assert passport.text == (
        "the passport lies in the drawer\ncontext: Told: the passport lies in the drawe\n"
        "keywords: passport, lies, drawer\ntags: told"
    )
    (violin,) = await memory.ingest(2, "the violin needs strings")
    assert (violin.id, violin.op) == ("s2/m0", "add")
    changed = await memory.ingest(3, "the passport expires soon")
    assert [(record.id, record.op) for record in changed] == [("s1/m0", "update"), ("s3/m0", "add")]
    assert "context: Before: the passport expires soon\n" in changed[0].text
    assert "tags: told, linked" in changed[0].text
    assert changed[0].event_time_us == changed[1].event_time_us
    assert memory.held["s2/m0"] == violin


async def test_neighbours_are_shown_with_simulated_times(system: Host, server: Server) -> None:
    memory = await system.memory()
    await memory.ingest(1, "the passport lies in the drawer")
    await memory.ingest(2, "the passport expires soon")
    said = prompts(await server.asked())
    assert "talk start time:200106010801" in said
    asked = [call.body for call in await server.asked() if "messages" in call.body]
    assert {(body["temperature"], body["seed"]) for body in asked} == {(0.0, 7)}


async def test_what_is_linked_is_found_with_what_links_to_it(system: Host) -> None:
    memory = await system.memory(top_k=2)
    await memory.ingest(1, "the harbour smells of diesel")
    await memory.ingest(2, "candles smell of honey")
    await memory.ingest(3, "a harbour pilot climbs aboard")  # linked with the first
    found = await memory.search("pilot climbs aboard", 10)
    assert [record.id for record in found] == ["s3/m0", "s1/m0"]


async def test_links_that_lead_nowhere_are_not_followed(system: Host, server: Server) -> None:
    answer = {
        "should_evolve": True,
        "actions": ["strengthen"],
        "suggested_connections": [0, 7, -1, "first"],
        "tags_to_update": ["told"],
        "new_context_neighborhood": [],
        "new_tags_neighborhood": [],
    }
    says = Step(say=json.dumps(answer))
    memory = await system.memory()
    await memory.ingest(1, "the passport lies in the drawer")
    await server.play(script_for("amem", steps=(Step(), Step(), says)))
    await memory.ingest(2, "the passport expires soon")
    found = await memory.search("passport expires", 10)
    assert [record.id for record in found] == ["s2/m0", "s1/m0"]


async def test_an_answer_that_is_no_json_leaves_the_note_as_it_is(system: Host, server: Server) -> None:
    await server.play(script_for("amem", rule="echo"))
    memory = await system.memory()
    (note,) = await memory.ingest(1, "the passport lies in the drawer")
    assert note.text.startswith("the passport lies in the drawer\ncontext: General\n")


async def test_consolidation_keeps_the_run_s_vectors(system: Host, server: Server) -> None:
    memory = await system.memory()
    for number in range(1, 103):  # each but the first evolves, and the hundredth evolution consolidates
        await memory.ingest(number, f"passport stamp number-{number} {'x' * number}yz")
    calls = [call.body for call in await server.asked() if "input" in call.body]
    assert max(len(call["input"]) for call in calls) == 1
    assert len(calls) > 2 * 102 + 100 - 5
    found = await memory.search("passport stamp", 120)
    assert len(found) == 10
