"""Agents attached from another process with `egostream attach`: as if they were the run's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.events import LaneFailedEvent
from simulator.runfolder import VERDICTS_NAME, log_path
from tests.workers.fleet import SYSTEM, fleet, history_of, log_anomalies, run_of, undisturbed
from tests.workers.test_attached import DATA, without_run

CLASS = SYSTEM.partition("=")[2]


@pytest.mark.parametrize("kills", [0, 3])
def test_an_attached_class_is_judged_as_if_it_were_here(tmp_path: Path, kills: int) -> None:
    attached_run(tmp_path, str(tmp_path / "shared.db"), kills)


def attached_run(folder: Path, log: str, kills: int) -> None:
    """Killed and attached again `kills` times, it says what it says in one process."""
    expected = undisturbed(folder / "here", data=DATA, systems=("null", f"mine={CLASS}"))
    out = folder / "run"
    commands: dict[str, tuple[object, ...]] = {
        "run": (
            "run",
            "--data",
            DATA,
            "--system",
            "null",
            "--attach",
            "mine",
            "--log",
            log,
            "--out",
            out,
            "-q",
        ),
        "mine": ("attach", "--system", CLASS, "--as", "mine", "--log", log, "--run", "any", "-q"),
    }
    commands["run"] += ("--rate", 600) if kills else ()
    with fleet(folder, commands) as processes:
        processes.start("run", "mine")
        for _ in range(kills):
            processes.sleep(2.0)
            processes.kill("mine")
            processes.start("mine")
        processes.wait("run", "mine", deadline_s=80)
    verdicts = (out / VERDICTS_NAME).read_bytes()
    assert without_run(verdicts, run_of(out)) == without_run(expected, run_of(folder / "here"))
    assert log_anomalies(log, run_of(out)) == []


def test_one_that_is_killed_and_not_attached_again_is_given_up(tmp_path: Path) -> None:
    out = tmp_path / "run"
    log = str(log_path(out))
    commands: dict[str, tuple[object, ...]] = {
        "run": (
            *("run", "--data", DATA, "--system", SYSTEM, "--attach", "mine", "--answer-timeout", 2),
            *("--rate", 600, "--out", out, "-q"),
        ),
        "mine": ("attach", "--system", CLASS, "--as", "mine", "--log", log, "--run", "any", "-q"),
    }
    with fleet(tmp_path, commands) as processes:
        processes.ends_with["run"] = 4
        processes.start("run")
        processes.wait_for(lambda: log_path(out).exists(), deadline_s=30)
        processes.start("mine")
        processes.sleep(4.0)
        processes.kill("mine")
        processes.wait("run", deadline_s=60)
    history = history_of(log, run_of(out))
    assert {failed.lane for failed in history.of(LaneFailedEvent)} == {
        f"mine@{stream}" for stream in history.started.streams
    }
    alone = without_run(
        undisturbed(tmp_path / "alone", data=DATA, systems=(SYSTEM,)), run_of(tmp_path / "alone")
    )
    verdicts = without_run((out / VERDICTS_NAME).read_bytes(), run_of(out))
    assert [line for line in verdicts if b'"lane":"slow@' in line] == alone
