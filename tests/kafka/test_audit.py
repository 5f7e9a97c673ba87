"""The audit of a run on Kafka: nothing found, and the same digest as on SQLite."""

from __future__ import annotations

from pathlib import Path

from dev.kafka.brokers import Cluster
from simulator.plan import RunOptions, plan_run
from simulator.results import audit_run
from simulator.run import execute
from tests.kafka.helpers import url

DATA = "synthetic:seed=4,wearers=2,segments_per_day=5,observations_per_segment=8,anchors_per_day=5"


async def test_equal_runs_have_equal_digests_on_both_logs(tmp_path: Path, kafka_broker: Cluster) -> None:
    digests = []
    for name, log in (("sqlite", None), ("kafka", url(kafka_broker))):
        options = RunOptions(data=DATA, systems=("full_context", "null"), out=tmp_path / name, log=log)
        await execute(plan_run(options))
        certificate = await audit_run(options.out)
        assert certificate.findings == ()
        assert certificate.open == ()
        digests.append(certificate.digest)
    assert digests[0] == digests[1]
