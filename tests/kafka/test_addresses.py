"""Reading and steering a run by its log's address alone, with the real commands."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from dev.kafka.brokers import Cluster
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import VERDICTS_NAME, split_address
from tests.cli.helpers import egostream, one_line
from tests.kafka.helpers import url


def run_there(log: str, out: Path, system: str) -> str:
    """A small run on a log; gives its id."""
    data = "synthetic:wearers=1,segments_per_day=3,anchors_per_day=2"
    plan = plan_run(RunOptions(data=data, systems=(system,), out=out, log=log))
    anyio.run(execute, plan)
    return plan.started.run


def test_a_run_is_read_by_its_address(kafka_broker: Cluster, tmp_path: Path) -> None:
    log, out = url(kafka_broker), tmp_path / "run"
    run = run_there(log, out, "null")
    place, _, options = log.partition("?")
    address = f"{place}/{run}?{options}"

    tapped = egostream("tap", address, "verdicts", "--json")
    assert tapped.code == 0, tapped.err
    assert sorted(tapped.out.splitlines()) == sorted((out / VERDICTS_NAME).read_text().splitlines())
    assert egostream("scores", address, "--json").json == egostream("scores", out, "--json").json
    assert (
        egostream("scores", log, "--json").json == egostream("scores", out, "--json").json
    )  # it is the only one
    assert {one["group"] for one in egostream("lag", address, "--json").json} == {
        "agent.null",
        "judge",
        "conductor",
    }
    assert f"{run} has ended" in one_line(egostream("ctl", address, "pause"))
    refused = egostream("scores", address, "--write")
    assert "--csv FILE" in one_line(refused)
    assert refused.code == 2

    other = run_there(log, tmp_path / "other", "full_context")
    refused = egostream("scores", log)
    assert refused.code == 2
    assert f"name one, as in {place}/{min(run, other)}?{options}: " in one_line(refused)
    assert max(run, other) in one_line(refused)
    assert egostream("scores", f"{place}/{other}/?{options}", "--json").code == 0
    unknown = one_line(egostream("tap", f"{place}/run-nobody?{options}", "tasks"))
    assert "no run run-nobody" in unknown
    assert run in unknown
    assert not list(tmp_path.glob("kafka:*"))


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("kafka://h:1", ("kafka://h:1", "")),
        ("kafka://h:1,[::1]:2/run-a", ("kafka://h:1,[::1]:2", "run-a")),
        ("kafka://h/run-a?ca_file=/x/y&prefix=p.", ("kafka://h?ca_file=/x/y&prefix=p.", "run-a")),
        ("kafka://h/?ca_file=/x", ("kafka://h?ca_file=/x", "")),
    ],
)
def test_addresses(address: str, parts: tuple[str, str]) -> None:
    assert split_address(address) == parts
