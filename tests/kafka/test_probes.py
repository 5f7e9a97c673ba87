"""Probes on a real broker: the same bytes as on a file, in one process and in several."""

from __future__ import annotations

from pathlib import Path

import anyio

from dev.kafka.brokers import Cluster
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import VERDICTS_NAME
from tests.conftest import ROOT
from tests.kafka.helpers import url
from tests.workers.test_probes import probes_in_processes


def test_probes_in_one_process(kafka_broker: Cluster, tmp_path: Path) -> None:
    data = str(ROOT / "examples" / "apm_tasks.json")
    verdicts = []
    for name, log in (("file", None), ("kafka", url(kafka_broker))):
        options = RunOptions(
            data=data, benchmark="apm", systems=("null", "oracle", "bm25"), out=tmp_path / name, log=log
        )
        scores = anyio.run(execute, plan_run(options))
        assert scores.complete
        verdicts.append((tmp_path / name / VERDICTS_NAME).read_bytes())
    assert verdicts[0] == verdicts[1]


def test_probes_in_processes(kafka_broker: Cluster, tmp_path: Path) -> None:
    probes_in_processes(tmp_path, url(kafka_broker))
