"""Results of loads, made up: pages need no load of their own. Each is made once, and nobody can change it."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
from msgspec.structs import replace

from consumers.answers import ANSWER_BESIDE, ANSWER_STAGES, AnswersReport, AnswerTimes, Ratio
from consumers.histogram import Histogram
from consumers.latency import LatencyReport
from consumers.process_use import ProcessUse, UsePoint
from simulator.load.comparison import Comparison, Round, compare
from simulator.load.sweep import Found, Measured, Objective, Search, values
from simulator.runfolder import COMPARE_NAME, LATENCY_NAME, SWEEP_NAME
from tests.load.test_latency import folded, whole

IDENTITY = {
    "code": "0.1.0",
    "load": '{"duration_s":4.0,"arrivals":"regular","rate":3000.0,"seed":0}',
    "machine": '{"cores":2,"cores_in_all":4,"memory_bytes":8589934592,"processor":"x86_64","os":"Linux","python":"3"}',
    "dataset": "0123456789abcdef0123",
    "streams": "A",
    "systems": "it",
    "asked_us": "1700000000000000",
}


@functools.cache
def loaded(
    service_us: int = 20_000, gap_us: int = 100_000, segments: int = 40, *, asked: bool = False
) -> LatencyReport:
    """One lane that ingests segments one after the other, each in this time. `asked`: with questions, which wait for
    longer the busier it is."""
    fed, free_us = [], 0
    for segment in range(segments):
        due_us = segment * gap_us
        begun_us = max(due_us + 3, free_us)
        free_us = begun_us + service_us + segment % 7 * 100
        fed += whole("A", segment, due_us, begun_us, free_us)
    labels = ("replayer", "conductor", "load", *(f"agent.rag_raw:retrieval=bm25.{n}" for n in (1, 2)))
    processes = tuple(map(_process, labels))
    answers = _answers(service_us**2 // gap_us) if asked else None
    return replace(
        folded(fed),
        identity=IDENTITY,
        processes=processes,
        answers=answers,
    )


def _process(name: str) -> ProcessUse:
    points = [
        UsePoint(at_s=at, cpu=0.1 * len(name) / 20, rss_bytes=50_000_000 + at, loop_lag_us=900 * at)
        for at in range(6)
    ]
    return ProcessUse(
        process=name,
        samples=7,
        cpu=0.1,
        children_cpu=0.0,
        rss_max_bytes=50_000_000,
        children_rss_max_bytes=0,
        loop_lag_p50_us=1000,
        loop_lag_max_us=4500,
        points=tuple(points),
    )


def _answers(waited_us: int) -> AnswersReport:
    parts = []
    for late_us in (waited_us, 10):
        stages = {
            name: Histogram(300 + late_us + number % 50 * 40 + place for number in range(200)).percentiles()
            for place, name in enumerate((*ANSWER_STAGES, *ANSWER_BESIDE))
        }
        stages["first_token"] = None
        parts.append(
            AnswerTimes(
                due=200, asked=200, answered=200, failed=0, unfinished=0, asked_per_s=50.0, stages=stages
            )
        )
    snapshot = Histogram([40, 50, 60]).percentiles()
    ratios = {"received": Ratio(p50=7.5, p99=4.25)}
    return AnswersReport(on={"it": "fork"}, loaded=parts[0], idle=parts[1], ratios=ratios, snapshot=snapshot)


@functools.cache
def swept(objective: str = "p99 < 200ms") -> Found:
    """A lane that can ingest 50 segments a second."""
    search, points = Search("rate", 3000, again=3), []
    for value in values(search):
        report = loaded(gap_us=round(300e6 / value), asked=objective.startswith("answer"))
        points.append(Measured(value=value, kept=Objective.parse(objective).kept(report), report=report))
        search.tell(value, points[-1].kept)
    return search.found(objective, "× real time", tuple(points))


@functools.cache
def compared(rounds: int = 5) -> Comparison:
    """B takes twice as long as A."""
    done = [
        Round(
            first="B" if number % 2 else "A",
            a=loaded(20_000 + 900 * number),
            b=loaded(40_000 + 500 * number),
        )
        for number in range(rounds)
    ]
    return compare(("it", "other=it:slow=1"), done)


def written(folder: Path, result: LatencyReport | Found | Comparison) -> Path:
    """The folder, with the result as its load would have left it."""
    names = {LatencyReport: LATENCY_NAME, Found: SWEEP_NAME, Comparison: COMPARE_NAME}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[type(result)]).write_bytes(msgspec.json.encode(result))
    return folder
