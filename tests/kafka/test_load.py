"""A load on Kafka: two with the same options on one cluster, each a run of its own and with every stage stamped."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.answers import ANSWER_STAGES
from consumers.latency import STAGES
from dev.kafka.brokers import Cluster
from producers.arrivals import Load
from producers.questions import QuestionLoad
from simulator.load.single import LoadOptions, execute_load, plan_load
from simulator.results import audit_run
from tests.kafka.helpers import url

DATA = "synthetic:wearers=2,segments_per_day=6,observations_per_segment=5,anchors_per_day=2"


async def test_a_load_is_measured_on_kafka_as_on_sqlite(tmp_path: Path, kafka_broker: Cluster) -> None:
    log = url(kafka_broker)
    runs: list[str] = []
    for name in ("first", "second"):
        load = Load(wearers=3, duration_s=2, rate=1500, arrivals="poisson")
        options = LoadOptions(data=DATA, system="null", out=tmp_path / name, log=log, load=load)
        plan = plan_load(options)
        report = await execute_load(plan)
        assert report.segments == report.remembered == sum(plan.plan.started.segments.values())
        assert report.observations == plan.offered.observations
        for stage in STAGES:
            numbers = report.stages[stage]
            assert numbers is not None
            assert (numbers.n, numbers.clipped) == (report.segments, 0)
        assert (await audit_run(options.out)).sound
        runs.append(report.run)
    assert runs[0] != runs[1]


@pytest.mark.parametrize(
    ("system", "agents", "on"),
    [
        ("rag_raw:retrieval=bm25", None, "fork"),
        ("it=tests.load.systems:AskedInTurn:service_ms=4,answer_ms=4", None, "turn"),
        ("null", 2, "fork"),
    ],
)
async def test_questions_are_asked_on_kafka_as_on_sqlite(
    tmp_path: Path, kafka_broker: Cluster, system: str, agents: int | None, on: str
) -> None:
    options = LoadOptions(
        data=DATA,
        system=system,
        out=tmp_path,
        log=url(kafka_broker),
        load=Load(wearers=3, duration_s=2, rate=1500, arrivals="poisson"),
        questions=QuestionLoad(per_second=20),
        agents=agents,
    )
    report = await execute_load(plan_load(options))
    assert report.segments == report.remembered
    assert report.answers is not None
    assert set(report.answers.on.values()) == {on}
    for part in (report.answers.loaded, report.answers.idle):
        assert part.due == part.asked == part.answered > 5
        for stage in ANSWER_STAGES:
            numbers = part.stages[stage]
            assert (numbers is None) == (stage == "first_token")
            assert numbers is None or (numbers.n, numbers.clipped) == (part.answered, 0)
    assert (await audit_run(options.out)).sound
