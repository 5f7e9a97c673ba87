"""MemSkill's bank: items that a model inserts, updates and deletes."""

from __future__ import annotations

from pathlib import Path

from simulator.events import Turn
from tests.foreign.hosts import prompts, running_host, script_for
from tests.models.server import Server, Step


async def test_items_are_inserted_updated_and_deleted(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("memskill"))
    async with running_host("memskill", server, tmp_path) as host:
        memory = await host.memory("lane/0")
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


async def test_an_item_keeps_its_id_in_forks(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("memskill"))
    async with running_host("memskill", server, tmp_path) as host:
        memory = await host.memory("lane/0")
        await memory.ingest(1, "passport is lost")
        fork = await memory.fork("lane/1")
        (changed,) = await fork.ingest(2, "passport is now found")
        assert (changed.id, changed.op) == ("s1/m0", "update")
        (item,) = await memory.search("passport", 5)
        assert item.text.endswith("passport is lost")
        (deleted,) = await memory.ingest(2, "forget passport")
        assert (deleted.id, deleted.op) == ("s1/m0", "delete")
        assert len(await fork.search("passport", 5)) == 1


async def test_all_skills_that_act_are_applied(server: Server, tmp_path: Path) -> None:
    await server.play(script_for("memskill"))
    async with running_host("memskill", server, tmp_path) as host:
        memory = await host.memory("lane/0")
        turns = (Turn(role="user", text="Where is it?"), Turn(role="assistant", text="In the attic."))
        await memory.commit("s1/e0", 1, *turns)
        said = prompts(await server.asked())
        assert "[Skill 8] update" in said
        assert "[Skill 9]" not in said
        assert "(No skills provided)" not in said
        for action in ("INSERT", "UPDATE", "DELETE"):
            assert f"Allowed action: {action}" in said
        assert 'user said, \\"Where is it?\\"\\nassistant said, \\"In the attic.\\"' in said


async def test_an_answer_without_an_action_stores_nothing(server: Server, tmp_path: Path) -> None:
    says = Step(say="There is nothing to remember here.")
    await server.play(script_for("memskill", steps=(Step(), says)))
    async with running_host("memskill", server, tmp_path) as host:
        memory = await host.memory("lane/0")
        assert await memory.ingest(1, "passport is lost") == ()
        assert await memory.search("passport", 5) == []
