"""A load's questions: when they are due, what they ask, and what came of them on a real log."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.answers import ANSWER_STAGES, AnswersReport
from consumers.audit import audit_log
from consumers.latency import LatencyReport
from producers.arrivals import Load, offer
from producers.lifelog import DAY1_US
from producers.questions import QuestionLoad, QuestionPlan, lay_out, question_text
from simulator.errors import ConfigError
from simulator.events import DeltaEvent, ResponseEvent, TaskEvent, TrajectoryClosedEvent
from simulator.intake import read_events
from simulator.load.single import LoadOptions, execute_load, plan_load, read_latency
from simulator.load.sweep import Objective
from simulator.log.protocol import StoredRecord, header_of
from simulator.runfolder import open_run
from simulator.topics import Topics, wall_of
from tests.cli.helpers import egostream, one_line
from tests.load.test_arrivals import DATA as LIFELOGS
from tests.load.test_histogram import parsed
from tests.load.test_load import DATA
from tests.load.virtual import run

loads = st.builds(
    Load,
    wearers=st.integers(1, 5),
    duration_s=st.floats(5, 20),
    arrivals=st.sampled_from(["regular", "poisson"]),
    rate=st.floats(1200, 5000),
    seed=st.integers(0, 3),
)


def laid_out(load: Load, per_second: float, idle_s: float | None = None) -> QuestionPlan:
    return lay_out(offer(LIFELOGS, load), load, QuestionLoad(per_second=per_second, idle_s=idle_s), "it")


@settings(deadline=None, max_examples=40)
@given(loads, st.floats(2, 50))
def test_questions_are_due_in_turn_and_the_same_each_time(load: Load, per_second: float) -> None:
    plan = laid_out(load, per_second)
    assert plan == laid_out(load, per_second)
    numbers = [due.number for due in (*plan.loaded, *plan.idle)]
    assert numbers == list(range(len(numbers)))
    for part, until_s in ((plan.loaded, load.duration_s), (plan.idle, load.duration_s / 3)):
        times_s = [due.after_s for due in part]
        assert times_s == sorted(times_s)
        assert all(0 <= at_s <= until_s for at_s in times_s)
    second_s = {}
    for lane, lifelog in plan.lifelogs.items():
        segment = lifelog.segments[min(1, len(lifelog.segments) - 1)]
        second_s[lane] = (segment.end_time_us - DAY1_US) / 1e6 / plan.rate
    assert all(due.after_s >= second_s[due.lane] for due in plan.loaded)
    late = [due.lane for due in plan.loaded if due.after_s > max(second_s.values())]
    count = len(second_s)
    assert all(len(set(late[i : i + count])) == count for i in range(len(late) - count + 1))


@pytest.mark.parametrize("arrivals", ["regular", "poisson"])
def test_questions_keep_their_rate_whatever_that_of_life_is(arrivals: str) -> None:
    load = Load(duration_s=400, rate=2000, arrivals=arrivals)  # type: ignore[arg-type]  # one of the two
    plan = laid_out(load, 7, idle_s=300)
    within = 0.01 if arrivals == "regular" else 0.1
    assert len(plan.loaded) / 400 == pytest.approx(7, rel=within)
    assert len(plan.idle) / 300 == pytest.approx(7, rel=within)
    gaps_s = [now.after_s - before.after_s for before, now in itertools.pairwise(plan.loaded)]
    if arrivals == "regular":
        assert gaps_s == pytest.approx([1 / 7] * len(gaps_s))
    else:  # exponential: more than 1/e of the gaps are longer than the mean
        assert sum(gap_s > 1 / 7 for gap_s in gaps_s) / len(gaps_s) == pytest.approx(0.368, abs=0.04)


@given(st.integers(0, 5), st.integers(0, 100))
def test_a_question_is_of_what_the_stream_holds_by_then(segment: int, number: int) -> None:
    lifelog = next(iter(LIFELOGS.values()))
    text = question_text(lifelog, segment, 0, number)
    words = text.partition(": ")[2]
    held = lifelog.observations[: lifelog.segments[segment].last_seq + 1]
    assert words
    assert any(" ".join(said.text.split()).startswith(words) for said in held)


@pytest.mark.parametrize(
    ("load", "asked", "says"),
    [
        (Load(duration_s=5, rate=2000), QuestionLoad(per_second=float("inf")), "questions_per_second is inf"),
        (Load(duration_s=5, rate=2000), QuestionLoad(per_second=1, idle_s=-1), "idle_s is -1"),
        (Load(duration_s=5, rate=2000), QuestionLoad(per_second=1e6), "fit in memory"),
        (Load(duration_s=5, rate=2000), QuestionLoad(per_second=0.01), "no question is due"),
    ],
)
def test_what_can_not_be_asked_is_refused_with_what_to_do(load: Load, asked: QuestionLoad, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        lay_out(offer(LIFELOGS, load), load, asked, "it")


def options(out: Path, system: str, **more: object) -> LoadOptions:
    load = Load(wearers=2, duration_s=1.5, rate=2000, arrivals="poisson")
    given_ = {"data": DATA, "system": system, "out": out, "load": load, **more}
    return LoadOptions(questions=QuestionLoad(per_second=20), **given_)  # type: ignore[arg-type]


def answers_of(report: LatencyReport) -> AnswersReport:
    assert report.answers is not None
    return report.answers


async def read(folder: Path) -> list[tuple[object, StoredRecord]]:
    async with open_run(folder) as (log, started):
        topics = Topics.of(started.run)
        wanted = [topics.deltas, topics.tasks, topics.responses, topics.control]
        return [found async for found in read_events(log, started.run, wanted)]


@pytest.mark.parametrize(
    ("system", "on"),
    [
        ("rag_raw:retrieval=bm25", "fork"),
        ("it=tests.load.systems:Asked:service_ms=4,answer_ms=8,first_ms=3", "fork"),
        ("it=tests.load.systems:AskedInTurn:service_ms=4,answer_ms=8,first_ms=3", "turn"),
    ],
)
async def test_questions_are_asked_while_it_ingests_and_after(tmp_path: Path, system: str, on: str) -> None:
    plan = plan_load(options(tmp_path, system))
    report = await execute_load(plan)
    answers = answers_of(report)
    assert plan.questions is not None
    assert set(answers.on.values()) == {on}
    assert report.remembered == report.segments
    streams = "first_ms" in system
    for part, due in ((answers.loaded, plan.questions.loaded), (answers.idle, plan.questions.idle)):
        assert part.due == part.asked == part.answered == len(due) > 5
        assert (part.failed, part.unfinished) == (0, 0)
        reported = [stage for stage in ANSWER_STAGES if streams or stage != "first_token"]
        for earlier, later in itertools.pairwise(reported):
            before, after = part.stages[earlier], part.stages[later]
            assert before is not None
            assert after is not None
            assert before.n == after.n == part.answered
            assert before.mean_us <= after.mean_us
        assert (part.stages["first_token"] is not None) == streams
    assert (answers.snapshot is not None) == (on == "fork")
    async with open_run(tmp_path) as (log, started):
        assert await read_latency(log, started) == report
        certificate = await audit_log(log, started)
    assert certificate.sound, certificate
    assert certificate.ended
    written = msgspec.json.decode((tmp_path / "latency.json").read_bytes(), type=LatencyReport)
    assert written == report
    rows, footer = parsed((tmp_path / "latency-answers-loaded-received.hgrm").read_bytes())
    assert footer["TotalCount"] == rows[-1][2] == answers.loaded.answered
    assert (tmp_path / "latency-answers-idle-first_token.hgrm").is_file() == streams


@pytest.mark.parametrize(("system", "on"), [("Asked", "fork"), ("AskedInTurn", "turn")])
async def test_questions_are_asked_of_agents_in_processes_of_their_own(
    tmp_path: Path, system: str, on: str
) -> None:
    plan = plan_load(options(tmp_path, f"it=tests.load.systems:{system}:service_ms=4,answer_ms=4", agents=2))
    with anyio.fail_after(100):
        report = await execute_load(plan)
    answers = answers_of(report)
    assert answers.on == {"it": on}
    assert report.remembered == report.segments
    for part in (answers.loaded, answers.idle):
        assert part.due == part.answered > 5
    async with open_run(tmp_path) as (log, started):
        certificate = await audit_log(log, started)
    assert certificate.sound, certificate


async def test_a_question_is_about_the_newest_delta_and_its_stamps_are_in_headers(tmp_path: Path) -> None:
    report = await execute_load(
        plan_load(options(tmp_path, "it=tests.load.systems:Asked:service_ms=4,answer_ms=8,first_ms=3"))
    )
    found = await read(tmp_path)
    deltas = {(e.lane, e.segment): wall_of(r.headers) for e, r in found if isinstance(e, DeltaEvent)}
    tasks = {e.trajectory: (e, r) for e, r in found if isinstance(e, TaskEvent)}
    responses = {e.trajectory: (e, r) for e, r in found if isinstance(e, ResponseEvent)}
    closed = {e.trajectory for e, _ in found if isinstance(e, TrajectoryClosedEvent)}
    answers = answers_of(report)
    assert tasks.keys() == responses.keys() == closed
    assert len(tasks) == answers.loaded.due + answers.idle.due
    for trajectory, (task, record) in tasks.items():
        published_us, due_us = wall_of(record.headers), wall_of(record.headers, "due_us")
        delta_us = deltas[task.lane, task.segment]
        assert published_us is not None
        assert due_us is not None
        assert delta_us is not None
        assert delta_us <= published_us
        assert due_us <= published_us
        response, answered = responses[trajectory]
        assert response.as_of is not None
        assert task.as_of == task.segment <= response.as_of
        assert [r.id for r in response.retrieved] == [f"s{i}" for i in range(response.as_of + 1)]
        assert b"first_token" not in answered.value
        began_us = int(header_of(answered.headers, "began_us"))
        assert int(header_of(answered.headers, "first_token_us")) == began_us + 3000
    idle = [
        task for task, _ in tasks.values() if int(task.trajectory.rpartition("/q")[2]) >= answers.loaded.due
    ]
    last = {lane: max(s for at, s in deltas if at == lane) for lane, _ in deltas}
    assert len(idle) == answers.idle.due
    assert all(task.segment == last[task.lane] for task in idle)


def test_failed_answers_are_counted_and_have_no_latency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two memories answers four times; forks count for themselves, so a memory in turn shows it."""
    asked = options(tmp_path, "it=tests.load.systems:AskedInTurn:fails_after=4")
    answers = answers_of(run(monkeypatch, partial(execute_load, plan_load(asked))))
    assert answers.loaded.answered + answers.idle.answered == 8
    assert answers.loaded.failed + answers.idle.failed == answers.loaded.due + answers.idle.due - 8
    received = answers.loaded.stages["received"]
    assert received is not None
    assert received.n == answers.loaded.answered


