from __future__ import annotations

import threading

import pytest

from adapters.memory import Interaction, MemorySystem, Request
from adapters.systems.full_context import FullContextMemory
from adapters.systems.null import NullMemory
from adapters.systems.oracle import OracleMemory
from adapters.systems.rag_raw import RagRawMemory, Retrieval
from simulator.errors import ConfigError
from simulator.events import Turn
from tests.adapters.helpers import HashEmbedder, anchor, context, segment

TALK = Interaction(
    id="A1_JAKE@x/s0/e0",
    turns=(Turn(role="user", text="where is the key?"), Turn(role="assistant", text="in the blue cup")),
    event_time_us=5_000,
)


def ask(text: str) -> Request:
    return Request(text=text, phase="R1", event_time_us=9_000)


@pytest.fixture(params=["null", "oracle", "full_context", "dense", "bm25", "hybrid"])
def system(request: pytest.FixtureRequest) -> MemorySystem:
    anchors = (anchor(0, 0, "the dog likes rain", "what does the dog like?", "walk the dog?"),)
    match request.param:
        case "null":
            return NullMemory(context())
        case "oracle":
            return OracleMemory(context(anchors=anchors))
        case "full_context":
            return FullContextMemory(context())
        case retrieval:
            return RagRawMemory(context(), HashEmbedder(), retrieval=retrieval)


async def test_forks_are_isolated_both_ways(system: MemorySystem) -> None:
    await system.ingest(segment(0, "I drink tea", "the dog likes rain"))
    fork, question = system.fork(), ask("what does the dog like?")
    before = await fork.answer(question)
    assert await system.answer(question) == before

    await system.ingest(segment(1, "the dog likes the sea", "what does the dog like?"))
    assert await fork.answer(question) == before

    on_main = await system.answer(question)
    await fork.commit(TALK)
    await fork.fork().ingest(segment(1, "what does the dog like? bones"))
    assert await system.answer(question) == on_main
    await system.aclose()


async def test_answering_changes_nothing_and_repeats(system: MemorySystem) -> None:
    await system.ingest(segment(0, "I drink tea", "rain"))
    assert await system.answer(ask("tea?")) == await system.answer(ask("tea?"))


async def test_an_empty_memory_answers_with_nothing(system: MemorySystem) -> None:
    answer = await system.answer(ask("what does the dog like?"))
    assert (answer.text, answer.retrieved) == ("", ())


async def test_null_keeps_nothing() -> None:
    null = NullMemory(context())
    assert (await null.ingest(segment(0, "tea"))).records == ()
    assert (await null.commit(TALK)).records == ()
    assert (await null.answer(ask("tea"))).text == ""


async def test_oracle_answers_with_the_evidence_of_what_it_has_seen() -> None:
    anchors = (
        anchor(0, 0, "Jake drinks green tea", "what tea?", "which cup?"),
        anchor(1, 0, "the key is blue", "which key?", "what tea?"),
    )
    oracle = OracleMemory(context(anchors=anchors, word_budget=1))
    delta = await oracle.ingest(segment(0, "x"))
    assert [r.text for r in delta.records] == ["Jake drinks green tea"]
    assert delta.stored_bytes == len("Jake drinks green tea")
    assert (await oracle.answer(ask("which key?"))).text == ""
    await oracle.ingest(segment(1, "x"))
    for question, statement in {
        "what tea?": "Jake drinks green tea",
        "which cup?": "Jake drinks green tea",
        "which key?": "the key is blue",
        "what else?": "",
    }.items():
        assert (await oracle.answer(ask(question))).text == statement
    assert OracleMemory.capabilities.privileged


async def test_full_context_stores_the_raw_segment_and_shows_the_newest() -> None:
    full = FullContextMemory(context(word_budget=6))
    first = segment(0, "喝茶", "two words")
    delta = await full.ingest(first)
    assert "\n".join(r.text for r in delta.records) == first.text
    assert delta.stored_bytes == 6 + 9
    await full.ingest(segment(1, "three more words", "end"))
    answer = await full.answer(ask("?"))
    assert answer.text == "end\nthree more words\ntwo words"
    assert [r.event_time_us for r in answer.retrieved] == [1001, 1000, 1]
    committed = await full.commit(TALK)
    assert [r.text for r in committed.records] == ["user: where is the key?\nassistant: in the blue cup"]
    assert (await full.answer(ask("?"))).text == "user: where is the key?\nassistant:"


async def test_rag_raw_chunks_and_counts_bytes() -> None:
    rag = RagRawMemory(context(), HashEmbedder(), chunk_observations=2)
    whole = segment(9, "a b", "c", "茶")
    delta = await rag.ingest(whole)
    assert [(r.id, r.text, r.event_time_us) for r in delta.records] == [
        ("s9/c0", "a b\nc", 9001),
        ("s9/c1", "茶", 9002),
    ]
    assert delta.stored_bytes == 5 + 3 + 2 * HashEmbedder.dimensions * 4
    committed = await rag.commit(TALK)
    assert [(r.id, r.event_time_us) for r in committed.records] == [("A1_JAKE@x/s0/e0/c0", 5_000)]
    found = await rag.answer(ask("where is the key"))
    assert found.retrieved[0].id == "A1_JAKE@x/s0/e0/c0"


@pytest.mark.parametrize("retrieval", ["dense", "bm25", "hybrid"])
async def test_rag_raw_finds_what_was_asked_within_top_k(retrieval: Retrieval) -> None:
    embedder = HashEmbedder()
    rag = RagRawMemory(context(top_k=2), embedder, retrieval=retrieval, chunk_observations=1)
    await rag.ingest(segment(0, "blue cup", "green tea pot", "the dog barks", "green tea", "tea"))
    answer = await rag.answer(ask("green tea"))
    assert answer.retrieved[0].text == "green tea"
    assert len(answer.retrieved) == 2
    scores = [r.score for r in answer.retrieved]
    assert scores == sorted(scores, reverse=True)
    assert bool(embedder.embedded) == (retrieval != "bm25")  # BM25 embeds nothing
    assert threading.get_ident() not in embedder.threads


async def test_rag_raw_searches_with_the_feedback_too() -> None:
    rag = RagRawMemory(context(top_k=1), retrieval="bm25", chunk_observations=1)
    await rag.ingest(segment(0, "tea in the cup", "the dog likes rain"))
    history = (
        Turn(role="user", text="tea?"),
        Turn(role="assistant", text="tea in the cup"),
        Turn(role="user", text="I meant the dog and the rain"),
    )
    again = await rag.answer(Request(text="tea?", phase="R_F", history=history))
    assert again.text == "I meant the dog and the rain\nthe dog likes rain"


def test_rag_raw_refuses_senseless_numbers() -> None:
    with pytest.raises(ConfigError, match="top_k must be at least 1"):
        RagRawMemory(context(), retrieval="bm25", top_k=0)
    with pytest.raises(ConfigError, match="chunk_observations"):
        RagRawMemory(context(), retrieval="bm25", chunk_observations=-1)
