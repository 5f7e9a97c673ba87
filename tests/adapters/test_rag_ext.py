"""Facts that a model extracts, and what becomes of a failure."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from adapters.memory import Interaction, MemorySystem, Request
from adapters.model import Ask
from adapters.prompt import ADAPTER_PROMPTS, PromptLanguage, load_prompt
from adapters.registry import capabilities, open_system
from adapters.systems.rag_ext import EXTRACT_PROMPT, RagExtMemory
from simulator.errors import ConfigError, EncoderError, ModelError
from simulator.events import MemoryRecord, Turn, Usage
from tests.adapters.helpers import HashEmbedder, context, segment
from tests.models.fakes import FakeModel, Says, down


def facts(*texts: str) -> str:
    return json.dumps({"facts": texts})


def lines(ask: Ask) -> str:
    """Each line that was seen is a fact."""
    seen = ask.messages[1].content.partition("<seen>\n")[2].partition("\n</seen>")[0]
    return facts(*(f"fact: {line}" for line in seen.splitlines()))


def memory_of(says: Says = lines, options: str = "retrieval=bm25") -> tuple[MemorySystem, FakeModel]:
    model = FakeModel(says=says)
    lane = replace(context(), model_of=lambda name: model)
    return open_system(f"rag_ext:model=m,{options}", lane), model


async def test_a_delta_is_the_facts_with_ids_and_times_of_their_own() -> None:
    memory, model = memory_of()
    delta = await memory.ingest(segment(3, "tea", "cup"))
    assert delta.records == (
        MemoryRecord(id="s3/f0", text="fact: tea", event_time_us=3001),
        MemoryRecord(id="s3/f1", text="fact: cup", event_time_us=3001),
    )
    assert delta.usage == Usage(prompt_tokens=10, completion_tokens=2, calls=1)
    assert delta.stored_bytes == len("fact: teafact: cup")
    (ask,) = model.asks
    assert (ask.temperature, ask.seed) == (0.0, 0)
    answer = await memory.answer(Request(text="which cup", phase="R1"))
    assert answer.text == "fact: cup"


async def test_a_segment_is_asked_in_parts_where_the_model_s_context_is_short() -> None:
    memory, model = memory_of(options="retrieval=bm25,observations=2")
    delta = await memory.ingest(segment(0, "a", "b", "c", "d", "e"))
    assert [(r.id, r.text, r.event_time_us) for r in delta.records] == [
        ("s0/f0", "fact: a", 1),
        ("s0/f1", "fact: b", 1),
        ("s0/f2", "fact: c", 3),
        ("s0/f3", "fact: d", 3),
        ("s0/f4", "fact: e", 4),
    ]
    assert len(model.asks) == delta.usage.calls == 3


async def test_what_is_said_twice_or_is_empty_is_no_record() -> None:
    memory, _ = memory_of(lambda ask: facts("tea", " tea ", "", "  ", "a\nb"))
    delta = await memory.ingest(segment(0, "x"))
    assert [record.text for record in delta.records] == ["tea", "a b"]


async def test_nothing_worth_keeping_is_an_empty_delta_and_still_cost_something() -> None:
    memory, _ = memory_of(lambda ask: facts())
    delta = await memory.ingest(segment(0, "x"))
    assert (delta.records, delta.stored_bytes, delta.usage.calls) == ((), 0, 1)


async def test_an_interaction_is_kept_as_its_facts() -> None:
    memory, _ = memory_of()
    turns = (Turn(role="user", text="I like tea"), Turn(role="assistant", text="noted"))
    delta = await memory.commit(Interaction(id="s0/e0", turns=turns, event_time_us=9))
    assert [(r.id, r.text) for r in delta.records] == [
        ("s0/e0/f0", "fact: user: I like tea"),
        ("s0/e0/f1", "fact: assistant: noted"),
    ]


async def test_a_fork_and_its_origin_don_t_see_each_other_s_facts() -> None:
    memory, _ = memory_of()
    await memory.ingest(segment(0, "tea"))
    fork = memory.fork()
    await fork.commit(Interaction(id="i", turns=(Turn(role="user", text="tea mine"),), event_time_us=1))
    await memory.ingest(segment(1, "tea later"))
    asked = Request(text="tea", phase="R1")
    assert {r.id for r in (await fork.answer(asked)).retrieved} == {"s0/f0", "i/f0"}
    assert {r.id for r in (await memory.answer(asked)).retrieved} == {"s0/f0", "s1/f0"}


async def test_when_one_part_fails_nothing_of_the_segment_is_stored() -> None:
    memory, model = memory_of(
        lambda ask: down() if "\nc\n" in ask.messages[1].content else lines(ask),
        "retrieval=bm25,observations=1",
    )
    with pytest.raises(ModelError, match="can't connect"):
        await memory.ingest(segment(0, "a", "b", "c", "d"))
    assert len(model.asks) == 4, "the others are paid for, and the cache should have them"
    assert (await memory.answer(Request(text="fact a b c d", phase="R1"))).retrieved == ()


async def test_a_reply_without_facts_fails_without_its_words() -> None:
    memory, _ = memory_of(lambda ask: "Shure's secret")
    with pytest.raises(ModelError) as caught:
        await memory.ingest(segment(0, "a"))
    assert caught.value.failure == "nonsense"
    assert "secret" not in str(caught.value)


async def test_facts_that_can_t_be_embedded_are_not_stored() -> None:
    class Broken(HashEmbedder):
        async def embed(self, texts):  # type: ignore[no-untyped-def]  # as HashEmbedder's
            raise EncoderError("the encoder died")

    memory = RagExtMemory(replace(context(), model_of=lambda _: FakeModel(says=lines)), Broken(), model="m")
    with pytest.raises(EncoderError):
        await memory.ingest(segment(0, "a"))
    assert len(memory._store) == 0


async def test_facts_are_found_by_meaning_as_raw_chunks_are() -> None:
    lane = replace(context(top_k=1), model_of=lambda _: FakeModel(says=lines))
    memory = RagExtMemory(lane, HashEmbedder(), model="m")
    await memory.ingest(segment(0, "the kettle is in the kitchen", "the meeting is on Friday"))
    answer = await memory.answer(Request(text="meeting on Friday", phase="R1"))
    assert [record.id for record in answer.retrieved] == ["s0/f1"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("rag_ext", "rag_ext needs a model"),
        ("rag_ext:model=m", "no model 'm': .* --models"),
        ("rag_ext:model=m,observations=0", "observations must be at least 1"),
    ],
)
def test_what_can_t_be_is_said_before_anything_runs(spec: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_system(spec, context())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_it_asks_stands_in_what_it_declares(language: PromptLanguage) -> None:
    declared = capabilities("rag_ext:model=m")
    assert (declared.model, declared.prompts, declared.answers) == ("m", (EXTRACT_PROMPT,), "run")
    assert load_prompt(ADAPTER_PROMPTS, EXTRACT_PROMPT, language).places == {"time", "seen"}
