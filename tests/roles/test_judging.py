"""The judges' role in a run: a judge that fails, in whatever way, leaves its cases unjudged and nothing
else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from judges.deterministic import official_judges
from judges.judge import Case, Judge, Judgment
from simulator.events import FeedbackDraft, Metric, TrajectoryClosedEvent, VerdictEvent
from tests.roles.harness import run_all
from tests.roles.systems import Ledger


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
