"""A load on Kafka with its roles in processes of their own, and one whose agent knows nothing but Kafka."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

import anyio
import pytest

from consumers.latency import BY_AGENT, STAGES
from dev.kafka.brokers import Cluster
from producers.arrivals import Load
from simulator.load.single import LoadOptions, execute_load, plan_load
from simulator.results import audit_run
from tests.conftest import ROOT
from tests.kafka.helpers import url
from tests.load.test_processes import check_whole, options
from tests.node import node_folder


async def test_roles_as_processes_share_the_lanes_on_kafka(tmp_path: Path, kafka_broker: Cluster) -> None:
    plan = plan_load(options(tmp_path / "run", log=url(kafka_broker), agents=2))
    with anyio.fail_after(110):
        report = await execute_load(plan)
    check_whole(report, sum(plan.plan.started.segments.values()))
    names = {use.process for use in report.processes}
    assert names == {"load", "replayer", "conductor", "agent.null.1", "agent.null.2"}
    assert (await audit_run(tmp_path / "run")).sound


@pytest.fixture(scope="module")
def node_agent() -> Path:
    return node_folder(ROOT / "examples" / "node_agent") / "agent.mjs"


async def test_an_agent_in_node_is_measured_by_its_own_clock(
    tmp_path: Path, kafka_broker: Cluster, node_agent: Path
) -> None:
    """It stamps every stage, and does not say by whose clock: so that is compared with the replayer's. Both are of this
    machine, so the offset is about nothing, within the error that is found."""
    prefix = f"n{secrets.token_hex(4)}."
    log = f"kafka://{kafka_broker.bootstrap}?prefix={prefix}"
    data = "synthetic:wearers=2,segments_per_day=6,observations_per_segment=5,anchors_per_day=2"
    load = Load(duration_s=4, rate=1500)
    plan = plan_load(LoadOptions(data=data, attached="node", out=tmp_path / "run", log=log, load=load))
    started = plan.plan.started
    command = ["node", str(node_agent), "--broker", kafka_broker.bootstrap, "--prefix", prefix]
    with anyio.fail_after(110):
        process = await anyio.open_process(
            [*command, "--run", started.run, "--system", "node"], stderr=subprocess.PIPE
        )
        try:
            report = await execute_load(plan)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.aclose()
    assert report.remembered == report.segments == sum(started.segments.values()) > 30
    for stage in (*STAGES, "ingest"):
        numbers = report.stages[stage]
        assert numbers is not None
        assert numbers.n == report.segments
    (clock,) = report.clocks
    assert (clock.role, clock.boot, clock.exchanges, clock.reason) == ("agent.node", "", report.segments, "")
    assert clock.offset_us is not None
    assert clock.error_us is not None
    assert abs(clock.offset_us) < 60e6  # unless somebody sets this machine's clock just now
    assert report.error_us == dict.fromkeys(BY_AGENT, clock.error_us)
