"""What the suite is made of: the ledger of deltas, models that answer by rule and fail at will, what is held."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.conformance import BrokenError, RuleModel, Switch
from adapters.conformance.ledger import Ledger, WallClock, check_writable, differing, unlike
from adapters.conformance.resources import Holding, descendants
from adapters.conformance.world import CHINESE, FACTS, TALK, anchors, segment, segments, talk
from adapters.memory import Answer, Delta
from adapters.model import Ask, Message
from adapters.systems.rag_ext import Facts
from simulator.errors import ModelError
from simulator.events import MemoryRecord, RetrievedRecord

Op = Literal["add", "update", "delete"]


def record(name: str, text: str = "tea", op: Op = "add") -> MemoryRecord:
    return MemoryRecord(id=name, text=text, event_time_us=1, op=op)


def found(name: str, text: str = "tea") -> RetrievedRecord:
    return RetrievedRecord(id=name, text=text, event_time_us=1)


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([record("")], "a record has no id"),
        ([record("a"), record("a", op="update")], "names record a twice"),
        ([record("k")], "record k is added, and was before"),
        ([record("a", op="update")], "op=update of record a, which no delta added"),
        ([record("a", op="delete")], "op=delete of record a, which no delta added"),
        ([record("k", op="update")], "op=update of record k, and it is as it was"),
    ],
)
def test_fault_in_a_delta_is_told_when_something_is_found(records: list[MemoryRecord], fault: str) -> None:
    ledger = Ledger()
    ledger.apply("ingest", Delta(records=(record("k"),)))
    ledger.check_found([found("k")])
    ledger.apply("ingest", Delta(records=tuple(records)))
    with pytest.raises(BrokenError, match=fault):
        ledger.check_found([])


def test_found_records_are_those_that_deltas_left() -> None:
    ledger = Ledger()
    ledger.apply("ingest", Delta(records=(record("a"), record("b"))))
    branch = ledger.copy()
    ledger.apply("ingest", Delta(records=(record("a", "coffee", "update"), record("b", op="delete"))))
    ledger.check_found([found("a", "coffee")])
    branch.check_found([found("a"), found("b")])
    for wrong, says in (
        (found("a"), "found as 'tea' at 1; its delta said 'coffee'"),
        (found("b"), "a delta deleted it"),
        (found("c"), "no delta named it"),
    ):
        with pytest.raises(BrokenError, match=says):
            ledger.check_found([wrong])
    ledger.apply("ingest", Delta(records=(record("b", "again"),)))
    ledger.check_found([found("b", "again")])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))))
def test_ledger_holds_what_a_dictionary_would(writes: list[tuple[str, str]]) -> None:
    """Each write sets a record, or deletes it where it has that text already."""
    ledger, plain = Ledger(), dict[str, str]()
    for name, text in writes:
        op: Op = "add" if name not in plain else "delete" if plain[name] == text else "update"
        ledger.apply("write", Delta(records=(record(name, text, op),)))
        if op == "delete":
            del plain[name]
        else:
            plain[name] = text
    ledger.check_found([found(name, text) for name, text in plain.items()])
    assert {name: r.text for name, r in ledger.held.items()} == plain


def test_wall_clock_is_known_in_the_forms_that_people_write() -> None:
    clock = WallClock(datetime(2026, 11, 30, 8, tzinfo=UTC))
    for text in ("2026-11-30", "30 November 2026", "on November 29, 2026", "20261201", "2026年11月30日"):
        assert clock.in_prompt(f"Today: {text}.") is not None
        assert clock.in_prompt(f"Today: {text.replace('2026', '2013')}.") is None
    assert clock.in_prompt("as of 2026") is None
    assert clock.in_record("as of 2026") == "2026"
    assert clock.in_record("call 12026 or 20261") is None
    assert WallClock(datetime(2026, 12, 31, 12, tzinfo=UTC)).in_record("in 2027") == "2027"


def test_what_differs_is_said() -> None:
    one, other = Delta(records=(record("a"),)), Delta(records=(record("a", "coffee"),))
    assert differing(one, one) is None
    assert differing(one, Delta()) == "1 records and 0"
    assert differing(one, other) == "add a at 1 ('tea') and add a at 1 ('coffee')"
    assert unlike(Answer(text="t"), Answer(text="t")) is None
    assert unlike(Answer(text="t"), Answer(text="u")) == "said 't', then 'u'"
    first, again = Answer(text="", retrieved=(found("a"),)), Answer(text="", retrieved=(found("b"),))
    assert unlike(first, again) == "found a (0), then b (0)"
    assert unlike(first, again, by_text=True) is None
    scored = [
        Answer(text="", retrieved=(RetrievedRecord(id="a", text="", event_time_us=0, score=s),))
        for s in (0.5, 0.5 + 1e-9, 0.501)
    ]
    assert unlike(scored[0], scored[1]) is None
    assert unlike(scored[0], scored[2]) == "found a (0.5), then a (0.501)"


def test_what_can_t_be_written_is_refused() -> None:
    check_writable("answer", Answer(text="t", retrieved=(found("a"),)))
    for text in (7, "half a pair \ud800"):
        with pytest.raises(BrokenError, match="answer: what it gave can't be written"):
            check_writable("answer", Answer(text=text))  # type: ignore[arg-type]  # on purpose


def test_words_of_the_world_stand_in_their_own_facts_alone() -> None:
    facts = (*FACTS, CHINESE)
    conversation = " ".join(turn.text for turn in talk("i", 0).turns).lower()
    for fact in facts:
        assert fact.word in fact.text.lower()
        assert fact.word not in fact.question.lower()
        assert fact.word not in conversation
        assert sum(fact.word in other.text.lower() for other in facts) == 1
    assert TALK.word in conversation
    assert TALK.word not in TALK.question.lower()
    assert not any(TALK.word in fact.text.lower() for fact in facts)


def test_segments_of_the_world_are_a_stream() -> None:
    seen = [*segments(3), segment(3, FACTS[3], observations=1), segment(4, CHINESE, observations=200)]
    times = [o.event_time_us for s in seen for o in s.observations]
    assert times == sorted(set(times))
    for s in seen:
        assert s.start_time_us < s.observations[0].event_time_us
        assert s.observations[-1].event_time_us < s.end_time_us
    ids = [o.id for s in seen for o in s.observations]
    assert len(set(ids)) == len(ids)
    asked = [a.initial_task.user_request for a in anchors("S", seen)]
    assert asked == [f.question for f in (*FACTS[:4], CHINESE)]


def ask(text: str) -> Ask:
    return Ask(messages=(Message(role="system", content="You write."), Message(role="user", content=text)))


async def test_rule_model_says_what_it_was_shown() -> None:
    model = RuleModel()
    assert (await model.ask(ask("<time>\nI drink tea.\n\n  Rain.\n</time>"))).text == "I drink tea.\nRain."
    facts, said = await model.ask_for(ask("<seen>\nI drink tea.\nRain."), Facts)
    assert facts.facts == ["I drink tea.", "Rain."]
    assert said.usage.prompt_tokens > 0
    assert (await model.ask(ask("Answer in JSON.\nRain."))).text == '{"facts":["Answer in JSON.","Rain."]}'


class Inner(msgspec.Struct):
    kind: Literal["one", "two"]
    weight: float


class Outer(msgspec.Struct):
    parts: list[Inner]
    is_good: bool
    count: int
    note: str | None = None


async def test_rule_model_fills_any_struct() -> None:
    filled, _ = await RuleModel().ask_for(ask("tea\nrain"), Outer)
    assert filled == Outer(parts=[Inner("one", 0.0)] * 2, is_good=False, count=0, note="tea\nrain")


async def test_switch_fails_from_a_call_on_and_counts() -> None:
    switch = Switch()
    model, embedder = switch.model("a"), switch.embedder("b")
    with switch.outage(after=1):
        await model.ask(ask("tea"))
        with pytest.raises(ModelError, match="switched it off"):
            await embedder.embed(["tea"])
        with pytest.raises(ModelError, match="switched it off"):
            await model.ask_for(ask("tea"), Facts)
    vectors = await embedder.embed(["green tea", "green tea", "rain"])
    assert vectors.shape == (3, embedder.dimensions)
    assert vectors[0] @ vectors[1] == pytest.approx(1.0)
    assert vectors[0] @ vectors[2] < 0.5
    assert (switch.calls, switch.models, switch.embedders) == (4, {"a"}, {"b"})
    assert switch.prompts == ["You write.\ntea"]


async def test_what_a_process_holds_is_seen_and_seen_to_go() -> None:
    gc.collect()  # what earlier tests left must not go in between
    before, known = Holding.now(), descendants()
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    file = await asyncio.to_thread(Path(os.devnull).open)
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)  # noqa: ASYNC220
    assert descendants() - known == {process.pid}
    assert Holding.now().beyond(before) == {"processes": 1, "files": 2, "threads": 1, "tasks": 1}
    process.kill()
    process.communicate()
    file.close()
    end.set()
    thread.join()
    task.cancel()
    await asyncio.sleep(0)
    assert Holding.now().beyond(before) == {}
