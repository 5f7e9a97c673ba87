"""Runs of the benchmarks that ask once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consumers.scores import MetricMean, MetricRate, Scores
from simulator.events import Metric
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import open_run
from tests.conftest import ROOT
from tests.history import History

LIFEDIAL = "synthetic:seed=5,days=4,chunks_per_day=3,lines_per_chunk=5,facts_per_day=2,repeated=40,changed=30"
APM = str(ROOT / "examples" / "apm_tasks.json")
BM25 = "raw=rag_raw:retrieval=bm25"


def options_for(out: Path, **more: Any) -> RunOptions:
    asked: dict[str, Any] = {"benchmark": "lifedialbench", "data": LIFEDIAL, "systems": ("null",)}
    return RunOptions(**{**asked, "out": out, **more})


async def run_of(out: Path, **more: Any) -> tuple[Scores, History]:
    """A run to its end, all of it sound."""
    scores = await execute(plan_run(options_for(out, **more)))
    assert scores.ended
    async with open_run(out) as (log, started):
        history = await History.read(log, started.run)
    assert history.findings == ()
    return scores, history


def value_of(scores: Scores, system: str, metric: Metric) -> float | None:
    """The rate or the mean."""
    (found,) = (score for score in scores.scores if (score.system, score.metric) == (system, metric))
    if isinstance(found, MetricMean):
        return found.value
    assert isinstance(found, MetricRate)
    return found.rate


def without_run(verdicts: bytes, run: str) -> list[bytes]:
    """Verdicts as they are in every run that came to the same."""
    return verdicts.replace(run.encode(), b"RUN").splitlines()
