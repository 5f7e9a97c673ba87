"""The graph memory: what it asks, writes and finds, and what becomes of a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.endpoints import Models, ModelSettings
from adapters.memory import Interaction, Request
from adapters.model import Ask
from adapters.prompt import ADAPTER_PROMPTS, PromptLanguage, load_prompt
from adapters.registry import capabilities, open_system
from adapters.systems.graph import GRAPH_EXTRACT_PROMPT, GRAPH_SUMMARY_PROMPT, GraphMemory
from simulator.errors import ConfigError, EncoderError, ModelError
from simulator.events import MemoryRecord, Turn, Usage
from tests.adapters.helpers import HashEmbedder, context, segment
from tests.models.fakes import FakeModel, Says, down
from tests.models.server import Script, scripted_server

THEN = "[1970-01-01 00:00:00]"


def section(ask: Ask, name: str) -> str:
    return ask.messages[1].content.partition(f"<{name}>\n")[2].partition(f"\n</{name}>")[0]


def found(*entities: str, relations: tuple[str, ...] = ()) -> str:
    """Entities as `name/type/description`, relations as `source/target/description`."""
    return json.dumps(
        {
            "entities": [
                dict(zip(("name", "type", "description"), e.split("/"), strict=True)) for e in entities
            ],
            "relations": [
                dict(zip(("source", "target", "description"), r.split("/"), strict=True)) for r in relations
            ],
        }
    )


def lives(ask: Ask) -> str:
    """`NAME in PLACE`, a line each, is a person, a place and the relation between them."""
    pairs = [line.split(": ")[-1].split(" in ") for line in section(ask, "chunk").splitlines()]
    return found(
        *(f"{name}/person/{name} told where" for name, _ in pairs),
        *(f"{place}/place/a place" for _, place in pairs),
        relations=tuple(f"{name}/{place}/{name} lives in {place}" for name, place in pairs),
    )


def memory_of(says: Says = lives, top_k: int = 10, **options: Any) -> tuple[GraphMemory, FakeModel]:
    model = FakeModel(says=says)
    lane = replace(context(top_k=top_k), model_of=lambda name: model)
    return GraphMemory(lane, HashEmbedder(), model="m", **options), model


async def test_a_delta_is_the_new_nodes_with_ids_and_times_of_their_own() -> None:
    memory, model = memory_of()
    delta = await memory.ingest(segment(3, "Anna in Lyon", "Ben in Lyon"))
    assert delta.records == (
        MemoryRecord(id="s3/n0", text=f"Anna (person): {THEN} Anna told where", event_time_us=3001),
        MemoryRecord(id="s3/n1", text=f"Ben (person): {THEN} Ben told where", event_time_us=3001),
        MemoryRecord(id="s3/n2", text=f"Lyon (place): {THEN} a place", event_time_us=3001),
        MemoryRecord(id="s3/r0", text=f"Anna — Lyon: {THEN} Anna lives in Lyon", event_time_us=3001),
        MemoryRecord(id="s3/r1", text=f"Ben — Lyon: {THEN} Ben lives in Lyon", event_time_us=3001),
        MemoryRecord(id="s3/c0", text="Anna in Lyon\nBen in Lyon", event_time_us=3001),
    )
    assert delta.usage == Usage(prompt_tokens=10, completion_tokens=2, calls=1)
    texts = sum(len(record.text.encode()) for record in delta.records)
    assert delta.stored_bytes == texts + 6 * 4 * HashEmbedder.dimensions
    (ask,) = model.asks
    assert (ask.temperature, ask.seed) == (0.0, 0)


async def test_what_is_said_again_changes_nothing_and_what_is_new_is_added() -> None:
    said = iter(
        (
            found("Anna//likes tea"),
            found(" ANNA /person/likes tea", "anna/person/owns a cup", "anna/x/owns a cup"),
        )
    )
    memory, _ = memory_of(lambda ask: next(said))
    await memory.ingest(segment(0, "x"))
    delta = await memory.ingest(segment(1, "y"))
    assert delta.records == (
        MemoryRecord(
            id="s0/n0",
            text=f"Anna (person): {THEN} likes tea\n{THEN} owns a cup",
            event_time_us=1000,
            op="update",
        ),
        MemoryRecord(id="s1/c0", text="y", event_time_us=1000),
    )
    assert delta.stored_bytes == len(f"y (person)\n{THEN} owns a cup") + 4 * HashEmbedder.dimensions
    again, _ = memory_of(lambda ask: found("Anna//likes tea"))
    await again.ingest(segment(0, "x"))
    assert [r.id for r in (await again.ingest(segment(1, "y"))).records] == ["s1/c0"]


async def test_an_answer_names_records_as_the_deltas_last_did() -> None:
    memory, _ = memory_of()
    written: dict[str, MemoryRecord] = {}
    for number, line in enumerate(("Anna in Lyon", "Anna in Bonn", "Ben in Lyon")):
        delta = await memory.ingest(segment(number, line))
        written |= {record.id: record for record in delta.records}
    answer = await memory.answer(Request(text="where is Anna", phase="R1"))
    assert {"s0/n0", "s1/r0"} <= {r.id for r in answer.retrieved}
    for r in answer.retrieved:
        assert (r.text, r.event_time_us) == (written[r.id].text, written[r.id].event_time_us)


async def test_a_segment_is_asked_in_parts_where_the_model_s_context_is_short() -> None:
    memory, model = memory_of(observations=1)
    delta = await memory.ingest(segment(0, "Anna in Lyon", "Anna in Bonn"))
    assert [(r.id, r.event_time_us, r.op) for r in delta.records if r.id[3] != "r"] == [
        ("s0/n0", 0, "add"),
        ("s0/n1", 0, "add"),
        ("s0/c0", 0, "add"),
        ("s0/n2", 1, "add"),
        ("s0/c1", 1, "add"),
    ]
    assert len(model.asks) == delta.usage.calls == 2


async def test_a_description_over_the_budget_is_shortened_by_one_more_call() -> None:
    def says(ask: Ask) -> str:
        if "<descriptions>" in ask.messages[1].content:
            return json.dumps({"description": "in\nshort"})
        return found(f"Anna/person/{section(ask, 'chunk')}")

    memory, model = memory_of(says, description_tokens=15)
    first = await memory.ingest(segment(0, "she likes the green tea"))
    assert first.usage.calls == 1
    second = await memory.ingest(segment(1, "she owns a blue cup"))
    assert second.usage.calls == 2
    assert second.records[0] == MemoryRecord(
        id="s0/n0", text=f"Anna (person): {THEN} in short", event_time_us=1000, op="update"
    )
    asked = model.prompts()[-1]
    assert "<about>Anna</about>" in asked
    assert f"{THEN} she likes the green tea\n{THEN} she owns a blue cup" in asked
    third = await memory.ingest(segment(2, "she has " + "many " * 20))
    assert [record.id for record in third.records] == ["s2/c0"]  # the description came out as it was
    assert third.usage.calls == 2


async def test_a_failure_of_any_call_leaves_the_memory_as_it_was() -> None:
    def says(ask: Ask) -> str | ModelError:
        asked = ask.messages[1].content
        if "fails" in asked:
            return down()
        return "Shure's secret" if "nonsense" in asked else found("Anna//likes many things")

    memory, model = memory_of(says, observations=1, description_tokens=15)
    await memory.ingest(segment(0, "a"))
    asked = Request(text="a", phase="R1")
    before = await memory.answer(asked)
    with pytest.raises(ModelError, match="can't connect"):
        await memory.ingest(segment(1, "b", "fails", "c"))
    assert len(model.asks) == 4, "the others are paid for, and the cache should have them"
    with pytest.raises(ModelError) as caught:
        await memory.ingest(segment(1, "nonsense"))
    assert caught.value.failure == "nonsense"
    assert "secret" not in str(caught.value)
    model.says = lambda ask: found("Anna//likes long walks as well") if "<chunk>" in str(ask) else down()
    with pytest.raises(ModelError, match="can't connect"):
        await memory.ingest(segment(1, "her description is too long now"))
    assert await memory.answer(asked) == before


async def test_what_can_t_be_embedded_is_not_stored() -> None:
    class Broken(HashEmbedder):
        async def embed(self, texts):  # type: ignore[no-untyped-def]  # as HashEmbedder's
            raise EncoderError("the encoder died")

    memory = GraphMemory(replace(context(), model_of=lambda _: FakeModel(says=lives)), Broken(), model="m")
    with pytest.raises(EncoderError):
        await memory.ingest(segment(0, "Anna in Lyon"))
    assert len(memory._graph) == 0


async def test_a_fork_and_its_origin_don_t_see_each_other_s_nodes() -> None:
    memory, _ = memory_of(top_k=50)
    await memory.ingest(segment(0, "Anna in Lyon"))
    fork = memory.fork()
    turns = (Turn(role="user", text="Anna in Bonn"), Turn(role="assistant", text="Ben in Rome"))
    delta = await fork.commit(Interaction(id="i", turns=turns, event_time_us=1))
    assert ("i/r0", f"Anna — Bonn: {THEN} Anna lives in Bonn") in [(r.id, r.text) for r in delta.records]
    await memory.ingest(segment(1, "Anna in Oslo"))
    asked = Request(text="Anna", phase="R1")
    on_fork, on_main = await fork.answer(asked), await memory.answer(asked)
    assert {r.id.split("/")[0] for r in on_fork.retrieved} == {"s0", "i"}
    assert {r.id.split("/")[0] for r in on_main.retrieved} == {"s0", "s1"}


async def test_an_empty_memory_and_an_empty_segment_are_no_special_case() -> None:
    memory, _ = memory_of(lambda ask: found())
    assert (await memory.answer(Request(text="Anna?", phase="R1"))).retrieved == ()
    delta = await memory.ingest(segment(0, "hm"))
    assert ([r.id for r in delta.records], delta.usage.calls) == (["s0/c0"], 1)


async def test_a_server_is_asked_with_the_schema_and_the_embedder_is_the_configured_one() -> None:
    async with scripted_server(Script(rule="tests.models.roles:says")) as server:
        settings = {
            "m": ModelSettings(base_url=server.url, model="scripted"),
            "e": ModelSettings(base_url=server.url, model="vectors", kind="embeddings", dimensions=8),
        }
        async with Models(settings, cache=None) as models:
            lane = replace(
                context(),
                model_of=lambda name: models.model(name, role="test"),
                embedder_of=lambda name: models.embedder(name, role="test"),
            )
            memory = open_system("graph:model=m,embedder=e", lane)
            delta = await memory.ingest(segment(0, "the kettle hums"))
            answer = await memory.answer(Request(text="kettle", phase="R1"))
        asked = await server.asked()
    assert [record.id for record in delta.records] == ["s0/n0", "s0/c0"]
    assert {record.id for record in answer.retrieved} == {"s0/n0", "s0/c0"}
    (chat,) = [call.body for call in asked if call.path.endswith("completions")]
    schema = chat["response_format"]["json_schema"]["schema"]
    assert set(schema["properties"]) == {"entities", "relations"}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("graph", "graph needs a model"),
        ("graph:model=m", "no model 'm': .* --models"),
        ("graph:model=m,observations=0", "observations must be at least 1"),
        ("graph:model=m,description_tokens=0", "description_tokens must be at least 1"),
    ],
)
def test_what_can_t_be_is_said_before_anything_runs(spec: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_system(spec, context())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_it_asks_stands_in_what_it_declares(language: PromptLanguage) -> None:
    declared = capabilities("graph:model=m,embedder=e")
    assert (declared.model, declared.embedder, declared.answers) == ("m", "e", "run")
    assert declared.prompts == (GRAPH_EXTRACT_PROMPT, GRAPH_SUMMARY_PROMPT)
    assert load_prompt(ADAPTER_PROMPTS, GRAPH_EXTRACT_PROMPT, language).places == {"time", "chunk"}
    assert load_prompt(ADAPTER_PROMPTS, GRAPH_SUMMARY_PROMPT, language).places == {"about", "descriptions"}
