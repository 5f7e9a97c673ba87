"""The audit of a load with questions: a real log is sound, and every way that we know of to corrupt it is found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from consumers.audit import AUDIT_TOPICS
from producers.arrivals import Load
from producers.questions import QuestionLoad
from simulator.events import (
    CommitEvent,
    DeltaEvent,
    ResponseEvent,
    RunEndedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from simulator.intake import read_to_end
from simulator.load.single import LoadOptions, execute_load, plan_load
from simulator.log.protocol import StoredRecord
from simulator.runfolder import open_run
from simulator.topics import Recorder, Topics
from tests.audit.forgery import Forgery
from tests.load.virtual import run

Corruption = Callable[[Forgery], str]


class Logged(NamedTuple):
    """A log read whole, as a forgery begins with it."""

    started: Any
    topics: Topics
    records: dict[tuple[str, int], list[StoredRecord]]
    recorder: Recorder


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """In virtual time: on a busy machine a question about a late segment might be answered as of the last."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return run(monkeypatch, partial(_logged, tmp_path_factory.mktemp("load")))


async def _logged(out: Path) -> Logged:
    options = LoadOptions(
        data="synthetic:wearers=1,segments_per_day=6,observations_per_segment=3,anchors_per_day=0",
        system="it=tests.load.systems:Asked:service_ms=2",
        out=out,
        load=Load(wearers=2, duration_s=1, rate=1500),
        questions=QuestionLoad(per_second=20, idle_s=0.2),
    )
    await execute_load(plan_load(options))
    records: dict[tuple[str, int], list[StoredRecord]] = defaultdict(list)
    async with open_run(out) as (log, started):
        topics = Topics.of(started.run)
        async for record in read_to_end(log, [getattr(topics, name) for name in AUDIT_TOPICS]):
            records[record.topic, record.partition].append(record)
    return Logged(started, topics, dict(records), Recorder.for_run(started))


CORRUPTIONS: list[tuple[str, Corruption]] = []


def corruption(rule: str) -> Callable[[Corruption], Corruption]:
    def keep(corrupt: Corruption) -> Corruption:
        CORRUPTIONS.append((rule, corrupt))
        return corrupt

    return keep


def late(log: Forgery) -> tuple[TaskEvent, ResponseEvent]:
    """A question about a later segment than the first, and its answer."""
    task = log.one(TaskEvent, lambda t: t.segment > 1)
    return task, log.one(ResponseEvent, lambda r: r.trajectory == task.trajectory)


@corruption("as_of")
def task_as_of_another_segment(log: Forgery) -> str:
    task, _ = late(log)
    return log.change(task, as_of=task.segment - 1).id


@corruption("task_without_delta")
def task_about_a_segment_that_was_not_published(log: Forgery) -> str:
    task, _ = late(log)
    log.drop(log.one(DeltaEvent, lambda d: (d.lane, d.segment) == (task.lane, task.segment)))
    return task.id


@corruption("before_cause")
def task_long_before_its_delta(log: Forgery) -> str:
    task, _ = late(log)
    log.set_wall(task, "wall_us", 1_700_000_000_000_000)
    return task.id


@corruption("causes")
def task_follows_another_delta(log: Forgery) -> str:
    task, _ = late(log)
    return log.change(task, causes=(f"{task.lane}/delta/0",)).id


@corruption("event_time")
def task_at_another_time(log: Forgery) -> str:
    task, _ = late(log)
    return log.change(task, event_time_us=task.event_time_us - 1).id


@corruption("as_of")
def answer_as_of_an_earlier_segment(log: Forgery) -> str:
    task, answer = late(log)
    return log.change(answer, as_of=task.segment - 1).id


@corruption("answer_without_delta")
def answer_as_of_a_segment_that_never_came(log: Forgery) -> str:
    _, answer = late(log)
    return log.change(answer, as_of=10_000).id


@corruption("event_time")
def answer_at_another_time(log: Forgery) -> str:
    _, answer = late(log)
    return log.change(answer, event_time_us=answer.event_time_us + 1).id


@corruption("future_record")
def answer_rests_on_a_later_segment(log: Forgery) -> str:
    _, answer = late(log)
    segment = (answer.as_of or 0) + 1
    delta = log.one(DeltaEvent, lambda d: (d.lane, d.segment) == (answer.lane, segment))
    found = replace(answer.retrieved[0], id=delta.records[0].id, text=delta.records[0].text)
    return log.change(answer, retrieved=(found,)).id


@corruption("newer_record")
def answer_rests_on_a_newer_record(log: Forgery) -> str:
    _, answer = late(log)
    found = replace(answer.retrieved[0], event_time_us=answer.event_time_us + 1)
    return log.change(answer, retrieved=(found,)).id


@corruption("unknown_record")
def answer_rests_on_what_was_never_stored(log: Forgery) -> str:
    _, answer = late(log)
    return log.change(answer, retrieved=(replace(answer.retrieved[0], id="made up"),)).id


