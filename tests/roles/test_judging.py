"""The judges' role in a run: a judge that fails, in whatever way, leaves its cases unjudged and nothing
else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from msgspec.structs import replace

from consumers.judging import run_judges
from judges.deterministic import official_judges
from judges.judge import Case, Judge, Judgment
from judges.panel import JudgePanel
from producers.conductor import Conductor
from simulator.events import (
    AnchorMetric,
    DeltaEvent,
    Event,
    FeedbackDraft,
    Metric,
    ResponseEvent,
    RunEndedEvent,
    TakenEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from simulator.intake import decode_records
from simulator.log import SqliteLog
from simulator.protocols.trajectory import about
from simulator.topics import Recorder, Topics
from tests.protocols.scripted import LANE, anchor_of, delta_of, response_to
from tests.roles.harness import run_all
from tests.roles.systems import Ledger
from tests.roles.test_conductor import started_with


class Broken:
    """Fails at one metric, and judges what else it is asked for as `inner` does."""

    def __init__(self, inner: Judge, metric: Metric, how: Callable[[], Awaitable[Any]]) -> None:
        self.inner, self.metric, self.how = inner, metric, how

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def metrics(self) -> frozenset[Metric]:
        return self.inner.metrics

    async def judge(self, case: Case) -> Judgment:
        if case.metric == self.metric:
            judgment: Judgment = await self.how()
            return judgment
        return await self.inner.judge(case)


async def raises() -> Any:
    raise ConnectionError("model is down")


async def cancels_itself() -> Any:
    raise asyncio.CancelledError


async def gives_nothing() -> Any:
    return None


async def scores_nan() -> Any:
    draft = FeedbackDraft(type="affirm", text="fine")
    return Judgment(outcome="pass", scores={"overlap": math.nan}, feedback=draft)


async def makes_up_an_outcome() -> Any:
    return Judgment(outcome="perhaps")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("how", [raises, cancels_itself, gives_nothing, scores_nan, makes_up_an_outcome])
@pytest.mark.parametrize("metric", ["fidelity", "ieu", "fi", "fur"])
async def test_failing_judge_leaves_its_metric_unjudged(
    tmp_path: Path, metric: Metric, how: Callable[[], Awaitable[Any]]
) -> None:
    judges = [Broken(judge, metric, how) for judge in official_judges()]
    history = await run_all(tmp_path, {"one": lambda *_: Ledger()}, judges=judges)
    assert history.findings == ()
    lost = {v.metric for v in history.of(VerdictEvent) if v.outcome == "unjudged"}
    assert lost == ({"ieu", "fur"} if metric == "ieu" else {metric})
    for verdict in history.of(VerdictEvent):
        assert (verdict.outcome == "unjudged") == (verdict.metric in lost)
        assert verdict.reason or verdict.outcome != "unjudged"
    for closed in history.of(TrajectoryClosedEvent):
        assert closed.unjudged == (("fur",) if metric == "ieu" else ())


class Reads:
    """Passes everything, and keeps what it was given."""

    name = "reads"
    metrics = frozenset(get_args(AnchorMetric))

    def __init__(self) -> None:
        self.cases: list[tuple[Metric, str]] = []

    async def judge(self, case: Case) -> Judgment:
        self.cases.append((case.metric, case.text))
        return Judgment(outcome="pass", feedback=FeedbackDraft(type="affirm", text="fine"))


async def test_of_an_attached_agent_is_judged_what_the_conductor_took(tmp_path: Path) -> None:
    """Two answers under one id, of which the second was in time, and one that never was."""
    anchor = anchor_of(segment=0)
    started = replace(started_with(1, 1), attached=("rag_raw",))
    recorder, topics = Recorder.for_run(started), Topics.of("run")
    (task,) = Conductor(started, [anchor]).feed(delta_of(anchor))
    assert isinstance(task, TaskEvent)
    response = response_to(task)
    reader = Reads()
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(topics.partitions(1))

        async def write(*events: Event) -> None:
            await log.append([recorder.record(event) for event in events])

        async def written(kind: type[Event], count: int) -> list[Event]:
            found: list[Event] = []
            async with log.subscribe([topics.verdicts, topics.control]) as subscription:
                while len(found) < count:
                    found += [
                        e
                        for e, _ in decode_records("run", await subscription.poll())[0]
                        if isinstance(e, kind)
                    ]
            return found

        def taken(event: DeltaEvent | ResponseEvent, topic: str, offset: int) -> TakenEvent:
            return TakenEvent(**about(event, f"{event.id}/taken"), topic=topic, partition=0, offset=offset)

        delta = delta_of(anchor)
        await write(anchor, delta, *(replace(response, text=text) for text in ("too soon", "asked")))
        await write(taken(delta, topics.deltas, 0))  # what is said before the judges begin counts as well
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_judges, log, started, JudgePanel([reader], reader.metrics))
                assert [e.id for e in await written(VerdictEvent, 1)] == [f"{LANE}/s0/e0/fidelity"]
                await write(taken(response, topics.responses, 1))
                await written(VerdictEvent, 2)
                ended = RunEndedEvent(
                    id="run/ended", run="run", event_time_us=0, trajectories=1, verdicts=2, unjudged=0
                )
                await write(replace(response, id=f"{LANE}/s0/e0/R2", phase="R2", step=7), ended)
    assert reader.cases == [("fidelity", ""), ("ieu", "asked")]
