"""Attached agents that misbehave: the run ends, what they owe is unjudged, and nobody else's results change."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from simulator.events import DeadLetterEvent, LaneFailedEvent, VerdictEvent
from simulator.runfolder import VERDICTS_NAME, log_path
from tests.history import History
from tests.workers.fleet import PATIENCE_S, SYSTEM, Fleet, fleet, history_of, run_of, undisturbed
from tests.workers.rogues import LABEL, Behaved, Deaf, Dies, Hasty, Late, Rubbish, Silent, Twice

DATA = "synthetic:seed=6,wearers=2,segments_per_day=12,observations_per_segment=6,anchors_per_day=8"
TIMEOUT_S = 6.0
"""For an agent that comes to owe something, and yet is to be heard before it is given up."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[bytes]]:
    """Isolation → the verdicts of the other system where it runs alone."""

    @functools.cache
    def verdicts(isolation: str) -> list[bytes]:
        folder = tmp_path_factory.mktemp("alone")
        return without_run(
            undisturbed(folder, data=DATA, systems=(SYSTEM,), isolation=isolation), run_of(folder)
        )

    return verdicts


@pytest.fixture(scope="module")
def well_behaved(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The verdicts on an attached agent that does as it should."""
    out = tmp_path_factory.mktemp("behaved") / "run"
    with fleet(out.parent, {"run": command(out, PATIENCE_S)}) as processes:
        run_with(processes, out, Behaved())
    assert read(out).findings == ()
    return verdicts_on(LABEL, out)


def verdicts_on(label: str, out: Path) -> list[bytes]:
    verdicts = without_run((out / VERDICTS_NAME).read_bytes(), run_of(out))
    return [line for line in verdicts if f'"lane":"{label}@'.encode() in line]


def without_run(verdicts: bytes, run: str) -> list[bytes]:
    return verdicts.replace(run.encode(), b"RUN").splitlines()


def read(out: Path) -> History:
    return history_of(str(log_path(out)), run_of(out))


def run_with(processes: Fleet, out: Path, agent: Behaved) -> None:
    """`egostream run` with an attached agent in this process."""
    processes.start("run")

    async def attend() -> None:
        with anyio.fail_after(2 * PATIENCE_S):
            await anyio.to_thread.run_sync(lambda: processes.wait_for(lambda: log_path(out).exists()))
            await agent.run(str(log_path(out)))

    anyio.run(attend)
    processes.wait("run")


def command(out: Path, timeout_s: float, *more: object) -> tuple[object, ...]:
    return (
        *("run", "--data", DATA, "--system", SYSTEM, "--attach", LABEL, "--answer-timeout", timeout_s),
        *("--out", out, "-q", *more),
    )


AGENTS: dict[str, Callable[[], Behaved]] = {
    "silent": Silent,
    "dies": Dies,
    "deaf": Deaf,
    "late": Late,
    "hasty": Hasty,
    "twice": Twice,
    "rubbish": Rubbish,
    "only rubbish": partial(Rubbish, only=True),
}
HARMLESS = ("hasty", "twice", "rubbish")
"""What it should say is there as well: all of it is judged, and what was too much is buried."""
CASES = [(name, "branch") for name in AGENTS] + [
    (name, "shared") for name in ("silent", "dies", "only rubbish")
]


@pytest.mark.parametrize(("name", "isolation"), CASES)
def test_a_run_ends_whatever_an_attached_agent_does(
    tmp_path: Path, alone: Callable[[str], list[bytes]], well_behaved: list[bytes], name: str, isolation: str
) -> None:
    out = tmp_path / "run"
    # so that the run goes on while answers are late
    rate = 600 if name == "late" else "inf"
    timeout_s = PATIENCE_S if name in HARMLESS else TIMEOUT_S
    run = command(out, timeout_s, "--isolation", isolation, "--rate", rate)
    with fleet(tmp_path, {"run": run}) as processes:
        processes.ends_with["run"] = 4
        run_with(processes, out, AGENTS[name]())
    assert verdicts_on("slow", out) == alone(isolation)
    history = read(out)
    assert history.findings == ()
    theirs = [verdict for verdict in history.of(VerdictEvent) if verdict.lane.startswith(f"{LABEL}@")]
    assert all(verdict.reason for verdict in theirs if verdict.outcome == "unjudged")
    failed = {failed.lane for failed in history.of(LaneFailedEvent)}
    dead = history.of(DeadLetterEvent)
    assert bool(dead) == (name in ("late", *HARMLESS, "only rubbish"))
    assert bool(failed) == (name in ("silent", "dies", "only rubbish"))
    if name in HARMLESS:
        assert verdicts_on(LABEL, out) == well_behaved
    else:
        assert any(verdict.outcome == "unjudged" for verdict in theirs)
        first = processes.said("run").splitlines()
        assert any("unjudged" in line and f"; {LABEL} " in line for line in first), first
    if "rubbish" in name:
        reasons = "\n".join(letter.reason for letter in dead)
        for part in (
            "malformed",
            "guess",
            "run-other",
            "partition",
            "does not belong",
            "ghost@",
            "is on no stream",
        ):
            assert part in reasons
        assert b"\xff{no JSON" in {letter.value for letter in dead}  # whole
