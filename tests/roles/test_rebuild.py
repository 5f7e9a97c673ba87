"""A lane that is built again: whether its memory is the one that the log describes."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.memory import Delta, Segment
from consumers.history import LaneHistory
from consumers.lane import Lane
from consumers.rebuild import (
    Rebuild,
    RebuildFold,
    Written,
    difference,
    differing_line,
    same_line,
)
from simulator.events import (
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    Isolation,
    LaneRebuiltEvent,
    MemoryRecord,
    Usage,
    decode,
    encode,
)
from tests.roles.systems import Ledger
from tests.roles.test_lane import LANE, TRAJECTORY, commit, segment_of, task

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
records = st.builds(
    MemoryRecord,
    id=texts,
    text=texts,
    event_time_us=st.integers(0, 9),
    op=st.sampled_from(["add", "update", "delete"]),
)
usages = st.builds(Usage, prompt_tokens=st.integers(0, 9), calls=st.integers(0, 9))
errors = st.none() | texts


def delta(segment: int = 0, **fields: Any) -> DeltaEvent:
    bare = DeltaEvent(
        id=f"{LANE}/delta/{segment}",
        run="run",
        stream="A",
        event_time_us=segment + 1,
        as_of=segment,
        lane=LANE,
        segment=segment,
    )
    return replace(bare, **fields)


def committed(**fields: Any) -> CommittedEvent:
    bare = CommittedEvent(
        id=f"{TRAJECTORY}/committed",
        run="run",
        stream="A",
        event_time_us=2,
        as_of=0,
        lane=LANE,
        trajectory=TRAJECTORY,
        step=5,
    )
    return replace(bare, **fields)


deltas = st.builds(
    delta,
    records=st.lists(records, max_size=4).map(tuple),
    stored_bytes=st.integers(0, 9),
    usage=usages,
    error=errors,
)


@given(deltas, deltas)
def test_two_deltas_differ_in_their_records_or_in_that_one_failed(one: DeltaEvent, other: DeltaEvent) -> None:
    failed = [event.error is not None and not event.records for event in (one, other)]
    same = one.records == other.records and failed[0] == failed[1]
    assert (difference(one, other) is None) == same
    assert (difference(other, one) is None) == same


@given(deltas, st.integers(0, 9), usages)
def test_what_it_took_and_how_it_travelled_is_no_difference(
    one: DeltaEvent, stored_bytes: int, usage: Usage
) -> None:
    logged = decode(encode(one))
    assert isinstance(logged, DeltaEvent)
    again = replace(one, stored_bytes=stored_bytes, usage=usage, records=list(one.records))
    assert difference(logged, again) is None


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_one_field_of_one_record_is_named_with_its_place(
    written: list[MemoryRecord], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(written) - 1))
    field = data.draw(st.sampled_from(MemoryRecord.__struct_fields__))
    changed = {"id": "secret id", "text": "secret text", "event_time_us": 17, "op": "replace"}
    if field == "op":
        changed["op"] = "add" if written[place].op == "delete" else "delete"
    others = [*written]
    others[place] = replace(written[place], **{field: changed[field]})
    said = difference(delta(records=tuple(written)), delta(records=tuple(others)))
    assert said == f"record {place + 1} of {len(written)} has another {field}"


@pytest.mark.parametrize(
    ("logged", "again", "said"),
    [
        (delta(error="down"), delta(error="down again"), None),
        (delta(error="down"), delta(), "failed in the log, and not this time"),
        (committed(), committed(error="down"), "failed this time"),
        (
            delta(records=(MemoryRecord(id="a", text="t", event_time_us=0),) * 2),
            delta(),
            "0 records, and 2 in the log",
        ),
    ],
)
def test_words_for_failures_and_numbers(logged: Written, again: Written, said: str | None) -> None:
    assert difference(logged, again) == said


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 9))
def test_a_rebuild_is_said_once_at_the_first_difference_or_at_the_end(same: list[bool], number: int) -> None:
    rebuild = Rebuild(number)
    for segment in range(len(same)):
        rebuild.expect(delta(segment))
    again = [delta(segment, error=None if as_it_was else "x") for segment, as_it_was in enumerate(same)]
    said = [rebuild.compare(event) for event in [*again, delta(len(same))]]
    first = same.index(False) if False in same else len(same) - 1
    (event,) = [event for event in said if event is not None]
    assert said.index(event) == first
    assert (event.rebuild, event.segments, event.as_of, event.causes) == (
        number,
        first + 1,
        first,
        (f"{LANE}/delta/{first}",),
    )
    differs = "" if all(same) else "/differs"
    assert event.id == f"{LANE}/rebuilt/{number}{differs}"
    assert bool(event.difference) == bool(differs)


def test_a_commit_that_differs_after_the_last_delta_is_said_as_well() -> None:
    rebuild = Rebuild()
    rebuild.expect(delta())
    rebuild.expect(committed())
    said = [rebuild.compare(delta()), rebuild.compare(committed(error="down"))]
    fold = RebuildFold()
    for event in reversed(said):
        assert event is not None
        fold.feed(event)
    (lane,) = fold.lanes()
    assert (lane.rebuilds, lane.differing) == (1, 1)
    assert lane.first == f"{TRAJECTORY}/committed: failed this time"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans())), st.randoms())
def test_rebuilds_are_counted_the_same_in_any_order(said: list[tuple[int, int, bool]], random: Any) -> None:
    events = [
        LaneRebuiltEvent(
            id="x",
            run="run",
            event_time_us=0,
            lane=f"one@{lane}",
            rebuild=number,
            segments=1,
            difference="another" if differs else "",
        )
        for lane, number, differs in said
    ]
    shuffled = random.sample(events, len(events))
    folds = RebuildFold(), RebuildFold()
    for fold, some in zip(folds, (events, shuffled), strict=True):
        for event in some:
            fold.feed(event)
    found = folds[0].lanes()
    assert found == folds[1].lanes()
    assert sum(lane.rebuilds for lane in found) == len({one[:2] for one in said})
    assert sum(lane.differing for lane in found) == len({one[:2] for one in said if one[2]})
    lines = [line for line in (same_line(found), differing_line(found)) if line is not None]
    assert sum(int(line.split()[0]) for line in lines) == len(found)


class Restless(Ledger):
    """Names what it keeps anew each time that it is made."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.name = str(self.made)

    def _keep(self, name: str, text: str, event_time_us: int) -> Delta:
        return super()._keep(f"{name}/{self.name}", text, event_time_us)


