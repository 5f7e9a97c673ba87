"""A run that is killed and goes on, and a lane that changes hands: whether its memory is the one that the log
describes is in the log, and whoever reads that sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.rebuild import LaneRebuilds
from simulator.events import LaneRebuiltEvent
from simulator.runfolder import VERDICTS_NAME, log_path
from tests.cli.helpers import egostream
from tests.history import History
from tests.workers.fleet import fleet, history_of, published, run_of, undisturbed, workers
from tests.workers.slow_memory import OPEN_SEGMENTS

SAME, OTHER = "Gated", "GatedRestless"
DATA = "synthetic:seed=6,wearers=2,segments_per_day=20,observations_per_segment=6,anchors_per_day=8"
LANES = 2


def gated(folder: Path, kind: str) -> str:
    """A system that is to be killed at work: it goes on only where there is this file."""
    return f"slow=tests.workers.slow_memory:{kind}:gate={folder / 'gate'}"


def is_at_the_gate(folder: Path) -> bool:
    """Whether every lane is, and the deltas of what it ingested before are in the log."""
    waiting = len(list(folder.glob("gate.*"))) == LANES
    return waiting and published(folder / "run", "deltas") >= LANES * OPEN_SEGMENTS


def killed(folder: Path, kind: str) -> tuple[Path, History]:
    """A run that was killed once, and begun again."""
    out = folder / "run"
    run = ("run", "--data", DATA, "--system", gated(folder, kind), "--out", out, "-q")
    with fleet(folder, {"run": run}) as processes:
        processes.ends_with["run"] = 0 if kind == SAME else 3
        processes.start("run")
        processes.wait_for(lambda: is_at_the_gate(folder))
        processes.kill("run")
        (folder / "gate").touch()
        processes.start("run")
        processes.wait("run")
    return out, history_of(str(log_path(out)), run_of(out))


def said_of(out: Path, *command: object) -> tuple[int, str]:
    """Exit code and words of a command, on one line."""
    ran = egostream(*command, out)
    return ran.code, " ".join(ran.out.split())


def test_a_memory_that_is_built_again_to_the_same_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    expected = undisturbed(tmp_path / "undisturbed", data=DATA, systems=(gated(tmp_path, SAME),))
    (tmp_path / "gate").unlink()
    out, history = killed(tmp_path, SAME)
    assert (out / VERDICTS_NAME).read_bytes() == expected
    assert history.findings == ()
    rebuilds = history.of(LaneRebuiltEvent)
    assert sum(event.segments for event in rebuilds) > 0
    assert not any(event.difference for event in rebuilds)
    lanes = len(rebuilds)
    words = f"{lanes} lane{'s were' if lanes > 1 else ' was'} rebuilt from the log, the same as it says."
    for command in ("audit", "status", "scores"):
        code, said = said_of(out, command)
        assert code == 0
        assert words in said


def test_a_memory_that_is_built_again_to_another_is_a_broken_invariant(tmp_path: Path) -> None:
    out, history = killed(tmp_path, OTHER)
    rebuilds = history.of(LaneRebuiltEvent)
    assert {event.difference for event in rebuilds} == {"record 1 of 1 has another id"}
    assert {event.causes for event in rebuilds} == {(f"{event.lane}/delta/0",) for event in rebuilds}
    findings = {finding.rule for finding in history.findings}
    assert findings == {"rebuilt_otherwise"}
    assert history.certificate.rebuilds == tuple(
        LaneRebuilds(
            lane=lane, rebuilds=1, differing=1, first=f"{lane}/delta/0: record 1 of 1 has another id"
        )
        for lane in sorted(event.lane for event in rebuilds)
    )
    words = "rebuilt from the log to another memory than it describes"
    for command, expected in {"audit": 3, "status": 0, "scores": 0}.items():
        code, said = said_of(out, command)
        assert code == expected
        assert words in said
        assert ("Violation of 2 (rebuilt_otherwise)" in said) == (command == "audit")
    page = tmp_path / "report.html"
    assert egostream("report", out, "--out", page).code == 0
    assert words in page.read_text()


def taken_over(folder: Path, log: str, kind: str) -> History:
    """The only agent is killed, and another comes and takes its lanes over."""
    out = folder / "run"
    commands = workers(log, out, system=gated(folder, kind), data=DATA, judges=1)
    with fleet(folder, commands) as processes:
        processes.start(*(name for name in commands if name != "agent-1"))
        processes.wait_for(lambda: is_at_the_gate(folder))
        processes.start("agent-1")
        processes.kill("agent-0")
        (folder / "gate").touch()
        processes.wait(*processes.running)
    return history_of(log, run_of(out))


def same_hands(folder: Path, log: str) -> None:
    history = taken_over(folder, log, SAME)
    assert history.findings == ()
    assert history.of(LaneRebuiltEvent)
    assert not any(event.difference for event in history.of(LaneRebuiltEvent))


def other_hands(folder: Path, log: str) -> None:
    history = taken_over(folder, log, OTHER)
    assert {finding.rule for finding in history.findings} == {"rebuilt_otherwise"}
    assert all(event.difference for event in history.of(LaneRebuiltEvent))


@pytest.mark.parametrize("check", [same_hands, other_hands])
def test_lanes_that_another_agent_takes_over(tmp_path: Path, check: Callable[[Path, str], None]) -> None:
    check(tmp_path, str(tmp_path / "shared.db"))
