"""The fold over answers, on logs made by hand."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.answers import AnswersFold, AnswersReport
from consumers.histogram import Histogram
from consumers.latency import LatencyFold
from simulator.cli import common
from simulator.cli.answer_tables import show_answers
from simulator.events import Questions, TaskEvent
from simulator.protocols.questions import Answers, QuestionName
from simulator.report.answers_section import answers_section
from simulator.report.words import CLOCK_MARK, answered_text
from tests.load.test_latency import NOW_US, Fed, stamped
from tests.protocols.test_questions import LANE, STARTED, answer, delta

MANY = replace(STARTED, questions=Questions(loaded=5000))


def question(number: int, due_us: int, **times_us: int) -> list[Fed]:
    """One question, published 1 µs after it was due; with `ended_us`, all that follows too: each stage 1 µs after what
    it waits for."""
    name = QuestionName(LANE, 0, number)
    task = TaskEvent(
        id=f"{name.trajectory}/T1",
        run="run",
        stream="A",
        event_time_us=10,
        lane=LANE,
        trajectory=name.trajectory,
        step=0,
        phase="T1",
        segment=0,
        text="?",
    )
    fed: list[Fed] = [(task, stamped(due_us=NOW_US + due_us, wall_us=NOW_US + due_us + 1))]
    if "ended_us" in times_us:
        ended_us = times_us["ended_us"]
        known = {
            "read_us": due_us + 2,
            "isolating_us": due_us + 3,
            "began_us": due_us + 5,
            "wall_us": ended_us + 1,
        }
        response = answer(number)
        closed = Answers(MANY).take(response)
        assert closed is not None
        fed.append((response, stamped(**{k: NOW_US + at_us for k, at_us in (known | times_us).items()})))
        fed.append((closed, stamped(read_us=NOW_US + ended_us + 2, wall_us=NOW_US + ended_us + 3)))
    return fed


def folded(fed: list[Fed], questions: Questions) -> AnswersReport:
    fold = LatencyFold(replace(STARTED, questions=questions))
    for event, headers in fed:
        fold.feed(event, headers)
    answers = fold.report().answers
    assert answers is not None
    return answers


def test_each_stage_runs_from_due_and_what_is_missing_is_said() -> None:
    failed = question(2, 50, ended_us=9_000_000)
    failed[1] = (replace(answer(2), error="no room"), failed[1][1])
    fed = [
        *question(0, 0, ended_us=100, first_token_us=40),
        *question(1, 1000),  # nobody answered it
        *failed,
        *question(4, 7_000_000, ended_us=7_000_050),
        (delta(0), stamped(ended_us=NOW_US + 7, snapshot_us=NOW_US + 16)),
    ]
    answers = folded(fed, Questions(loaded=4, idle=1))
    loaded, idle = answers.loaded, answers.idle
    assert (loaded.due, loaded.asked, loaded.answered, loaded.failed, loaded.unfinished) == (4, 3, 1, 1, 2)
    assert (idle.due, idle.asked, idle.answered, idle.failed, idle.unfinished) == (1, 1, 1, 0, 0)
    assert "1 failed, 2 unfinished (1 of them not asked): the percentiles" in answered_text(loaded)
    assert answered_text(idle) == "1 of 1 answered"
    found = {name: numbers.max_us for name, numbers in loaded.stages.items() if numbers is not None}
    assert found == {
        "published": 1,
        "read": 2,
        "begun": 5,
        "first_token": 40,
        "answered": 100,
        "written": 101,
        "received": 102,
        "branch": 2,
        "answer": 95,
    }
    assert idle.stages["first_token"] is None
    assert "first_token" not in answers.ratios  # no ratio to what there is not
    assert answers.ratios["answered"].p50 == 2
    assert answers.on == {"it": "turn"}
    assert loaded.asked_per_s == pytest.approx(2 / 0.001)
    assert answers.snapshot is not None
    assert answers.snapshot.max_us == 9


def test_a_stall_counts_for_all_questions_that_it_delayed() -> None:
    """100 a second for 30 s, one answered after the other in 1 ms; but that at 10 s takes 1 s. From there question i is
    answered at 1 s + i ms, having been due at 10 i ms: 1 s - 9 i ms, until all is caught up at i = 111."""
    fed: list[Fed] = []
    free_us = 0
    for number in range(3000):
        due_us = number * 10_000
        began_us = max(due_us + 5, free_us)
        free_us = began_us + (1_000_000 if number == 1000 else 1000)
        fed += question(number, due_us, began_us=began_us, ended_us=free_us)
    answers = folded(fed, Questions(loaded=3000))
    answered, alone = answers.loaded.stages["answered"], answers.loaded.stages["answer"]
    assert answered is not None
    assert alone is not None
    # one in a hundred (30) took more than 1 s - 9 × 30 ms
    assert answered.p50_us == pytest.approx(1005, rel=0.01)
    assert (answered.p99_us, answered.max_us) == pytest.approx((730_000, 1_000_000), rel=0.02)
    assert alone.p99_us == pytest.approx(1000, rel=0.01)  # what a closed loop would have seen


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 9999), st.integers(10, 9999)), min_size=1, max_size=20),
    st.integers(0, 99),
)
def test_neither_the_order_nor_the_division_of_what_is_read_changes_anything(
    life: list[tuple[int, int]], seed: int
) -> None:
    fed = [
        one
        for n, (due_us, took_us) in enumerate(life)
        for one in question(n, due_us, ended_us=due_us + took_us)
    ]
    questions = Questions(loaded=len(life))
    expected = folded(fed, questions)
    shuffled = list(fed)
    Random(seed).shuffle(shuffled)
    assert folded(shuffled, questions) == expected
    merged = Histogram()
    for part in (fed[: len(life) // 2 * 3], fed[len(life) // 2 * 3 :]):
        numbers = folded(part, questions).loaded.stages["answered"]
        if numbers is not None:
            merged.add(Histogram.of(numbers))
    whole, together = expected.loaded.stages["answered"], merged.percentiles()
    assert whole is not None
    assert together is not None
    assert (together.n, together.p50_us, together.max_us) == (whole.n, whole.p50_us, whole.max_us)


def test_stamps_of_another_clock_are_taken_by_the_asker_s_or_left_out() -> None:
    """The agent's clock is an hour ahead: only what one clock says twice needs no correction."""
    ahead_us = 3_600_000_000
    times_us = {name: ahead_us + at_us for name, at_us in (("read_us", 2), ("began_us", 5), ("wall_us", 101))}
    fed = question(0, 0, ended_us=100, **times_us)
    fed[1] = (
        fed[1][0],
        stamped(ended_us=NOW_US + ahead_us + 100, **{k: NOW_US + v for k, v in times_us.items()}),
    )
    fold = AnswersFold(STARTED, Questions(loaded=1))
    for event, headers in fed:
        fold.feed(event, headers)
    known = fold.report({LANE: float(ahead_us)}).loaded
    found = {name: numbers.max_us for name, numbers in known.stages.items() if numbers is not None}
    assert found == {
        "published": 1,
        "read": 2,
        "begun": 5,
        "answered": 100,
        "written": 101,
        "received": 102,
        "answer": 95,
    }
    unknown = fold.report({LANE: None}, conductor=False).loaded
    assert {name for name, numbers in unknown.stages.items() if numbers is not None} == {
        "published",
        "answer",
    }
    assert unknown.answered == 1


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which no cell is broken into lines."""
    monkeypatch.setattr(common.out, "width", 160)


@pytest.mark.usefixtures("wide")
def test_what_the_error_of_a_clock_hides_is_said_of_answers(capsys: pytest.CaptureFixture[str]) -> None:
    fold = AnswersFold(STARTED, Questions(loaded=1))
    for event, headers in question(0, 0, ended_us=9_000):
        fold.feed(event, headers)
    sure, unsure = fold.report({LANE: 0.0}), fold.report({LANE: 0.0}, error_us=4_000)
    assert sure.error_us == {}
    show_answers(sure)
    said = capsys.readouterr().out
    assert "†" not in said
    assert "~" not in said

    assert unsure.error_us == dict.fromkeys(("read", "begun", "first_token", "answered", "written"), 4_000)
    show_answers(unsure)
    said = capsys.readouterr().out
    rows = {line[1:30].strip(): line for line in said.partition("after, idle:")[0].splitlines()}
    assert rows["read by the agent †"].count("~") == 5
    assert "~" not in rows["answered †"]  # 9 ms later
    assert "answer read by a consumer" in rows
    assert "† by a clock that is known within ± 4.0 ms (clock error)" in said
    assert "\n~ of what lies between" in said
    section = answers_section(unsure)
    assert CLOCK_MARK in section.text
    cells = [cell.text for row in section.tables[0].rows for cell in row]
    assert "read by the agent (± 4.0 ms)" in cells
    assert "~2 µs" in cells
    assert "answer read by a consumer" in cells

    far = fold.report({LANE: 0.0}, error_us=0.4)
    show_answers(far)
    said = capsys.readouterr().out
    assert "† by a clock that is known within" in said
    assert "~" not in said
    assert CLOCK_MARK not in answers_section(far).text


@pytest.mark.usefixtures("wide")
def test_of_no_answer_nobody_knows_whether_it_is_streamed(capsys: pytest.CaptureFixture[str]) -> None:
    def cells(answers: AnswersReport) -> list[str]:
        (table,) = answers_section(answers).tables
        return [row[2].text for row in table.rows if row[0].text == "first token"]

    answered = folded(question(0, 0, ended_us=100), Questions(loaded=1, idle=1))
    show_answers(answered)
    assert capsys.readouterr().out.count("not streamed") == 1
    assert cells(answered) == ["not streamed", "0"]
