"""A run in eight processes on one SQLite log: it gives what a run in one process gives, whoever is killed."""

from __future__ import annotations

import secrets
from pathlib import Path
from random import Random

import pytest

from simulator.runfolder import VERDICTS_NAME
from tests.workers.fleet import SYSTEM, Fleet, fleet, log_anomalies, run_of, torment, undisturbed, workers

SPOILT = f"{SYSTEM}:spoilt=true"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


def check(processes: Fleet, log: str, out: Path, expected: bytes) -> None:
    """The run ended, everybody went home, and it says what the undisturbed one says."""
    processes.wait(*processes.running, deadline_s=90)
    assert (out / VERDICTS_NAME).read_bytes() == expected
    assert log_anomalies(log, run_of(out)) == []


def test_roles_as_processes(tmp_path: Path, expected: bytes) -> None:
    log, out = str(tmp_path / "shared.db"), tmp_path / "run"
    with fleet(tmp_path, workers(log, out)) as processes:
        processes.start(*processes.commands)
        check(processes, log, out, expected)


def test_twenty_kills(tmp_path: Path, expected: bytes) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    log, out = str(tmp_path / "shared.db"), tmp_path / "run"
    with fleet(tmp_path, workers(log, out, rate=200)) as processes:
        processes.start(*processes.commands)
        torment(processes, Random(seed), 20)
        check(processes, log, out, expected)
