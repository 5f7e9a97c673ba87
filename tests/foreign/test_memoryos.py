"""MemoryOS's levels: a pair of turns on its way from short-term memory to pages, and what is drawn from them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from simulator.events import Turn
from tests.foreign.hosts import START_US, Host, prompts, running_host, script_for
from tests.models.server import Server

FEW = {"short_term_capacity": "2"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    async with running_host("memoryos", server, tmp_path_factory.mktemp("memoryos"), **FEW) as running:
        yield running


@pytest.fixture
async def system(shared: Host, server: Server) -> Host:
    await server.play(script_for("memoryos"))
    return shared


async def test_a_pair_of_turns_is_one_record_from_short_term_memory_on(system: Host, server: Server) -> None:
    memory = await system.memory()
    (turn,) = await memory.ingest(1, "the passport lies in the drawer")
    assert turn.text == (
        "User: the passport lies in the drawer\nAssistant: Noted.\nTime: 2001-06-01 08:00:59"
    )
    await memory.ingest(2, "the violin needs strings")
    assert not [call for call in await server.asked() if "messages" in call.body]
    changed = {record.id: record for record in await memory.ingest(3, "orchids bloom")}
    assert {name: record.op for name, record in changed.items()} == {
        "s1/m0": "update",
        "s3/m0": "add",
        "s3/m1": "add",
    }
    assert changed["s1/m0"].text == f"{turn.text}\nConversation chain overview: [user passport lies]"
    assert (
        changed["s3/m0"].text == "Days with the passport lies in the drawer\nKeywords: passport, lies, drawer"
    )


async def test_the_overview_of_a_chain_is_written_on_all_its_pages(system: Host) -> None:
    memory = await system.memory()
    for number, text in enumerate(("passport lost", "passport found", "passport packed", "done"), 1):
        await memory.ingest(number, text)
    assert memory.held["s1/m0"].text.endswith("overview: [user passport lost] [user passport found]")
    assert memory.held["s2/m0"].text.endswith("overview: [user passport lost] [user passport found]")


async def test_a_chain_goes_on_in_a_fork(system: Host) -> None:
    memory = await system.memory()
    for number, text in enumerate(("passport lost", "passport found", "passport packed"), 1):
        await memory.ingest(number, text)
    fork = await memory.fork()
    assert await fork.ingest(4, "violin lesson") == await memory.ingest(4, "violin lesson")


async def test_a_hot_session_becomes_a_profile_and_knowledge(system: Host) -> None:
    memory = await system.memory(top_k=40)
    for number in range(1, 12):
        await memory.ingest(number, f"dumplings for supper {number}", "and pickled radish")
    profiles = [r for r in memory.held.values() if r.text.startswith("Food Interest ( High )")]
    knowledge = [r for r in memory.held.values() if "(Recorded: 2001-06-01 08:" in r.text]
    assert len(profiles) == 1
    assert any("Assistant took note" in record.text for record in knowledge)
    facts = {record.id for record in knowledge if "dumplings supper" in record.text}
    assert facts
    found = await memory.search("dumplings for supper", 20)
    assert {profiles[0].id, *facts} <= {record.id for record in found}


async def test_kinds_take_turns_and_in_each_the_nearest_is_first(system: Host) -> None:
    memory = await system.memory(top_k=3)
    for number, text in enumerate(("passport lost", "violin lesson", "orchids", "candles"), 1):
        await memory.ingest(number, text)
    found = {asked: await memory.search(asked, 9) for asked in ("passport", "orchids")}
    assert {asked: [_user(record.text) for record in records] for asked, records in found.items()} == {
        "passport": ["candles", "passport lost", "orchids"],  # one as far as the other: the newest is first
        "orchids": ["orchids", "candles"],
    }


async def test_short_term_memory_is_found_however_few_records_are_wanted(
    server: Server, tmp_path: Path
) -> None:
    texts = ("passport lost", "violin lesson", "orchids", "candles", "dumplings", "a parcel", "the kettle")
    await server.play(script_for("memoryos"))
    async with running_host("memoryos", server, tmp_path) as host:
        memory = await host.memory(top_k=1)
        for number, text in enumerate(texts, 1):
            await memory.ingest(number, text)
        found = [await memory.search(text, 9) for text in texts]
    assert [[_user(record.text) for record in records] for records in found] == [[text] for text in texts]


async def test_visits_count_where_they_are_made(system: Host) -> None:
    memory = await system.memory()
    for number in range(1, 5):
        await memory.ingest(number, f"dumplings for supper {number}")
    for _ in range(10):
        await memory.search("dumplings for supper", 5)
    await memory.ingest(5, "dumplings for supper again")
    assert not any("Food Interest" in record.text for record in memory.held.values())


async def test_knowledge_and_sessions_above_their_number_are_deleted(server: Server, tmp_path: Path) -> None:
    options = {**FEW, "mid_term_capacity": "1", "similarity_threshold": "9"}
    await server.play(script_for("memoryos"))
    async with running_host("memoryos", server, tmp_path, **options) as host:
        memory = await host.memory()
        deleted = []
        for number, text in enumerate(("passport lost", "violin lesson", "orchids", "candles"), 1):
            deleted += [r.id for r in await memory.ingest(number, text) if r.op == "delete"]
        assert deleted
        assert not set(deleted) & set(memory.held)


async def test_equal_turns_at_one_time_are_records_each(system: Host) -> None:
    memory = await system.memory()
    same = (Turn(role="user", text="again?"), Turn(role="assistant", text="again"))
    said = await memory.commit("s1/e0", 1, *same, *same)
    assert [record.id for record in said] == ["s1/e0/m0", "s1/e0/m1"]
    for number in range(2, 5):
        await memory.ingest(number, f"candles {number}")
        assert sum("again?" in record.text for record in memory.held.values()) == 2
    assert {memory.held[f"s1/e0/m{place}"].op for place in range(2)} == {"update"}


async def test_a_turn_without_an_answer_is_not_lost(system: Host) -> None:
    memory = await system.memory()
    turns = (
        Turn(role="user", text="Where is it?"),
        Turn(role="assistant", text="In the attic."),
        Turn(role="user", text="Right."),
    )
    said = await memory.commit("s1/e0", 1, *turns)
    assert [record.text.rpartition("\n")[0] for record in said] == [
        "User: Where is it?\nAssistant: In the attic.",
        "User: Right.\nAssistant: Noted.",
    ]
    assert {record.event_time_us for record in said} == {START_US + 60_000_000}
    for number in range(2, 8):
        await memory.ingest(number, f"candles {number}")
    assert any(record.text.startswith("User: Right.") for record in memory.held.values())


async def test_one_text_is_embedded_once_a_call(system: Host, server: Server) -> None:
    memory = await system.memory()
    for number in range(1, 12):
        await memory.ingest(number, f"dumplings for supper {number}")
    await server.play(script_for("memoryos"))
    await memory.search("dumplings", 20)
    assert len(await server.asked()) == 1
    assert "dumplings" in prompts(await server.asked())


def _user(text: str) -> str:
    """What the user said in a pair of turns."""
    return text.split("\n")[0].removeprefix("User: ")
