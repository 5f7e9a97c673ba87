"""`egostream run`, killed at random moments and begun again until it ends: the same verdicts as undisturbed."""

from __future__ import annotations

import secrets
from pathlib import Path
from random import Random

import pytest

from simulator.runfolder import VERDICTS_NAME, log_path
from tests.workers.fleet import SYSTEM, fleet, log_findings, run_of, undisturbed

SPOILT = f"{SYSTEM}:spoilt=true"
DATA = "synthetic:seed=6,wearers=2,segments_per_day=12,observations_per_segment=6,anchors_per_day=8"
KILLS = 5


@pytest.mark.parametrize(
    ("isolation", "ablate_commit"), [("branch", False), ("branch", True), ("shared", False)]
)
def test_killed_and_begun_again(tmp_path: Path, isolation: str, ablate_commit: bool) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = Random(seed)
    expected = undisturbed(
        tmp_path / "undisturbed",
        data=DATA,
        systems=(SPOILT,),
        isolation=isolation,
        ablate_commit=ablate_commit,
    )
    assert b'"unjudged"' in expected
    out = tmp_path / "run"
    run = [
        "run",
        "--data",
        DATA,
        "--system",
        SPOILT,
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
        for _ in range(KILLS):
            processes.start("run")
            processes.sleep(rng.uniform(0.5, 3.5))
            processes.kill("run")
        processes.start("run")
        processes.wait("run", deadline_s=60)
    assert (out / VERDICTS_NAME).read_bytes() == expected
    assert log_findings(str(log_path(out)), run_of(out)) == ()
