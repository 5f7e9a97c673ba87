"""`egostream run`, killed at random moments and begun again until it ends: the same verdicts as undisturbed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from random import Random

import pytest

from simulator.runfolder import MEMORIES_NAME, VERDICTS_NAME, log_path
from tests.workers.fleet import SYSTEM, fleet, log_findings, run_of, undisturbed

SPOILT = f"{SYSTEM}:spoilt=true"
DATA = "synthetic:seed=6,wearers=2,segments_per_day=12,observations_per_segment=6,anchors_per_day=8"
KILLS = int(os.environ.get("EGOSTREAM_KILLS", "5"))
"""For each of the three kinds of run; set EGOSTREAM_KILLS to try more."""


@pytest.mark.timeout(240 + 8 * KILLS)
@pytest.mark.parametrize(
    ("isolation", "ablate_commit"), [("branch", False), ("branch", True), ("shared", False)]
)
def test_killed_and_begun_again(tmp_path: Path, isolation: str, ablate_commit: bool) -> None:
    _kill_and_begin_again(tmp_path, SPOILT, isolation, ablate_commit)


@pytest.mark.parametrize("kind", ["Copying", "Replaying"])
def test_killed_and_begun_again_without_forks(tmp_path: Path, kind: str) -> None:
    system = f"slow=tests.workers.branching:{kind}:ms=8,spoilt=true"
    _kill_and_begin_again(tmp_path, system, "branch", True, kills=3)
    assert not list(tmp_path.glob(f"run-*/{MEMORIES_NAME}"))  # nor what the killed ones left there


def _kill_and_begin_again(
    tmp_path: Path, system: str, isolation: str, ablate_commit: bool, kills: int = KILLS
) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = Random(seed)
    expected = undisturbed(
        tmp_path / "undisturbed",
        data=DATA,
        systems=(system,),
        isolation=isolation,
        ablate_commit=ablate_commit,
    )
    assert b'"unjudged"' in expected
    killed = runs = 0
    while killed < kills:
        runs += 1
        out = tmp_path / f"run-{runs}"
        run = [
            "run",
            "--data",
            DATA,
            "--system",
            system,
            "--out",
            out,
            "--isolation",
            isolation,
            "--rate",
            400,
            "-q",
        ]
        run += ["--ablate-commit"] if ablate_commit else []
        with fleet(tmp_path, {"run": tuple(run)}) as processes:
            processes.ends_with["run"] = 4  # some is unjudged
            while killed < kills and "run" not in processes.ended:
                processes.start("run")
                processes.sleep(rng.uniform(0.5, 3.5))
                killed += "run" in processes.running
                processes.kill("run")
            if "run" not in processes.ended:
                processes.start("run")
                processes.wait("run")
        assert (out / VERDICTS_NAME).read_bytes() == expected
        assert log_findings(str(log_path(out)), run_of(out)) == ()
    print(f"{killed} kills, {runs} runs")
