"""From records to events, and what becomes of those that are none."""

from __future__ import annotations

import math
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import DecodeError
from simulator.events import (
    DeltaEvent,
    Event,
    MemoryRecord,
    ObservationEvent,
    ReadyEvent,
    ResponseEvent,
    RetrievedRecord,
    decode,
    encode,
)
from simulator.intake import check_readable, decode_records, read_to_end
from simulator.log import SqliteLog
from simulator.log.protocol import Record, StoredRecord


def record_of(value: bytes, offset: int = 0) -> StoredRecord:
    return StoredRecord("run.tasks", 3, offset, b"key", value, 1_234, ())


def ready(run: str = "run") -> ReadyEvent:
    return ReadyEvent(id="ready", run=run, event_time_us=0, role="r")


@given(st.lists(st.one_of(st.just(encode(ready())), st.binary(max_size=20)), max_size=20))
def test_every_record_becomes_an_event_or_a_dead_letter(values: list[bytes]) -> None:
    records = [record_of(value, offset) for offset, value in enumerate(values)]
    events, dead = decode_records("run", records)
    assert sorted([r.offset for _, r in events] + [letter.offset for letter in dead]) == list(
        range(len(values))
    )
    assert [event for event, _ in events] == [ready()] * len(events)
    for letter in dead:
        assert letter.value == values[letter.offset]
        assert decode(encode(letter)) == letter


def test_dead_letter_says_where_it_was_and_why() -> None:
    _, (letter, foreign) = decode_records("run", [record_of(b"{}", 7), record_of(encode(ready("other")), 8)])
    assert (letter.id, letter.topic, letter.partition, letter.offset) == (
        "dead/run.tasks/3/7",
        "run.tasks",
        3,
        7,
    )
    assert (letter.run, letter.key, letter.value, letter.event_time_us) == ("run", b"key", b"{}", 1_234_000)
    assert "kind" in letter.reason
    assert foreign.reason == "belongs to run 'other', not to 'run'"


NUMBER: str = 7  # type: ignore[assignment]  # what a careless memory system might give

DELTA = DeltaEvent(id="d", run="run", event_time_us=0, lane="l@s", segment=0)
RESPONSE = ResponseEvent(
    id="r", run="run", event_time_us=0, lane="l@s", trajectory="t", step=1, phase="R1", text="fine"
)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(
            DeltaEvent(
                id="d",
                run="run",
                event_time_us=0,
                lane="l@s",
                segment=0,
                records=(MemoryRecord(id="r", text=NUMBER, event_time_us=0),),
            ),
            id="wrong type",
        ),
        pytest.param(ReadyEvent(id="r", run="run", event_time_us=0, role="\ud800"), id="lone surrogate"),
        pytest.param(
            ResponseEvent(
                id="r",
                run="run",
                event_time_us=0,
                lane="l@s",
                trajectory="t",
                step=1,
                phase="R1",
                retrieved=(RetrievedRecord(id="r", text="t", event_time_us=0, score=math.nan),),
            ),
            id="NaN",
        ),
        pytest.param(ReadyEvent(id="r", run="run", event_time_us=0, role=object()), id="no JSON"),  # type: ignore[arg-type]  # on purpose
    ],
)
def test_what_readers_could_not_decode_is_refused(event: Event) -> None:
    with pytest.raises(DecodeError):
        check_readable(event)


def test_what_readers_can_decode_is_let_through() -> None:
    for event in (DELTA, RESPONSE, ready()):
        check_readable(event)


async def test_read_to_end_gives_each_record_once_and_ends(tmp_path: Path) -> None:
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics({"a": 3, "b": 1, "empty": 2})
        assert [r async for r in read_to_end(log, ["a", "b", "empty"])] == []
        await log.append([Record("a", b"", b"%d" % i, 0, (), i % 3) for i in range(50)])
        await log.append([Record("b", b"", b"%d" % i, 0, (), 0) for i in range(50, 60)])
        values = []
        async for record in read_to_end(log, ["a", "b", "empty"], max_records=7):
            values.append(int(record.value))
            if len(values) < 20:  # what comes meanwhile is left out, or it might never end
                await log.append([Record("a", b"", b"1000", 0, (), 0)])
        assert sorted(values) == list(range(60))


async def test_reading_may_stop_before_the_end(tmp_path: Path) -> None:
    observation = ObservationEvent(
        id="o", run="run", event_time_us=0, stream="s", seq=0, source="dialog", text="t"
    )
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics({"a": 1})
        await log.append([Record("a", b"", encode(observation), 0, (), 0)] * 5)
        async with aclosing(read_to_end(log, ["a"])) as records:
            async for record in records:
                assert record.offset == 0
                break
        assert len([r async for r in read_to_end(log, ["a"])]) == 5
