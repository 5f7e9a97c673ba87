"""Questions as they are worked out by hand: the real asker, replayer, log, agent and conductor, in virtual time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from consumers.answers import AnswersReport, AnswerTimes
from consumers.histogram import Histogram
from consumers.latency import LatencyReport
from producers.arrivals import Arrivals, Load, offer
from producers.datasets import read_dataset
from producers.questions import QuestionLoad, lay_out
from simulator.load.single import LoadOptions, execute_load, plan_load
from tests.load.queues import ONE_EACH, arrivals_s
from tests.load.test_theory import STEP_US
from tests.load.virtual import run


def asked(
    monkeypatch: pytest.MonkeyPatch, out: Path, system: str, load: Load, per_second: float
) -> tuple[LatencyReport, AnswersReport]:
    options = LoadOptions(
        data=ONE_EACH,
        system=f"it=tests.load.systems:{system}",
        out=out,
        load=load,
        questions=QuestionLoad(per_second=per_second),
    )
    report = run(monkeypatch, partial(execute_load, plan_load(options)))
    assert report.answers is not None
    for part in (report.answers.loaded, report.answers.idle):
        assert part.due == part.asked == part.answered > 0
    assert report.remembered == report.segments
    return report, report.answers


def always(times: AnswerTimes, stage: str, expected_ms: float) -> None:
    """All questions took so long to come to a stage."""
    numbers = times.stages[stage]
    assert numbers is not None
    assert numbers.n == times.answered
    for name in ("mean_us", "p50_us", "p99_us", "max_us"):
        assert getattr(numbers, name) == pytest.approx(expected_ms * 1e3, rel=0.001, abs=2 * STEP_US), stage


# A segment each 100 ms, ingested in 60 ms, and a question 50 ms after each is due, answered in 20 ms.
EVENLY = Load(duration_s=1.5, observations_per_second=10)


def test_a_memory_that_can_not_fork_answers_once_its_ingest_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question waits for the last 10 ms of the ingest, the next segment for nothing."""
    report, answers = asked(monkeypatch, tmp_path, "AskedInTurn:service_ms=60,answer_ms=20", EVENLY, 10)
    assert answers.on == {"it": "turn"}
    always(answers.loaded, "read", 0)
    always(answers.loaded, "begun", 10)
    always(answers.loaded, "answered", 30)
    always(answers.loaded, "answer", 20)
    always(answers.loaded, "received", 30)
    always(answers.idle, "begun", 0)
    always(answers.idle, "received", 20)
    assert answers.ratios["received"].p50 == pytest.approx(1.5, rel=0.002)
    assert answers.snapshot is None
    assert answers.loaded.stages["first_token"] is None
    begun = report.stages["begun"]
    assert begun is not None
    assert begun.max_us <= 2 * STEP_US


def test_a_memory_that_forks_answers_while_it_ingests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, answers = asked(monkeypatch, tmp_path, "Asked:service_ms=60,answer_ms=20,first_ms=5", EVENLY, 10)
    assert answers.on == {"it": "fork"}
    for part in (answers.loaded, answers.idle):
        always(part, "begun", 0)
        always(part, "first_token", 5)
        always(part, "answered", 20)
        always(part, "received", 20)
    assert answers.ratios["received"].p99 == pytest.approx(1, abs=0.001)


def test_forks_that_hold_up_the_process_show_in_their_own_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fork takes 3 ms. The ingest ends 48 ms after due, so the snapshot is there 1 ms after the question was due,
    which then needs 3 ms for a fork of its own. Idle, only these."""
    report, answers = asked(monkeypatch, tmp_path, "Asked:service_ms=48,answer_ms=20,fork_ms=3", EVENLY, 10)
    always(answers.loaded, "published", 1)
    always(answers.loaded, "branch", 3)
    always(answers.loaded, "begun", 4)
    always(answers.loaded, "received", 24)
    always(answers.idle, "published", 0)
    always(answers.idle, "received", 23)
    assert answers.snapshot is not None
    assert answers.snapshot.p50_us == answers.snapshot.max_us == 3000
    ended, written = report.stages["ended"], report.stages["written"]
    assert ended is not None
    assert written is not None
    assert ended.max_us == pytest.approx(48_000, abs=STEP_US)
    assert written.max_us == pytest.approx(51_000, abs=STEP_US)


def taking_turns_s(
    ends_s: list[float], service_s: float, asked_s: list[float], answer_s: float
) -> list[float]:
    """How long each question waits where one server takes first what came first; a segment comes to it when the one
    before has been ingested."""
    free_s = ingested_s = 0.0
    waits: list[float] = []
    segments, questions = list(reversed(ends_s)), list(reversed(asked_s))
    while questions:
        came_s = max(segments[-1], ingested_s) if segments else np.inf
        if questions[-1] < came_s:
            asked_at_s = questions.pop()
            begun_s = max(asked_at_s, free_s)
            waits.append(begun_s - asked_at_s)
            free_s = begun_s + answer_s
        else:
            segments.pop()
            free_s = ingested_s = max(came_s, free_s) + service_s
    return waits


@pytest.mark.parametrize("arrivals", ["regular", "poisson"])
def test_questions_and_ingest_take_turns_as_the_recursion_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrivals: Arrivals
) -> None:
    count, per_second, service_s, answer_s = 100, 50.0, 0.012, 0.005
    load = Load(duration_s=count / per_second, arrivals=arrivals, observations_per_second=per_second, seed=1)
    asking = QuestionLoad(per_second=36.18)  # so that no regular question is due with a segment
    plan = lay_out(offer(read_dataset(ONE_EACH).lifelogs, load), load, asking, "it")
    ends_s, due_s = arrivals_s(arrivals, per_second, count), [due.after_s for due in plan.loaded]
    assert due_s[0] > ends_s[0] + service_s  # else it waits for the first delta
    expected_s = taking_turns_s(ends_s, service_s, due_s, answer_s)
    system = "AskedInTurn:service_ms=12,answer_ms=5"
    _, answers = asked(monkeypatch, tmp_path, system, load, asking.per_second)
    begun = answers.loaded.stages["begun"]
    assert begun is not None
    assert begun.n == len(expected_s)
    assert begun.mean_us == pytest.approx(np.mean(expected_s) * 1e6, rel=0.001, abs=2 * STEP_US)
    ours = Histogram(round(wait_s * 1e6) for wait_s in expected_s).percentiles()
    assert ours is not None
    for name in ("p50_us", "p90_us", "p99_us", "max_us"):
        assert getattr(begun, name) == pytest.approx(getattr(ours, name), rel=0.001, abs=2 * STEP_US)
    assert begun.max_us > 0.8 * service_s * 1e6
