"""A lane that is asked while it ingests, without a log."""

from __future__ import annotations

import math
from typing import Any, Self

import pytest

from adapters.memory import Answer, Request
from consumers.history import LaneHistory
from consumers.lane import Lane
from consumers.questioned import QuestionedLane
from simulator.events import ResponseEvent, TaskEvent
from tests.roles.systems import Ledger
from tests.roles.test_lane import LANE, segment_of, task


class Counted(Ledger):
    """Counts how many of it and its forks are open."""

    def __init__(self, opened: list[int]) -> None:
        super().__init__()
        self.opened = opened
        opened.append(1)

    def fork(self) -> Self:
        self.opened.append(1)
        return super().fork()

    async def aclose(self) -> None:
        self.opened.pop()


class Unforkable(Ledger):
    def fork(self) -> Self:
        raise MemoryError("no room")


def lane_of(memory: Any, *, forks: bool, history: LaneHistory | None = None) -> QuestionedLane:
    return QuestionedLane(LANE, "A", "run", memory, "shared", 30.0, history, forks=forks)


async def ingested(lane: QuestionedLane, *segments: int) -> None:
    for number in segments:
        segment = segment_of(lane, number)
        async with lane.alone():
            delta = await lane.ingest(segment, f"closed/{number}")
            assert delta is None or delta.error is None
            lane.keep_newest(segment)


async def asked(lane: Lane, question: TaskEvent) -> ResponseEvent | None:
    """As the agent does it."""
    await lane.turn(question)
    async with lane.alone():
        await lane.isolate(question)
        return await lane.answer_task(question)


def question(number: int, segment: int = 0) -> TaskEvent:
    return task(trajectory=f"{LANE}/s{segment}/q{number}", segment=segment)


@pytest.mark.parametrize("forks", [True, False])
async def test_an_answer_is_as_of_the_newest_segment_and_at_its_time(forks: bool) -> None:
    lane = lane_of(Ledger(), forks=forks)
    await ingested(lane, 0, 1, 2)
    response = await asked(lane, question(0, segment=1))
    assert response is not None
    assert (response.as_of, response.event_time_us, response.causes) == (2, 6, (question(0, 1).id,))
    assert [record.id for record in response.retrieved] == ["s0", "s1", "s2"]


async def test_a_fork_does_not_see_what_is_being_ingested() -> None:
    """The memory has a segment more than its newest snapshot, as in the middle of an ingest."""
    memory = Ledger()
    lane = lane_of(memory, forks=True)
    await ingested(lane, 0)
    memory._keep("half", "half of it", 3)
    response = await asked(lane, question(0))
    assert response is not None
    assert [record.id for record in response.retrieved] == ["s0"]


async def test_without_forks_the_memory_is_asked_itself() -> None:
    memory = Ledger()
    lane = lane_of(memory, forks=False)
    await ingested(lane, 0)
    memory._keep("more", "more of it", 1)
    response = await asked(lane, question(0))
    assert response is not None
    assert [record.id for record in response.retrieved] == ["s0", "more"]


async def test_snapshots_and_forks_are_closed() -> None:
    opened: list[int] = []
    lane = lane_of(Counted(opened), forks=True)
    await ingested(lane, 0, 1, 2)
    assert len(opened) == 4
    await lane.release(1)
    assert len(opened) == 2  # the memory and the newest snapshot
    for number in range(3):
        await asked(lane, question(number, 2))
    assert len(opened) == 5
    await lane.end_trajectory(question(0, 2).trajectory)
    assert len(opened) == 4
    await ingested(lane, 3)
    await lane.aclose()
    assert opened == []


async def test_a_fork_that_fails_is_the_answer_s_failure_and_not_the_segment_s() -> None:
    lane = lane_of(Unforkable(), forks=True)
    await ingested(lane, 0)
    response = await asked(lane, question(0))
    assert response is not None
    assert response.error == "fork failed: MemoryError: no room"
    assert response.as_of == 0


async def test_what_the_log_holds_is_not_answered_again() -> None:
    first = lane_of(Ledger(), forks=True)
    await ingested(first, 0)
    response = await asked(first, question(0))
    assert response is not None
    history = LaneHistory(deltas=1, results={response.id: response}, closed={question(1).trajectory})
    lane = lane_of(Ledger(), forks=True, history=history)
    await ingested(lane, 0)
    assert await asked(lane, question(0)) is None
    assert await asked(lane, question(1)) is None
    assert await asked(lane, question(2)) is not None


class Streams(Ledger):
    def __init__(self, first_token_s: Any) -> None:
        super().__init__()
        self.first_token_s = first_token_s

    async def answer(self, request: Request) -> Answer:
        return Answer(text="yes", first_token_s=self.first_token_s)


async def test_a_first_token_is_told_once_and_is_no_part_of_the_event() -> None:
    lane = lane_of(Streams(0.25), forks=True)
    await ingested(lane, 0)
    response = await asked(lane, question(0))
    assert response is not None
    assert "first" not in str(response)
    assert lane.first_token_s(response.id) == 0.25
    assert lane.first_token_s(response.id) is None


@pytest.mark.parametrize("nonsense", [-1, math.nan, math.inf, "soon"])
async def test_a_first_token_at_no_time_is_the_answer_s_failure(nonsense: object) -> None:
    lane = lane_of(Streams(nonsense), forks=True)
    await ingested(lane, 0)
    response = await asked(lane, question(0))
    assert response is not None
    assert response.text == ""
    assert response.error == f"first_token_s is {nonsense!r}, not a number of seconds"
