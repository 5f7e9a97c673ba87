"""Answers from whole segments: what stands in place of records, and what is named all the same."""

from __future__ import annotations

from msgspec.structs import replace

from adapters.memory import Request
from adapters.session_values import SessionTexts, SessionValued
from adapters.systems.null import NullMemory
from adapters.systems.rag_raw import RagRawMemory
from simulator.events import RetrievedRecord
from tests.adapters.helpers import context, segment

TEXTS = (("one apple", "two apples"), ("a pear",), ("three apples", "four plums"))


def record(name: str, event_time_us: int) -> RetrievedRecord:
    return RetrievedRecord(id=name, text=name, event_time_us=event_time_us, score=1.0)


def test_records_become_the_segments_in_which_they_lie_each_where_its_best_stands() -> None:
    texts = SessionTexts()
    made = [segment(number, *lines) for number, lines in enumerate(TEXTS)]
    for one in made:
        texts.add(one)
        texts.add(one)  # a branch that ingests again
    first, second, third = (one.observations[0].event_time_us for one in made)
    last = made[2].observations[-1].event_time_us
    after = made[2].end_time_us
    found = texts.whole(
        [
            record("x", third),
            record("y", first),
            record("talk", after),
            record("z", last),
            record("w", second),
        ],
        after,
    )
    assert [(one.id, one.text) for one in found] == [
        ("s2", made[2].text),
        ("s0", made[0].text),
        ("talk", "talk"),
        ("s1", made[1].text),
    ]


def test_a_record_of_the_time_at_which_a_segment_ended_shows_nothing_of_the_next() -> None:
    texts = SessionTexts()
    made = [segment(number, *lines) for number, lines in enumerate(TEXTS)]
    for one in made:  # other branches have gone on
        texts.add(one)
    now_us = made[0].end_time_us
    found = texts.whole([record("stamped at the end", now_us), record("x", now_us - 1)], now_us)
    assert [(one.id, one.text) for one in found] == [
        ("stamped at the end", "stamped at the end"),
        ("s0", made[0].text),
    ]


async def test_an_answer_is_made_from_segments_and_names_the_records_that_were_found() -> None:
    texts = SessionTexts()
    plain = RagRawMemory(context(top_k=1), retrieval="bm25")
    given = replace(context(top_k=1), sessions=texts)
    memory = SessionValued(RagRawMemory(given, retrieval="bm25"), texts)
    for number, lines in enumerate(TEXTS):
        await plain.ingest(segment(number, *lines))
        await memory.ingest(segment(number, *lines))
    request = Request(text="pear", phase="R1", event_time_us=10**15)
    branch = memory.fork()
    answer = await branch.answer(request)
    assert answer.retrieved == (await plain.answer(request)).retrieved
    assert answer.text == segment(1, *TEXTS[1]).text
    await branch.aclose()
    await memory.aclose()


def test_a_memory_that_has_no_folder_is_not_taken_for_one_that_is_copied() -> None:
    assert not hasattr(SessionValued(NullMemory(context()), SessionTexts()), "directory")
