"""The tap: places, filters, and which records come, in a log of hand-made records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from consumers.tap import Place, TapCount, compile_pattern, parse_condition, parse_place, tap
from simulator.errors import ConfigError
from simulator.eventtime import DAY1_US
from simulator.log import open_log
from simulator.log.protocol import Log, Record

TOPIC = "run.things"
SECOND_US = 1_000_000


def thing(seq: int, second: int, partition: int = 0, value: bytes | None = None) -> Record:
    value = b'{"kind":"thing","seq":%d}' % seq if value is None else value
    return Record(TOPIC, b"k", value, (DAY1_US + second * SECOND_US) // 1000, (), partition)


@asynccontextmanager
async def log_of(folder: Path, *records: Record, partitions: int = 1) -> AsyncIterator[Log]:
    async with open_log(str(folder / "log.db")) as log:
        await log.create_topics({TOPIC: partitions})
        await log.append(records)
        yield log


async def seqs(log: Log, count: TapCount | None = None, **options: object) -> list[int]:
    found = tap(log, TOPIC, count or TapCount(), **options)  # type: ignore[arg-type]  # whatever the test gives
    with anyio.fail_after(30):
        return [tapped.event["seq"] async for tapped in found if tapped.event is not None]


def at(second: int) -> Place:
    return Place(time_us=DAY1_US + second * SECOND_US)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0", Place(offset=0)),
        ("17", Place(offset=17)),
        ("DAY1", Place(time_us=DAY1_US)),
        ("DAY1 00:00:05", at(5)),
        ("2025-08-16T00:00:05", at(5)),
    ],
)
def test_a_place_is_an_offset_or_an_event_time(text: str, place: Place) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", "-1", "1.5", "²", "yesterday"])
def test_anything_else_is_no_place(text: str) -> None:
    with pytest.raises(ConfigError, match="no event time"):
        parse_place(text)


VERDICT = {
    "kind": "verdict",
    "metric": "fur",
    "scores": {"evidence": 0.4},
    "as_of": 7,
    "text": "two\nlines of coffee",
    "flag": True,
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("metric=fur", True),
        (" metric = fur ", True),
        ("metric!=fur", False),
        ("metric=fu", False),
        ("as_of=7", True),
        ("as_of>=7", True),
        ("as_of>7", False),
        ("as_of<7.5", True),
        ("as_of<=6", False),
        ("scores.evidence<0.5", True),
        ("scores.nothing<0.5", False),
        ("metric.deeper=null", True),
        ("metric<3", False),
        ("flag=true", True),
        ("flag<3", False),
        ("text~^two\\nlines", True),
        ("text~(?i)COFFEE", True),
        ("text~tea", False),
        ("nothing=null", True),
        ("nothing!=null", False),
        ("reason=", True),
        ("metric~f.r", True),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    assert parse_condition(condition)(VERDICT) is holds


def test_a_field_that_is_left_out_has_its_default() -> None:
    task = {"kind": "task", "phase": "T1"}
    assert parse_condition("arm=committed")(task)
    assert not parse_condition("arm!=committed")(task)
    assert parse_condition("arm=uncommitted")({**task, "arm": "uncommitted"})
    assert parse_condition("arm=null")({"kind": "of somebody else"})


@pytest.mark.parametrize("condition", ["metric", "=3", "a b=3", "as_of>many", "text~(", ""])
def test_a_wrong_condition_is_said_to_be_wrong(condition: str) -> None:
    with pytest.raises(ConfigError):
        parse_condition(condition)


async def test_offsets_and_times_bound_what_is_read(tmp_path: Path) -> None:
    async with log_of(tmp_path, *(thing(i, 10 * i) for i in range(6))) as log:
        assert await seqs(log) == [0, 1, 2, 3, 4, 5]
        assert await seqs(log, start=Place(offset=4)) == [4, 5]
        assert await seqs(log, end=Place(offset=2)) == [0, 1]
        assert await seqs(log, start=Place(offset=9)) == []
        assert await seqs(log, start=at(20), end=at(40)) == [2, 3]
        assert await seqs(log, start=at(11), end=at(31)) == [2, 3]
        assert await seqs(log, start=at(20), end=at(40), in_time_order=True) == [2, 3]
        assert await seqs(log, start=at(51)) == []


async def test_where_times_go_back_records_are_chosen_by_their_own(tmp_path: Path) -> None:
    """Two lanes of one partition: the slow one writes of the past when the fast one is far ahead."""
    async with log_of(tmp_path, *(thing(i, second) for i, second in enumerate([0, 50, 10, 60, 20]))) as log:
        count = TapCount()
        assert await seqs(log, count, start=at(10), end=at(50)) == [2, 4]
        assert (count.read, count.outside, count.matched) == (4, 2, 2)


async def test_last_are_the_last_that_match_over_all_partitions(tmp_path: Path) -> None:
    records = [thing(i, i, partition=i % 2) for i in range(20)]
    async with log_of(tmp_path, *records, partitions=2) as log:
        assert len(await seqs(log, last=3)) == 3
        even = [parse_condition("seq<10"), parse_condition("seq~[02468]$")]
        assert await seqs(log, last=2, conditions=even) == [6, 8]
        assert await seqs(log, last=2, limit=1, conditions=even) == [6]
        assert sorted(await seqs(log, last=50)) == list(range(20))


async def test_limit_counts_matches(tmp_path: Path) -> None:
    async with log_of(tmp_path, *(thing(i, i) for i in range(6))) as log:
        count = TapCount()
        assert await seqs(log, count, limit=2, grep=compile_pattern('"seq":[135]')) == [1, 3]
        assert count.matched == 2


async def test_what_is_no_event_is_shown_and_meets_no_condition(tmp_path: Path) -> None:
    broken = (b"\xff\xfe not JSON", b"[1, 2]", b"")
    records = [thing(0, 0), *(thing(-1, i + 1, value=value) for i, value in enumerate(broken))]
    async with log_of(tmp_path, *records) as log:
        shown = [tapped async for tapped in tap(log, TOPIC, TapCount())]
        assert [tapped.record.value for tapped in shown if tapped.event is None] == list(broken)
        assert await seqs(log, conditions=[parse_condition("seq>=0")]) == [0]
        grepped = tap(log, TOPIC, TapCount(), grep=compile_pattern("not JSON"))
        assert [tapped.record.offset async for tapped in grepped] == [1]


async def test_following_says_once_that_it_waits_and_gives_what_comes(tmp_path: Path) -> None:
    async with log_of(tmp_path, thing(0, 0), thing(1, 10)) as log:
        waits: list[str] = []
        came: list[int] = []

        async def follow() -> None:
            async for tapped in tap(
                log, TOPIC, TapCount(), last=1, limit=3, follow=True, at_end=lambda: waits.append("waits")
            ):
                assert tapped.event is not None
                came.append(tapped.event["seq"])

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                await until(lambda: bool(waits))
                assert came == [1]
                await log.append([thing(2, 20)])
                await until(lambda: len(came) == 2)
                await log.append([thing(3, 30), thing(4, 40)])
        assert came == [1, 2, 3]
        assert waits == ["waits"]


@pytest.mark.parametrize("end", [at(20), Place(offset=2)])
async def test_following_stops_at_its_end_in_a_topic_in_time_order(tmp_path: Path, end: Place) -> None:
    async with log_of(tmp_path, thing(0, 0)) as log:
        came: list[int] = []

        async def follow() -> None:
            came.extend(await seqs(log, end=end, follow=True, in_time_order=True))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                await log.append([thing(1, 10)])
                await log.append([thing(2, 20), thing(3, 30)])
        assert came == [0, 1]


async def test_following_waits_for_an_offset_that_is_yet_to_come(tmp_path: Path) -> None:
    async with log_of(tmp_path, thing(0, 0)) as log:
        came: list[int] = []

        async def follow() -> None:
            came.extend(await seqs(log, start=Place(offset=2), limit=1, follow=True))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                await log.append([thing(1, 10), thing(2, 20)])
        assert came == [2]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # it is the log that moves, and it sets no event
        await anyio.sleep(0.01)


async def test_a_topic_without_records_gives_nothing(tmp_path: Path) -> None:
    nothing: Sequence[int] = []
    async with log_of(tmp_path, partitions=2) as log:
        assert await seqs(log) == nothing
        assert await seqs(log, last=3) == nothing
        assert await seqs(log, start=at(0)) == nothing
