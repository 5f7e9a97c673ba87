"""Finished runs keep the invariants, whatever fails in them; and the checker that says so sees what is
broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from adapters.memory import LaneContext
from simulator.events import (
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    FeedbackEvent,
    Isolation,
    ObservationEvent,
    ResponseEvent,
    SegmentClosedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from tests.roles.harness import run_all
from tests.roles.invariants import History, anomalies
from tests.roles.systems import Flaky, Ledger

MODES: list[tuple[Isolation, bool]] = [("branch", False), ("branch", True), ("shared", False)]


def ledger(lane: str, stream: str) -> Ledger:
    return Ledger(LaneContext(lane=lane, stream=stream))


@pytest.mark.parametrize(("isolation", "ablate"), MODES)
async def test_run_of_sound_systems_keeps_the_invariants(
    tmp_path: Path, isolation: Isolation, ablate: bool
) -> None:
    history = await run_all(
        tmp_path, {"one": ledger, "two": ledger}, isolation=isolation, ablate_commit=ablate
    )
    assert anomalies(history) == []
    assert all(verdict.outcome != "unjudged" for verdict in history.of(VerdictEvent))
    assert {feedback.type for feedback in history.of(FeedbackEvent)} == {"affirm", "revise"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("isolation", "ablate"), MODES)
async def test_run_of_failing_systems_keeps_the_invariants(
    tmp_path: Path, isolation: Isolation, ablate: bool, seed: int
) -> None:
    def flaky(lane: str, stream: str) -> Flaky:
        return Flaky(LaneContext(lane=lane, stream=stream), seed=seed, share=0.15)

    history = await run_all(
        tmp_path, {"flaky": flaky, "sound": ledger}, isolation=isolation, ablate_commit=ablate
    )
    assert anomalies(history) == []
    failed = [v for v in history.of(VerdictEvent) if v.outcome == "unjudged"]
    assert failed
    assert all(verdict.lane.startswith("flaky@") for verdict in failed)


async def test_calls_that_never_return_end_with_their_deadline(tmp_path: Path) -> None:
    def hanging(lane: str, stream: str) -> Flaky:
        return Flaky(LaneContext(lane=lane, stream=stream), seed=1, share=0.4, hang=True)

    history = await run_all(tmp_path, {"hanging": hanging}, call_timeout_s=0.1)
    assert anomalies(history) == []
    errors = [e.error for e in history.of(DeltaEvent)] + [e.error for e in history.of(ResponseEvent)]
    assert "TimeoutError: nothing after 0.1 s" in errors


@cache
def _sound() -> History:
    """One sound run, to be broken in every way."""

    async def run() -> History:
        async with anyio.TemporaryDirectory() as folder:
            return await run_all(Path(folder), {"one": ledger, "two": ledger}, ablate_commit=True)

    return anyio.run(run)


def _without(kind: type[AnyEvent], index: int = 0) -> Callable[[History], History]:
    def breaks(history: History) -> History:
        gone = history.of(kind)[index]
        return History(tuple(event for event in history.events if event is not gone))

    return breaks


def _changed(kind: type[AnyEvent], **fields: object) -> Callable[[History], History]:
    def breaks(history: History) -> History:
        first = next(e for e in history.of(kind) if any(getattr(e, k) != v for k, v in fields.items()))
        changed = replace(first, **fields)
        return History(tuple(changed if event is first else event for event in history.events))

    return breaks


def _again(kind: type[AnyEvent], **fields: object) -> Callable[[History], History]:
    def breaks(history: History) -> History:
        return History((*history.events, replace(history.of(kind)[0], **fields)))

    return breaks


def _swapped(kind: type[AnyEvent]) -> Callable[[History], History]:
    def breaks(history: History) -> History:
        events = list(history.events)
        first = history.of(kind)[0]
        same = [
            e
            for e in history.of(kind)
            if getattr(e, "lane", e.stream) == getattr(first, "lane", first.stream)
        ]
        one, two = (events.index(event) for event in same[:2])
        events[one], events[two] = events[two], events[one]
        return History(tuple(events))

    return breaks


def _leak_from_the_future(history: History) -> History:
    first = history.of(ResponseEvent)[0]
    late = next(d for d in history.of(DeltaEvent) if d.lane == first.lane and d.segment == 4).records[0]
    return _leak(history, first, late.id, late.text)


def _leak_from_another_branch(history: History) -> History:
    commit = history.of(CommittedEvent)[0]
    other = next(
        r
        for r in history.of(ResponseEvent)
        if r.lane == commit.lane and r.trajectory != commit.trajectory and r.phase == "R2"
    )
    return _leak(history, other, commit.records[0].id, commit.records[0].text)


def _leak_into_the_uncommitted_arm(history: History) -> History:
    commit = history.of(CommittedEvent)[0]
    own = next(
        r for r in history.of(ResponseEvent) if r.trajectory == commit.trajectory and r.arm == "uncommitted"
    )
    return _leak(history, own, commit.records[0].id, commit.records[0].text)


def _leak(history: History, response: ResponseEvent, record: str, text: str) -> History:
    found = replace(response.retrieved[0], id=record, text=text, event_time_us=response.event_time_us)
    leaky = replace(response, retrieved=(*response.retrieved, found))
    return History(tuple(leaky if event is response else event for event in history.events))


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(_without(ObservationEvent, 3), id="an observation is missing"),
        pytest.param(_swapped(ObservationEvent), id="observations out of order"),
        pytest.param(_again(ObservationEvent), id="an observation after the end"),
        pytest.param(_without(SegmentClosedEvent), id="a segment is not closed"),
        pytest.param(_without(DeltaEvent), id="a delta is missing"),
        pytest.param(_again(DeltaEvent, id="again"), id="a delta twice"),
        pytest.param(_swapped(DeltaEvent), id="deltas out of order"),
        pytest.param(_changed(DeltaEvent, as_of=7), id="a delta as of another segment"),
        pytest.param(_changed(DeltaEvent, error="failed"), id="a task after a failed delta"),
        pytest.param(_without(TaskEvent), id="a task is missing"),
        pytest.param(_changed(TaskEvent, causes=()), id="a task before its delta"),
        pytest.param(_changed(ResponseEvent, as_of=7), id="a response as of another segment"),
        pytest.param(_changed(ResponseEvent, error="failed"), id="feedback to a failed response"),
        pytest.param(_changed(ResponseEvent, step=4), id="a response at another step"),
        pytest.param(_leak_from_the_future, id="a record from the future"),
        pytest.param(_leak_from_another_branch, id="a record of another branch"),
        pytest.param(_leak_into_the_uncommitted_arm, id="the commit in the arm without it"),
        pytest.param(_changed(FeedbackEvent, type="affirm"), id="no feedback where R1 failed"),
        pytest.param(_without(FeedbackEvent), id="feedback is missing"),
        pytest.param(_without(CommitEvent), id="a commit is missing"),
        pytest.param(_changed(CommittedEvent, causes=("x",)), id="committed without a commit"),
        pytest.param(_without(TrajectoryClosedEvent), id="a trajectory is not closed"),
        pytest.param(_changed(TrajectoryClosedEvent, reason="why"), id="a whole one closed early"),
        pytest.param(_without(VerdictEvent), id="a verdict is missing"),
        pytest.param(_again(VerdictEvent, id="again"), id="a verdict twice"),
        pytest.param(_changed(VerdictEvent, outcome="unjudged", reason=""), id="unjudged without a reason"),
    ],
)
def test_checker_sees_what_is_broken(breaks: Callable[[History], History]) -> None:
    assert anomalies(_sound()) == []
    assert anomalies(breaks(_sound())) != []