@corruption("unasked")
def answer_that_nobody_asked_for(log: Forgery) -> str:
    task, answer = late(log)
    log.drop(task)
    return answer.id


@corruption("unasked")
def answer_to_what_a_question_has_not(log: Forgery) -> str:
    task, answer = late(log)
    log.append(replace(answer, id=f"{task.trajectory}/R2", phase="R2"))
    return f"{task.trajectory}/R2"


@corruption("unasked")
def commit_of_a_question(log: Forgery) -> str:
    task, _ = late(log)
    fields = {name: getattr(task, name) for name in ("run", "stream", "event_time_us", "lane", "trajectory")}
    commit = CommitEvent(id=f"{task.trajectory}/commit", step=4, interaction=(), **fields)
    log.append(commit)
    return commit.id


@corruption("causes")
def answer_to_another_question(log: Forgery) -> str:
    _, answer = late(log)
    return log.change(answer, causes=(f"{answer.lane}/s0/q0/T1",)).id


@corruption("step")
def answer_at_another_step(log: Forgery) -> str:
    _, answer = late(log)
    return log.change(answer, step=5).id


@corruption("twice")
def question_asked_about_two_segments(log: Forgery) -> str:
    task, _ = late(log)
    other = task.trajectory.replace(f"/s{task.segment}/", "/s0/")
    log.append(replace(task, id=f"{other}/T1", trajectory=other))
    return f"{other}/T1"


@corruption("trajectory")
def question_that_the_load_has_not(log: Forgery) -> str:
    task, _ = late(log)
    other = f"{task.lane}/s{task.segment}/q9999"
    log.append(replace(task, id=f"{other}/T1", trajectory=other))
    return f"{other}/T1"


@corruption("missing")
def answered_and_never_closed(log: Forgery) -> str:
    task, _ = late(log)
    log.drop(log.one(TrajectoryClosedEvent, lambda c: c.trajectory == task.trajectory))
    return f"{task.trajectory}/closed"


@corruption("missing")
def never_answered(log: Forgery) -> str:
    task, answer = late(log)
    log.drop(log.one(TrajectoryClosedEvent, lambda c: c.trajectory == task.trajectory))
    log.drop(answer)
    return f"{task.trajectory}/closed"


@corruption("causes")
def closed_without_an_answer(log: Forgery) -> str:
    task, answer = late(log)
    log.drop(answer)
    return f"{task.trajectory}/closed"


@corruption("closed_reason")
def closed_as_failed(log: Forgery) -> str:
    task, _ = late(log)
    closed = log.one(TrajectoryClosedEvent, lambda c: c.trajectory == task.trajectory)
    return log.change(closed, reason="R1 failed: no room").id


@corruption("closed_anchor")
def closed_as_an_anchor_s(log: Forgery) -> str:
    task, _ = late(log)
    closed = log.one(TrajectoryClosedEvent, lambda c: c.trajectory == task.trajectory)
    return log.change(closed, anchor="A/s0/e0").id


@corruption("verdict_without_trajectory")
def judged(log: Forgery) -> str:
    task, answer = late(log)
    fields = {name: getattr(task, name) for name in ("run", "stream", "event_time_us", "lane", "trajectory")}
    verdict = VerdictEvent(
        id=f"{task.trajectory}/ieu", anchor="", metric="ieu", outcome="pass", causes=(answer.id,), **fields
    )
    log.append(verdict)
    return verdict.id


@corruption("run_total")
def counted_wrong(log: Forgery) -> str:
    ended = log.one(RunEndedEvent)
    return log.change(ended, trajectories=ended.trajectories - 1).id


def test_the_log_to_be_corrupted_is_sound(logged: Logged) -> None:
    certificate = Forgery(logged).audit()  # type: ignore[arg-type]  # all that it needs of a world
    assert certificate.findings == ()
    assert certificate.open == ()
    assert certificate.ended
    assert certificate.checked["3"] > 0


@pytest.mark.parametrize(("rule", "corrupt"), CORRUPTIONS, ids=lambda value: getattr(value, "__name__", None))
def test_corruption_is_found(logged: Logged, rule: str, corrupt: Corruption) -> None:
    forgery = Forgery(logged)  # type: ignore[arg-type]
    blamed = corrupt(forgery)
    blames = [(finding.rule, finding.events) for finding in forgery.audit().findings]
    assert any(found == rule and blamed in events for found, events in blames), blames


def test_questions_of_a_load_under_way_are_open(logged: Logged) -> None:
    forgery = Forgery(logged)  # type: ignore[arg-type]
    task, answer = late(forgery)
    forgery.drop(forgery.one(RunEndedEvent))
    forgery.drop(forgery.one(TrajectoryClosedEvent, lambda c: c.trajectory == task.trajectory))
    forgery.drop(answer)
    certificate = forgery.audit()
    assert certificate.findings == ()
    assert any("1 of" in what and "no answer yet" in what for what in certificate.open)
