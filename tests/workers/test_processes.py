"""A run in eight processes on one SQLite log: it gives what a run in one process gives, whoever is killed."""

from __future__ import annotations

import secrets
from pathlib import Path
from random import Random

import pytest

from simulator.runfolder import VERDICTS_NAME
from tests.workers.fleet import (
    SYSTEM,
    Fleet,
    fleet,
    hurry,
    log_findings,
    published,
    run_of,
    torment,
    undisturbed,
    workers,
)

SPOILT = f"{SYSTEM}:spoilt=true"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


def check(processes: Fleet, log: str, out: Path, expected: bytes) -> None:
    """The run ended, everybody went home, and it says what the undisturbed one says."""
    processes.wait(*processes.running)
    assert (out / VERDICTS_NAME).read_bytes() == expected
    assert log_findings(log, run_of(out)) == ()


def test_roles_as_processes(tmp_path: Path, expected: bytes) -> None:
    log, out = str(tmp_path / "shared.db"), tmp_path / "run"
    with fleet(tmp_path, workers(log, out)) as processes:
        processes.start(*processes.commands)
        check(processes, log, out, expected)


def test_twenty_kills(tmp_path: Path, expected: bytes) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    log, out = str(tmp_path / "shared.db"), tmp_path / "run"
    with fleet(tmp_path, workers(log, out, rate=150, conductors=2)) as processes:
        processes.start(*processes.commands)
        rng = Random(seed)
        torment(processes, rng, 3)  # while it begins
        processes.wait_for(lambda: published(out) > 0)
        torment(processes, rng, 17)
        hurry(processes)
        check(processes, log, out, expected)
