"""Probes in processes of their own, and killed: they give what a run in one process gives."""

from __future__ import annotations

import secrets
from pathlib import Path
from random import Random

from simulator.runfolder import VERDICTS_NAME, log_path
from tests.workers.fleet import (
    SYSTEM,
    fleet,
    hurry,
    log_findings,
    published,
    run_of,
    torment,
    undisturbed,
    workers,
)
from tests.workers.test_processes import check

DATA = "synthetic:seed=6,histories=3,days=4,chunks_per_day=4,lines_per_chunk=5,facts_per_day=2"
ASKED = ("--benchmark", "lifedialbench", "--asked", "both")
SAME = {"data": DATA, "benchmark": "lifedialbench", "asked": "both", "top_k": 20}
"""The command's options: it takes the published top-k."""


def probes_in_processes(folder: Path, log: str, kills: int = 0) -> None:
    """A run of a replayer, a conductor, agents and judges, some of them killed while it goes on."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    expected = undisturbed(folder / "here", **SAME)
    out = folder / "run"
    rate = 20_000 if kills else "inf"
    with fleet(folder, workers(log, out, *ASKED, data=DATA, rate=rate)) as processes:
        processes.start(*processes.commands)
        if kills:
            processes.wait_for(lambda: published(out) > 0)
            torment(processes, Random(seed), kills, longest_s=1.0)
            hurry(processes)
        check(processes, log, out, expected)


def test_probes_are_asked_and_judged_by_processes_that_are_killed(tmp_path: Path) -> None:
    probes_in_processes(tmp_path, str(tmp_path / "shared.db"), kills=4)


def test_a_run_of_probes_that_is_killed_and_begun_again_says_the_same(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = Random(seed)
    system = f"{SYSTEM}:spoilt=true"
    expected = undisturbed(tmp_path / "here", systems=(system,), **SAME)
    assert b'"unjudged"' in expected
    out = tmp_path / "run"
    run = ("run", *ASKED, "--data", DATA, "--system", system, "--out", out, "--rate", 40_000, "-q")
    with fleet(tmp_path, {"run": run}) as processes:
        processes.ends_with["run"] = 4
        for kill in range(3):
            processes.start("run")
            processes.wait_for(lambda: published(out) > 0 or "run" in processes.ended)
            processes.sleep(rng.uniform(0.3, 1.2))
            assert "run" in processes.running, f"it ended before kill {kill + 1}"
            processes.kill("run")
        processes.start("run")
        processes.wait("run")
    assert (out / VERDICTS_NAME).read_bytes() == expected
    assert log_findings(str(log_path(out)), run_of(out)) == ()
