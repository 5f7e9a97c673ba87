"""Who answers from the future: caught online, by the conductor or by the audit; seen offline, by its contamination."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from simulator.errors import InvariantError
from simulator.events import DeadLetterEvent, ResponseEvent, TrajectoryClosedEvent, VerdictEvent
from simulator.plan import plan_run
from simulator.results import audit_run
from simulator.run import execute
from simulator.runfolder import open_run
from tests.history import History
from tests.probes.helpers import options_for, run_of
from tests.probes.knowing import DATA, ONLINE, PeekingAgent
from tests.workers.rogues import LABEL

SYSTEM = "tests.probes.knowing:Knowing"


async def test_offline_contamination_tells_who_peeks_from_who_is_honest(tmp_path: Path) -> None:
    systems = (f"honest={SYSTEM}", f"peeking={SYSTEM}:peeks=true")
    scores, _ = await run_of(tmp_path, data=DATA, systems=systems, asked="offline")
    found = {f.system: f for f in scores.findings if f.name == "contamination_auroc_mcq"}
    honest, peeking = found["honest"], found["peeking"]
    assert honest.value is not None
    assert peeking.value is not None
    assert peeking.value > 0.6
    assert 0.4 < honest.value < 0.6
    for one in (honest, peeking):
        assert one.counts["right"] > 20 < one.counts["wrong"]
        assert 20 < one.counts["on_newer_records"] < one.n - 20
    # by hand: the share of (right, wrong) pairs in which the right one alone rests on something newer, ties half
    for system, value in (("honest", honest.value), ("peeking", peeking.value)):
        rows = [row for row in scores.rows if row.system == system]
        right = [row.newer for row in rows if row.marks["mcq_accuracy_offline"].outcome == "pass"]
        wrong = [row.newer for row in rows if row.marks["mcq_accuracy_offline"].outcome == "fail"]
        won = sum((a > b) + (a == b) / 2 for a in right for b in wrong)
        assert value == pytest.approx(won / len(right) / len(wrong), abs=1e-12)


async def test_an_agent_of_ours_that_peeks_online_ends_the_run(tmp_path: Path) -> None:
    options = options_for(tmp_path, data=ONLINE, systems=(f"peeking={SYSTEM}:peeks=true,online=true",))
    with pytest.raises(ExceptionGroup) as ended:
        await execute(plan_run(options))
    found = ended.value.subgroup(InvariantError)
    assert found is not None
    error: BaseException = found
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, InvariantError)
    assert "which is newer than the task" in str(error)
    (blamed,) = error.events
    async with open_run(tmp_path) as (log, started):
        history = await History.read(log, started.run)
    answer = next(event for event in history.of(ResponseEvent) if event.id == blamed)
    assert any(record.event_time_us > answer.event_time_us for record in answer.retrieved)
    rules = {finding.rule for finding in history.findings if blamed in finding.events}
    assert "newer_record" in rules


async def test_one_that_lies_about_how_old_its_records_are_is_found_by_the_audit(tmp_path: Path) -> None:
    systems = (f"lying={SYSTEM}:peeks=true,lies=true,online=true", f"honest={SYSTEM}:online=true")
    scores = await execute(plan_run(options_for(tmp_path, data=ONLINE, systems=systems)))
    assert scores.complete  # nobody saw anything while it ran
    certificate = await audit_run(tmp_path)
    assert not certificate.sound
    assert {finding.rule for finding in certificate.findings} == {"future_record"}
    assert {finding.invariant for finding in certificate.findings} == {"3"}
    blamed = [event for finding in certificate.findings for event in finding.events if event.endswith("/R1")]
    assert blamed
    assert all(event.startswith("lying@") for event in blamed)


@pytest.mark.parametrize("lies", [False, True])
async def test_an_attached_agent_that_peeks_online_is_buried_or_found(tmp_path: Path, lies: bool) -> None:
    log = str(tmp_path / "shared.db")
    # what is refused is waited for, and what is taken may come late
    more = {"systems": ("null",), "attached": (LABEL,), "answer_timeout_s": 60.0 if lies else 5.0, "log": log}
    options = options_for(tmp_path / "run", data=ONLINE, **more)
    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, plan_run(options))
            await PeekingAgent(lies=lies).run(log)
    async with open_run(tmp_path / "run") as (opened, started):
        history = await History.read(opened, started.run)
    theirs = [v for v in history.of(VerdictEvent) if v.lane.startswith(f"{LABEL}@")]
    assert theirs
    peeked = [
        v for v in theirs if (v.as_of or 0) + 1 < started.segments[v.stream]
    ]  # else nothing was to come
    assert len(peeked) > 3
    if lies:
        assert {v.outcome for v in peeked} == {"pass"}
        found = {(finding.rule, finding.invariant) for finding in history.findings}
        assert found == {("future_record", "3")}
        return
    assert history.findings == ()
    assert {(v.outcome, v.reason) for v in peeked} == {("unjudged", "no R1 within 5 s")}
    letters = [letter.reason for letter in history.of(DeadLetterEvent)]
    assert len(letters) == len(peeked)
    assert all("which is newer than the task" in reason for reason in letters)
    closed = [c for c in history.of(TrajectoryClosedEvent) if c.trajectory in {v.trajectory for v in peeked}]
    assert {c.reason for c in closed} == {"no R1 within 5 s"}
