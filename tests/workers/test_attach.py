"""Agents attached from another process with `egostream attach`: as if they were the run's own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from simulator.events import LaneFailedEvent, ReadyEvent
from simulator.runfolder import VERDICTS_NAME, log_path
from tests.conftest import ROOT
from tests.workers.fleet import (
    EGOSTREAM,
    SYSTEM,
    environment,
    fleet,
    history_of,
    log_findings,
    published,
    run_of,
    undisturbed,
)
from tests.workers.test_attached import DATA, without_run

CLASS = SYSTEM.partition("=")[2]
MEANS = {"Copying": "copy", "Replaying": "replay"}


@pytest.mark.parametrize("kills", [0, 3])
def test_an_attached_class_is_judged_as_if_it_were_here(tmp_path: Path, kills: int) -> None:
    attached_run(tmp_path, str(tmp_path / "shared.db"), kills)


@pytest.mark.parametrize("kind", ["Copying", "Replaying"])
def test_an_attached_class_that_can_t_fork_is_isolated_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    log = str(tmp_path / "shared.db")
    attached_run(tmp_path, log, 2, f"tests.workers.branching:{kind}:ms=10")
    assert list((tmp_path / "tmp").glob("egostream-*")) == []  # nor of those that were killed
    ready = history_of(log, run_of(tmp_path / "run")).of(ReadyEvent)
    assert {event.means for event in ready if event.role == "agent.mine"} == {MEANS[kind]}


def attached_run(folder: Path, log: str, kills: int, system: str = CLASS) -> None:
    """Killed and attached again `kills` times, it says what it says in one process."""
    expected = undisturbed(folder / "here", data=DATA, systems=("null", f"mine={system}"))
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
        "mine": ("attach", "--system", system, "--as", "mine", "--log", log, "--run", "any", "-q"),
    }
    commands["run"] += ("--rate", 600) if kills else ()
    with fleet(folder, commands) as processes:
        processes.start("run", "mine")
        for _ in range(kills):
            processes.sleep(2.0)
            processes.kill("mine")
            processes.start("mine")
        processes.wait("run", "mine")
    verdicts = (out / VERDICTS_NAME).read_bytes()
    assert without_run(verdicts, run_of(out)) == without_run(expected, run_of(folder / "here"))
    assert log_findings(log, run_of(out)) == ()


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
        processes.wait_for(lambda: log_path(out).exists())
        processes.start("mine")
        processes.wait_for(lambda: published(out) > 0)  # it is ready
        processes.kill("mine")
        processes.wait("run")
    history = history_of(log, run_of(out))
    assert {failed.lane for failed in history.of(LaneFailedEvent)} == {
        f"mine@{stream}" for stream in history.started.streams
    }
    alone = without_run(
        undisturbed(tmp_path / "alone", data=DATA, systems=(SYSTEM,)), run_of(tmp_path / "alone")
    )
    verdicts = without_run((out / VERDICTS_NAME).read_bytes(), run_of(out))
    assert [line for line in verdicts if b'"lane":"slow@' in line] == alone


def test_the_example_s_commands(tmp_path: Path) -> None:
    """As its README says them, in two processes."""
    example = ROOT / "examples" / "attached_agent"
    blocks = re.findall(r"```sh\n(.*?)```", (example / "README.md").read_text(), re.DOTALL)
    (tmp_path / "examples").mkdir()
    shutil.copytree(example, tmp_path / "examples" / "attached_agent")
    script = " ".join(map(shlex.quote, EGOSTREAM))
    processes = [
        subprocess.Popen(
            ["bash", "-ec", re.sub(r"^egostream", script, block, flags=re.MULTILINE)],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for block in blocks
    ]
    try:
        said = [process.communicate(timeout=80) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    assert [process.returncode for process in processes] == [0, 0], said
    assert re.search(r"mine +\d+\.\d% \(\d+/16\)", said[0][0])