def test_what_is_never_drained_is_not_asked_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ingest that hangs keeps no fork from being asked; but there is no idle time."""
    asked = options(tmp_path, "it=tests.load.systems:FixedTime:hangs_at=2", drain_s=5)
    report = run(monkeypatch, partial(execute_load, plan_load(asked)))
    answers = answers_of(report)
    assert report.unfinished > 0
    assert answers.loaded.answered == answers.loaded.due
    assert (answers.idle.asked, answers.idle.unfinished) == (0, answers.idle.due)
    assert answers.ratios == {}


def test_what_hangs_in_turn_holds_up_the_answers_and_they_are_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options(tmp_path, "it=tests.load.systems:HangsInTurn:hangs_at=3", drain_s=5)
    answers = answers_of(run(monkeypatch, partial(execute_load, plan_load(asked))))
    assert answers.loaded.asked == answers.loaded.due
    assert answers.loaded.unfinished > 0
    assert answers.loaded.answered > 0


def asking(out: Path) -> tuple[object, ...]:
    return ("--data", DATA, "--rate", 1500, "--duration", 1, "--out", out, "--questions-per-second", 20)


def test_the_command_asks_and_prints_both_parts(tmp_path: Path) -> None:
    ran = egostream("load", "null", *asking(tmp_path), env={"COLUMNS": "160"})
    assert ran.code == 0, ran.err
    assert "null answers on a fork of its newest snapshot" in ran.out
    assert "not streamed" in ran.out
    for title in ("while segments came in:", "after, idle:", "p99/idle"):
        assert title in ran.out
    assert egostream("audit", tmp_path).code == 0
    scores = egostream("scores", tmp_path)
    assert scores.code == 0
    assert "of no anchor" not in scores.out  # questions are none of somebody else's trajectories
    assert f"is a load: `egostream report {tmp_path}` tells how late" in scores.out.replace("\n", " ")


def test_the_command_gives_json_and_says_what_failed(tmp_path: Path) -> None:
    broken = "it=tests.load.systems:AskedInTurn:fails_after=1"
    ran = egostream(
        "load", broken, *asking(tmp_path), "--idle", 0, "--json", "-q", cwd=Path(__file__).parents[2]
    )
    assert ran.code == 4
    assert ran.json == json.loads((tmp_path / "latency.json").read_text())
    assert ran.json["answers"]["on"] == {"it": "turn"}
    assert ran.json["answers"]["loaded"]["failed"] > 0
    assert ran.json["answers"]["idle"]["due"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--idle", 3), "--idle goes with --questions-per-second"),
        (("--sweep", "rate", "--objective", "answer p99 < 1s"), "needs --questions-per-second"),
        (("--questions-per-second", 0.1), "no question is due"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[object, ...], says: str) -> None:
    common = ("--data", DATA, "--rate", 1500, "--duration", 1, "--out", tmp_path / "run", "-q")
    ran = egostream("load", "null", *common, *arguments)
    assert (ran.code, says in one_line(ran)) == (2, True)
    assert not (tmp_path / "run").exists()


async def test_an_objective_can_be_one_of_answers(tmp_path: Path) -> None:
    report = await execute_load(plan_load(options(tmp_path, "null")))
    assert Objective.parse("answer max < 60min").kept(report)
    assert not Objective.parse("answer p50 < 1us").kept(report)
    assert not Objective.parse("answer p50<0.001ms").kept(report)
    failed = msgspec.structs.replace(answers_of(report).loaded, failed=1)
    broken = msgspec.structs.replace(
        report, answers=msgspec.structs.replace(answers_of(report), loaded=failed)
    )
    assert not Objective.parse("answer max < 60min").kept(broken)
    with pytest.raises(ConfigError, match="needs --questions-per-second"):
        Objective.parse("answer p99 < 1s").kept(msgspec.structs.replace(report, answers=None))