class Doubtful(Ledger):
    """Only what it makes of a commit is another thing each time."""

    made = 0

    def _keep(self, name: str, text: str, event_time_us: int) -> Delta:
        if name.startswith("commit"):
            type(self).made += 1
            text = f"{text}: {self.made}"
        return super()._keep(name, text, event_time_us)


async def again(
    kind: type[Ledger], isolation: Isolation, commits_held: int = 1
) -> tuple[list[LaneRebuiltEvent], list[LaneRebuiltEvent]]:
    """What a lane with two segments and a commit between them says when another takes it over: before the commit is
    asked for again, and after."""
    asked: CommitEvent = commit()
    segments: list[Segment] = []

    async def lived(history: LaneHistory | None) -> tuple[Lane, list[Written]]:
        lane = Lane(LANE, "A", "run", kind(), isolation, 30.0, history)
        results: list[Written | None] = []
        for number in (0, 1):
            if len(segments) == number:
                segments.append(segment_of(lane, number))
            results.append(await lane.ingest(segments[number], f"closed/{number}"))
            if number == 0 and history is None:
                await lane.answer_task(task())
                results.append(await lane.commit(asked))
        return lane, [result for result in results if result is not None]

    first, written = await lived(None)
    assert first.rebuilt() == []
    history = LaneHistory(deltas=2)
    for event in written:
        history.rebuild.expect(event)
    if isolation == "shared":
        history.commits += [asked] * commits_held
    history.results = {event.id: event for event in written if isinstance(event, CommittedEvent)}
    second, silent = await lived(history)
    assert silent == []
    ingested = second.rebuilt()
    await second.answer_task(task())
    assert await second.commit(asked) is None
    return ingested, second.rebuilt()


@pytest.mark.parametrize("isolation", ["branch", "shared"])
async def test_a_lane_that_comes_to_the_same_says_so(isolation: Isolation) -> None:
    (said,), later = await again(Ledger, isolation)
    assert (said.difference, said.segments, later) == ("", 2, [])


@pytest.mark.parametrize("isolation", ["branch", "shared"])
async def test_a_lane_that_comes_to_another_memory_says_where_first(isolation: Isolation) -> None:
    (said,), later = await again(Restless, isolation)
    assert said.difference == "record 1 of 1 has another id"
    assert (said.causes, said.segments, later) == ((f"{LANE}/delta/0",), 1, [])


async def test_a_commit_on_a_branch_is_compared_when_it_is_taken_in_again() -> None:
    (said,), (later,) = await again(Doubtful, "branch")
    assert said.difference == ""
    assert later.difference == "record 1 of 1 has another text"
    assert later.causes == (f"{TRAJECTORY}/committed",)


async def test_a_commit_of_the_one_memory_is_compared_in_its_turn() -> None:
    (said,), later = await again(Doubtful, "shared")
    assert said.difference == "record 1 of 1 has another text"
    assert (said.causes, said.segments, later) == ((f"{TRAJECTORY}/committed",), 1, [])


class Recovered(Ledger):
    """The first one fails the segment 1 and all commits, as one whose model is away; those after it would not."""

    away = False
    asked: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__()
        self.away, type(self).away = type(self).away, False

    def _keep(self, name: str, text: str, event_time_us: int) -> Delta:
        if self.away and name != "s0":
            raise ConnectionError("the model is away")
        self.asked.append(name)
        return super()._keep(name, text, event_time_us)


@pytest.mark.parametrize("isolation", ["branch", "shared"])
async def test_what_failed_in_the_log_is_left_out_again(isolation: Isolation) -> None:
    Recovered.away = True
    Recovered.asked.clear()
    (said,), later = await again(Recovered, isolation, commits_held=0)
    assert (said.difference, said.segments, later) == ("", 2, [])
    assert Recovered.asked == ["s0", "s0"]
