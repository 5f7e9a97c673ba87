"""Rankings of whole segments as memory systems: what is stored, how it is ranked, and RealMem's own figures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.memory import Interaction, LaneContext, Request, Segment
from adapters.registry import open_system
from adapters.sessions import SessionIndex
from adapters.systems.sessions import (
    Bm25Memory,
    DenseMemory,
    HybridMemory,
    RecencyMemory,
    SessionMemory,
    said,
)
from benchmarks.bench_realmem import figures, indexes, lexical_rankers
from judges.retrieval import ndcg, recall_all, recall_any
from producers.datasets.realmem import read_realmem
from producers.lifelog import Lifelog
from simulator.errors import ConfigError
from simulator.events import ObservationEvent, RetrievedRecord, Turn
from tests.adapters.helpers import HashEmbedder, context, segment, vector_of

NAMES = ("recency", "bm25", "dense", "hybrid")
DIALOG = (
    ("User: I like sencha tea", "Assistant: Noted."),
    ("User: it rains", "Assistant: Take the blue cup"),
    ("User: sencha again", "Assistant: With which kettle?"),
)
TALK = Interaction(
    id="Ada@x/s2/p0",
    turns=(Turn(role="user", text="which kettle?"), Turn(role="assistant", text="the gooseneck")),
    event_time_us=5_000,
)


def made(name: str, lane: LaneContext | None = None, **options: int) -> SessionMemory:
    given = lane or context()
    match name:
        case "recency":
            return RecencyMemory(given, **options)
        case "bm25":
            return Bm25Memory(given, **options)
        case "dense":
            return DenseMemory(given, HashEmbedder(), **options)
        case _:
            return HybridMemory(given, HashEmbedder(), **options)


def ask(text: str) -> Request:
    return Request(text=text, phase="R1", event_time_us=9_000)


async def ranking(memory: SessionMemory, text: str) -> list[str]:
    return [record.id for record in (await memory.answer(ask(text))).retrieved]


@pytest.mark.parametrize("name", NAMES)
async def test_a_segment_and_an_interaction_are_a_record_each(name: str) -> None:
    memory = made(name)
    delta = await memory.ingest(segment(4, *DIALOG[0]))
    text = "User: I like sencha tea\nAssistant: Noted."
    assert [(r.id, r.text, r.event_time_us) for r in delta.records] == [("s4", text, 4001)]
    vector_bytes = 4 * HashEmbedder.dimensions if name in ("dense", "hybrid") else 0
    assert delta.stored_bytes == len(text) + vector_bytes
    committed = await memory.commit(TALK)
    assert [(r.id, r.text, r.event_time_us) for r in committed.records] == [
        ("Ada@x/s2/p0", "user: which kettle?\nassistant: the gooseneck", 5_000)
    ]
    assert (await ranking(memory, "gooseneck kettle"))[0] == "Ada@x/s2/p0"
    assert (await memory.ingest(segment(5))).records == ()


@pytest.mark.parametrize(
    ("name", "asked", "found"),
    [
        ("recency", "sencha", ["s2", "s1", "s0"]),
        ("bm25", "the raining", ["s1"]),  # stemmed, without stop words
        ("bm25", "user assistant", []),  # who speaks is no term
        ("dense", "sencha again", ["s2"]),
        ("hybrid", "I like sencha tea", ["s0"]),
    ],
)
async def test_rankings(name: str, asked: str, found: list[str]) -> None:
    memory = made(name)
    for number, texts in enumerate(DIALOG):
        await memory.ingest(segment(number, *texts))
    ranked = await ranking(memory, asked)
    assert ranked[: len(found)] == found
    assert len(ranked) == (len(found) if name == "bm25" else 3)


TEXTS = st.lists(st.sampled_from(["tea", "cups", "rain", "kettle"]), min_size=1, max_size=4).map(" ".join)
SEGMENTS = st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=5)


@given(SEGMENTS, SEGMENTS, TEXTS, TEXTS, st.sampled_from(NAMES), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
async def test_a_fork_ranks_as_the_index_of_what_it_has_seen(
    past: list[list[str]], future: list[list[str]], committed: str, query: str, name: str, k: int
) -> None:
    memory = made(name, top_k=k)
    for number, texts in enumerate(past):
        await memory.ingest(segment(number, *(f"User: {text}" for text in texts)))
    fork = memory.fork()
    for number, texts in enumerate(future, len(past)):
        await memory.ingest(segment(number, *(f"User: {text}" for text in texts)))
    before = await fork.answer(ask(query))
    talk = replace(TALK, turns=(Turn(role="user", text=committed),))
    branch = fork.fork()
    await branch.commit(talk)

    index = SessionIndex(dimensions=HashEmbedder.dimensions)
    for texts in [*past, [committed], *future]:
        index.add(texts, np.stack([vector_of(text) for text in texts]))
    ids = [f"s{n}" for n in range(len(past))] + [TALK.id]
    if name in (
        "dense",
        "hybrid",
    ):  # equal vectors in two matrices may differ in their last bit, and so in order
        near = sorted(hit.score for hit in index.dense(vector_of(query), len(past) + 1, len(ids)))
        assume(all(b - a > 1e-5 for a, b in pairwise(near)))

    def expected(sessions: int) -> list[tuple[str, float]]:
        hits = {
            "recency": lambda: SessionIndex.recency(sessions, k),
            "bm25": lambda: index.lexical(query, sessions, k),
            "dense": lambda: index.dense(vector_of(query), sessions, k),
            "hybrid": lambda: index.fused(query, vector_of(query), sessions, k),
        }[name]()
        return [(ids[hit.row], pytest.approx(hit.score, abs=2e-6)) for hit in hits]

    def found(records: tuple[RetrievedRecord, ...]) -> list[tuple[str, float]]:
        return [(record.id, record.score) for record in records]

    assert found(before.retrieved) == expected(len(past))
    assert found((await branch.answer(ask(query))).retrieved) == expected(len(past) + 1)
    assert await fork.answer(ask(query)) == before


@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_names_its_whole_ranking_where_rankings_are_measured(name: str) -> None:
    memory = made(name, replace(context(top_k=2, word_budget=3), ranked=True))
    for number, texts in enumerate(DIALOG):
        await memory.ingest(segment(number, *texts))
    answer = await memory.answer(ask("sencha tea"))
    assert len(answer.text.split()) == 3
    assert len(answer.retrieved) == 2
    assert all("\n" in record.text for record in answer.retrieved)


async def test_turns_of_a_segment_are_embedded_in_one_call_off_the_loop() -> None:
    calls = []

    class Counting(HashEmbedder):
        async def embed(self, texts):  # type: ignore[no-untyped-def]  # as the one above it
            calls.append(list(texts))
            return await super().embed(texts)

    embedder = Counting()
    memory = DenseMemory(context(), embedder)
    await memory.ingest(segment(0, *DIALOG[0]))
    assert calls == [["I like sencha tea", "Noted."]]
    assert threading.get_ident() not in embedder.threads


@pytest.mark.parametrize(
    ("text", "source", "words"),
    [
        ("User: a: b", "dialog", "a: b"),
        ("Assistant: \n1. first", "dialog", "\n1. first"),
        ("小明：你好", "dialog", "你好"),
        ("no speaker here", "dialog", "no speaker here"),
        ("see http://x.org", "dialog", "see http://x.org"),
        ("first line\nnote: second", "dialog", "first line\nnote: second"),
        ("on the table: a cup", "description", "on the table: a cup"),
    ],
)
def test_only_speech_has_a_speaker(text: str, source: str, words: str) -> None:
    observation = segment(0, text).observations[0]
    assert said(replace(observation, source=source)) == words


@pytest.mark.parametrize("name", NAMES)
async def test_each_opens_by_its_name_with_its_options(name: str) -> None:
    memory = open_system(f"{name}:top_k=1", context())
    assert isinstance(memory, SessionMemory)
    with pytest.raises(ConfigError, match="at least 1"):
        open_system(f"{name}:top_k=0", context())
    with pytest.raises(ConfigError, match="no option 'embedder'" if name in NAMES[:2] else "no model 'x'"):
        open_system(f"{name}:embedder=x", context())


def segments_of(lifelog: Lifelog) -> Iterator[Segment]:
    for number, span in enumerate(lifelog.segments):
        yield Segment(
            stream=lifelog.stream,
            segment=number,
            day=span.day,
            segment_id=span.segment_id,
            start_time_us=span.start_time_us,
            end_time_us=span.end_time_us,
            observations=tuple(
                ObservationEvent(
                    id=f"{lifelog.stream}/{seq}",
                    run="r",
                    stream=lifelog.stream,
                    event_time_us=lifelog.observations[seq].event_time_us,
                    seq=seq,
                    source=lifelog.observations[seq].source,
                    text=lifelog.observations[seq].text,
                )
                for seq in range(span.first_seq, span.last_seq + 1)
            ),
        )


PRINTED = {  # docs/realmem.md
    "recency": (0.313, 0.454, 0.540, 0.710, 0.240, 0.285),
    "bm25": (0.630, 0.741, 0.828, 0.893, 0.568, 0.595),
}


@pytest.mark.data
@pytest.mark.parametrize("name", PRINTED)
async def test_on_realmem_it_measures_what_the_benchmark_prints(name: str, data_dir: Path) -> None:
    data = read_realmem(data_dir / "realmem")
    ranked: dict[str, list[int]] = {}
    for stream, lifelog in data.dataset.lifelogs.items():
        memory = made(name, replace(context(top_k=20), ranked=True))
        branches = {-1: memory.fork()}  # answered at the end, when the memory holds what they must not see
        for number, part in enumerate(segments_of(lifelog)):
            await memory.ingest(part)
            branches[number] = memory.fork()
        for probe in data.probes:
            if probe.stream == stream:
                found = await ranking(branches[probe.segment], probe.text)
                ranked[probe.id] = [int(record.removeprefix("s")) for record in found]

    measured = [
        sum(measure(ranked[probe.id], probe.gold.segments, k) for probe in data.probes) / len(data.probes)
        for measure in (recall_all, recall_any, ndcg)
        for k in (10, 20)
    ]
    printed = figures(data.probes, lexical_rankers(await indexes(data, None))[name])
    assert measured == list(printed.values())
    assert measured == pytest.approx(PRINTED[name], abs=0.0006)
