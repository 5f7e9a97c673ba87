from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from producers.conductor import Conductor
from simulator.errors import InvariantError
from simulator.events import (
    DeltaEvent,
    Event,
    Questions,
    ResponseEvent,
    RetrievedRecord,
    RunEndedEvent,
    RunStartedEvent,
    TrajectoryClosedEvent,
)
from simulator.protocols.questions import Answers, QuestionName, question_of

LANE = "it@A"
STARTED = RunStartedEvent(
    id="run/started",
    run="run",
    event_time_us=0,
    identity={},
    streams=("A",),
    segments={"A": 2},
    systems=("it",),
    privileged=(),
    anchors=0,
    partitions=1,
    isolation="shared",
    questions=Questions(loaded=2, idle=1),
)


def answer(number: int, *, segment: int = 0, as_of: int = 0, error: str | None = None) -> ResponseEvent:
    trajectory = QuestionName(LANE, segment, number).trajectory
    return ResponseEvent(
        id=f"{trajectory}/R1",
        run="run",
        stream="A",
        event_time_us=(as_of + 1) * 10,
        as_of=as_of,
        causes=(f"{trajectory}/T1",),
        lane=LANE,
        trajectory=trajectory,
        step=1,
        phase="R1",
        error=error,
    )


def delta(segment: int) -> DeltaEvent:
    return DeltaEvent(
        id=f"{LANE}/delta/{segment}",
        run="run",
        stream="A",
        event_time_us=(segment + 1) * 10,
        as_of=segment,
        lane=LANE,
        segment=segment,
    )


@given(st.text(), st.integers(0, 10**6), st.integers(0, 4))
def test_a_question_s_name_is_read_back(lane: str, segment: int, number: int) -> None:
    name = QuestionName(lane or "l", segment, number)
    expected = name if number < 3 else None
    assert question_of(name.trajectory, Questions(loaded=2, idle=1)) == expected


@pytest.mark.parametrize("trajectory", ["it@A/s0/e0", "it@A/s0/q", "it@A/s00/q0", "it@A/s0/q01", "q0", ""])
def test_nothing_else_is_a_question(trajectory: str) -> None:
    assert question_of(trajectory, Questions(loaded=9)) is None


def test_an_answer_ends_its_trajectory() -> None:
    answers = Answers(STARTED)
    closed = answers.take(answer(1, segment=0, as_of=1))
    assert closed == TrajectoryClosedEvent(
        id=f"{LANE}/s0/q1/closed",
        run="run",
        stream="A",
        event_time_us=20,
        as_of=1,
        causes=(f"{LANE}/s0/q1/R1",),
        lane=LANE,
        trajectory=f"{LANE}/s0/q1",
        anchor="A/s0/q1",
    )
    assert answers.left == 2
    failed = answers.take(answer(0, error="no room"))
    assert failed is not None
    assert failed.reason == "R1 failed: no room"
    assert Answers(STARTED, closed=[closed.trajectory, failed.trajectory, "it@A/s0/e0"]).left == 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"lane": "it@B"}, "has lane 'it@B'"),
        ({"phase": "R2"}, "has phase 'R2'"),
        ({"arm": "uncommitted"}, "has arm"),
        ({"step": 7}, "has step 7"),
        ({"id": "mine"}, "has id 'mine'"),
        ({"as_of": 0}, "before the question"),
        ({"as_of": None}, "before the question"),
    ],
)
def test_an_answer_that_can_not_be_is_refused_and_changes_nothing(
    fields: dict[str, object], says: str
) -> None:
    answers = Answers(STARTED)
    good = answer(0, segment=1, as_of=1)
    with pytest.raises(InvariantError, match=says):
        answers.take(replace(good, **fields))  # type: ignore[arg-type]  # wrong on purpose
    assert answers.left == 3
    answers.take(good)
    with pytest.raises(InvariantError, match="question 0 has two answers"):
        answers.take(answer(0))


def test_the_run_ends_with_the_last_answer() -> None:
    conductor = Conductor(STARTED, ())
    out: list[Event] = []
    for event in (delta(0), answer(0), delta(1), answer(1, segment=1, as_of=1)):
        out += [*conductor.feed(event), *conductor.settle()]
    assert not [event for event in out if isinstance(event, RunEndedEvent)]
    out = [*conductor.feed(answer(2, segment=1, as_of=1)), *conductor.settle()]
    closed, ended = out
    assert isinstance(closed, TrajectoryClosedEvent)
    assert isinstance(ended, RunEndedEvent)
    assert (ended.trajectories, ended.verdicts, ended.unjudged) == (3, 0, 0)


def test_an_answer_that_rests_on_what_is_newer_than_itself_is_refused() -> None:
    conductor = Conductor(STARTED, ())
    conductor.feed(delta(0))
    future = RetrievedRecord(id="r", text="t", event_time_us=11)
    with pytest.raises(InvariantError, match="newer"):
        conductor.feed(replace(answer(0), retrieved=(future,)))
    assert conductor.feed(answer(0))


def test_a_conductor_that_takes_over_passes_over_what_was_closed() -> None:
    taken = answer(0)
    conductor = Conductor(STARTED, (), closed=[taken.trajectory], taken=[taken.id])
    assert conductor.feed(taken) == []
    with pytest.raises(InvariantError, match="two answers"):
        conductor.feed(answer(0, segment=1, as_of=1))
