"""Metrics of a load on Kafka, served by another process: what its log holds, on a broker as in a file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio

from dev.kafka.brokers import Cluster
from producers.arrivals import Load
from simulator.load.single import LoadOptions, execute_load, plan_load
from tests.cli.helpers import SCRIPT, environment
from tests.kafka.helpers import url
from tests.metrics.recount import nonzero, recounted, said_by_the_end
from tests.metrics.scraping import DEADLINE_S, announced, as_counted, fetch, histogram, values

DATA = "synthetic:wearers=2,segments_per_day=6,observations_per_segment=5,anchors_per_day=2"


def test_another_process_serves_a_load_on_kafka(tmp_path: Path, kafka_broker: Cluster) -> None:
    log, errors = url(kafka_broker), tmp_path / "errors.txt"
    load = Load(wearers=3, duration_s=2, rate=1500)
    plan = plan_load(LoadOptions(data=DATA, system="null", out=tmp_path / "run", log=log, load=load))
    run = plan.plan.started.run
    command = ["worker", "metrics", "--listen", "127.0.0.1:0", "--linger", "90", "--log", log, "--run", run]
    with errors.open("w") as file:
        worker = subprocess.Popen(
            [SCRIPT, *command],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
        try:
            report = anyio.run(execute_load, plan)
            metrics = announced(errors)
            while not (families := fetch(metrics)) or values(families, "egostream_run_ended") != {(): 1.0}:
                assert worker.poll() is None, errors.read_text()
            served = nonzero(as_counted(families))
            held = nonzero(anyio.run(recounted, tmp_path / "run"))
            # The load's meter samples itself until all roles have returned, some of it after run_ended, when the
            # worker may have read its last already.
            samples = [served["events"].pop(("control",)), held["events"].pop(("control",))]
            assert anyio.run(said_by_the_end, tmp_path / "run") <= samples[0] <= samples[1]
            assert served == held
            assert worker.wait(DEADLINE_S) == 0, errors.read_text()
        finally:
            worker.kill()
            worker.wait()
    numbers = report.stages["remembered"]
    assert numbers is not None
    _, count, _ = histogram(families, "egostream_ingest_latency_seconds", stage="remembered")
    assert count == numbers.n == report.segments > 0
