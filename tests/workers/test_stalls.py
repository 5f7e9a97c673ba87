"""A role that is stopped, or never answers, becomes an error that names what is missing; a slow one does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.events import ReadyEvent
from simulator.runfolder import NOTE_NAME
from tests.workers.fleet import environment, fleet, history_of, published, run_of, stop, workers
from tests.workers.test_control import egostream

DATA = "synthetic:seed=6,wearers=1,segments_per_day=12,observations_per_segment=6,anchors_per_day=8"
SLOW = "slow=tests.workers.slow_memory:SlowMemory:ms=100"
LIMIT_S = 8


def are_ready(out: Path, log: str) -> bool:
    """Whether the others are, which take longer to be so than the conductor has patience."""
    if not (out / NOTE_NAME).exists():
        return False
    ready = {event.role for event in history_of(log, run_of(out)).of(ReadyEvent)}
    return {"agent.slow", "judge"} <= ready


@pytest.mark.parametrize(
    ("stopped", "says"),
    [
        ("agent-0", r" of agent.slow (after "),
        ("judge-0", r" of judge (after slow@W01_ADA/"),
        ("replayer", r"W01_ADA/segment/"),
    ],
)
def test_a_stopped_worker_is_named(tmp_path: Path, stopped: str, says: str) -> None:
    log, out = str(tmp_path / "shared.db"), tmp_path / "run"
    commands = workers(log, out, system=SLOW, data=DATA, rate=60, agents=1, judges=1)
    commands["conductor-0"] = (*commands["conductor-0"], "--stall-timeout", LIMIT_S)
    with fleet(tmp_path, commands) as processes:
        processes.ends_with["conductor-0"] = 1
        processes.start(*(name for name in commands if name != "conductor-0"))
        processes.wait_for(lambda: are_ready(out, log))
        processes.start("conductor-0")
        processes.wait_for(lambda: published(out) > 12)
        stop(processes.running[stopped], log)
        processes.wait("conductor-0")
        said = processes.said("conductor-0")
        assert said.count("\n") == 1
        assert f"nothing came for {LIMIT_S} s; missing: " in said
        assert says in said
        status = json.loads(egostream("status", out, "--json"))
        named = said.partition("missing: ")[2].split()[0]
        owed = [one["event"] for one in status["owed"]]
        assert named in owed or stopped == "replayer"
        if stopped != "replayer":
            assert f"{owed[0]}" in egostream("status", out)


def run_command(out: Path, system: str, *options: object) -> tuple[object, ...]:
    data = ("--data", DATA, "--system", "null", "--system", system)
    return ("run", *data, "--out", out, "-q", "--stall-timeout", LIMIT_S, *options)


def test_a_memory_system_that_never_returns_is_named(tmp_path: Path) -> None:
    system = "stuck=tests.roles.systems:Stuck:after=3"
    with fleet(tmp_path, {"run": run_command(tmp_path / "run", system)}) as processes:
        processes.ends_with["run"] = 1
        processes.start("run")
        processes.wait("run")
        said = processes.said("run")
    assert said.count("\n") == 1
    assert f"nothing came for {LIMIT_S} s; missing: stuck@W01_ADA/s" in said
    assert "of agent.stuck (after stuck@W01_ADA/s" in said


@pytest.mark.parametrize(
    ("system", "options"),
    [
        (
            "slow=tests.workers.slow_memory:SlowMemory:ms=600",
            (),
        ),  # longer than the limit in all, and always moving
        (
            "bm25=rag_raw:retrieval=bm25",
            ("--rate", 300),
        ),  # a minute of life is 0.2 s; the night before is longer
    ],
)
def test_slow_and_moving_is_no_error(tmp_path: Path, system: str, options: tuple[object, ...]) -> None:
    assert environment()
    with fleet(tmp_path, {"run": run_command(tmp_path / "run", system, *options)}) as processes:
        processes.start("run")
        processes.wait("run")
    status = json.loads(egostream("status", tmp_path / "run", "--json"))
    assert status["state"] == "ended"
    assert status["owed"] == []
    walls = [role["last_us"] for role in status["roles"]]
    assert all(walls)
