"""MemSkill's bank: items that a model inserts, updates and deletes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from simulator.events import Turn
from tests.foreign.hosts import Host, prompts, running_host, script_for
from tests.models.server import Server, Step


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    async with running_host("memskill", server, tmp_path_factory.mktemp("memskill")) as running:
        yield running


@pytest.fixture
async def system(shared: Host, server: Server) -> Host:
    await server.play(script_for("memskill"))
    return shared


async def test_items_are_inserted_updated_and_deleted(system: Host) -> None:
    memory = await system.memory()
    added = await memory.ingest(1, "passport is lost", "violin is old")
    assert [(r.id, r.op, r.text) for r in added] == [
        ("s1/m0", "add", "On 2001-06-01 08:01:00: passport is lost"),
        ("s1/m1", "add", "On 2001-06-01 08:01:00: violin is old"),
    ]
    changed = await memory.ingest(2, "passport is now found", "orchids bloom")
    assert {(r.id, r.op, r.text) for r in changed} == {
        ("s1/m0", "update", "On 2001-06-01 08:02:00: passport is now found"),
        ("s2/m0", "add", "On 2001-06-01 08:02:00: orchids bloom"),
    }
    deleted = await memory.ingest(3, "forget violin")
    assert [(r.id, r.op) for r in deleted] == [("s1/m1", "delete")]
    found = await memory.search("the violin or the passport", 5)
    assert [record.id for record in found][:1] == ["s1/m0"]
    assert "s1/m1" not in {record.id for record in found}


async def test_an_item_keeps_its_id_in_forks(system: Host) -> None:
    memory = await system.memory()
    await memory.ingest(1, "passport is lost")
    fork = await memory.fork()
    (changed,) = await fork.ingest(2, "passport is now found")
    assert (changed.id, changed.op) == ("s1/m0", "update")
    (item,) = await memory.search("passport", 5)
    assert item.text.endswith("passport is lost")
    (deleted,) = await memory.ingest(2, "forget passport")
    assert (deleted.id, deleted.op) == ("s1/m0", "delete")
    assert len(await fork.search("passport", 5)) == 1


async def test_all_skills_that_act_are_applied(system: Host, server: Server) -> None:
    memory = await system.memory()
    turns = (Turn(role="user", text="Where is it?"), Turn(role="assistant", text="In the attic."))
    await memory.commit("s1/e0", 1, *turns)
    said = prompts(await server.asked())
    assert "[Skill 8] update" in said
    assert "[Skill 9]" not in said
    assert "(No skills provided)" not in said
    for action in ("INSERT", "UPDATE", "DELETE"):
        assert f"Allowed action: {action}" in said
    assert 'user said, \\"Where is it?\\"\\nassistant said, \\"In the attic.\\"' in said


async def test_its_model_may_say_as_much_as_in_its_authors_evaluation(system: Host, server: Server) -> None:
    memory = await system.memory()
    await memory.ingest(1, "passport is lost")
    asked = [call.body for call in await server.asked() if "messages" in call.body]
    assert [(body["max_tokens"], body["temperature"]) for body in asked] == [(2048, 0.0)]


async def test_an_answer_without_an_action_stores_nothing(system: Host, server: Server) -> None:
    says = Step(say="There is nothing to remember here.")
    await server.play(script_for("memskill", steps=(Step(), says)))
    memory = await system.memory()
    assert await memory.ingest(1, "passport is lost") == ()
    assert await memory.search("passport", 5) == []
