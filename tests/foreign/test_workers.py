"""Foreign memories in processes that share a log: the verdicts of one process, whoever is killed, and nothing left."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from simulator.log import open_log
from simulator.plan import RunOptions, plan_run
from simulator.run import begin, preamble
from simulator.runfolder import LOGS_NAME, VERDICTS_NAME
from tests.cli.helpers import egostream, one_line
from tests.conftest import ROOT
from tests.foreign.helpers import children_of, is_host, wait_until
from tests.models.server import Script, Server
from tests.workers.fleet import fleet, log_findings, run_of, undisturbed, workers

SYSTEM = "toy=tests.foreign.helpers:ToyMemory:model=small"
DATA = "synthetic:seed=3,wearers=3,days=1,segments_per_day=6,observations_per_segment=8,anchors_per_day=4"
MODEL = "openai:m@http://127.0.0.1:1/v1"
OURS = {"PYTHONPATH": str(ROOT)}
LANES = {"toy@W01_ADA.log", "toy@W02_BORIS.log", "toy@W03_CELIA.log"}
pytestmark = pytest.mark.usefixtures("toy")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where processes without a run's folder have their memories."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def models_at(server: Server, folder: Path, script: Script) -> tuple[object, ...]:
    """The options of who asks this server."""
    anyio.run(server.play, script)
    models = folder / "models.toml"
    models.write_text(f'[models.small]\nbase_url = "{server.url}"\nmodel = "small"\n')
    return "--models", models, "--cache", folder / "cache.db"


def test_of_two_agents_one_is_killed(server: Server, tmp_path: Path, temporary: Path) -> None:
    agent_killed(server, tmp_path, temporary, str(tmp_path / "shared.db"))


def agent_killed(server: Server, folder: Path, temporary: Path, log: str) -> None:
    """One is killed when it has ingested a part of its lanes; the other takes them over and does all that is left."""
    asking = models_at(server, folder, Script())
    expected = undisturbed(
        folder / "here", data=DATA, systems=(SYSTEM,), models=folder / "models.toml", cache=folder / "here.db"
    )
    models_at(server, folder, Script(delay_s=0.05))
    out = folder / "run"
    commands = workers(log, out, *asking, system=SYSTEM, data=DATA, judges=1)
    agents = "agent-0", "agent-1"
    for name in agents:
        commands[name] += (*asking, "--out", out)
    with fleet(folder, commands) as processes:
        processes.start(*commands)
        processes.wait_for(lambda: _changes(temporary) > 4, deadline_s=60)
        hosts = {name: children_of(processes.running[name]) for name in agents}
        victim = max(agents, key=lambda name: len(hosts[name]))
        assert hosts[victim]
        processes.kill(victim)
        wait_until(lambda: not any(map(is_host, hosts[victim])), 30)
        processes.wait(*processes.running, deadline_s=90)
    assert (out / VERDICTS_NAME).read_bytes() == expected
    assert log_findings(log, run_of(out)) == ()
    assert {path.name for path in (out / LOGS_NAME).iterdir()} == LANES


def _changes(temporary: Path) -> int:
    """How many changes the memories of all processes have in their journals."""
    journals = temporary.glob("egostream-*/process-*/*/journal.jsonl")
    return sum(journal.read_bytes().count(b'{"segment":{') for journal in journals)


def test_it_attaches_to_a_run_from_elsewhere(server: Server, tmp_path: Path) -> None:
    asking = models_at(server, tmp_path, Script())
    log, out, elsewhere = tmp_path / "shared.db", tmp_path / "run", tmp_path / "elsewhere"
    where = ("--log", log, "-q")
    commands: dict[str, tuple[object, ...]] = {
        "run": ("run", "--data", DATA, "--system", "null", "--attach", "toy", "--out", out, *where),
        "toy": ("attach", "--system", SYSTEM, "--run", "any", "--out", elsewhere, *asking, *where),
    }
    with fleet(tmp_path, commands) as processes:
        processes.start(*commands)
        processes.wait(*commands, deadline_s=90)
    assert log_findings(str(log), run_of(out)) == ()
    assert b'"pass"' in (out / VERDICTS_NAME).read_bytes()
    assert {path.name for path in (elsewhere / LOGS_NAME).iterdir()} == LANES


def test_the_agents_of_a_load_have_their_logs_in_its_folder(server: Server, tmp_path: Path) -> None:
    models, file, *_ = models_at(server, tmp_path, Script())
    out = tmp_path / "load"
    load = ("load", SYSTEM, "--data", DATA, "--rate", 1500, "--duration", 3, "--agents", 2)
    ran = egostream(*load, models, file, "--out", out, "-q", cwd=ROOT)
    assert ran.code == 0, ran.err
    assert {path.name for path in (out / LOGS_NAME).iterdir()} == LANES


@pytest.mark.parametrize(
    ("system", "says"),
    [
        (SYSTEM, "no model is called 'small': there is no models.toml here, and no --models"),
        (f"mem0:model={MODEL}", "mem0 is not installed here: egostream systems install mem0"),
        (f"toy=tests.foreign.helpers:ToyMemory:model={MODEL}", "under the label toy, not"),
    ],
)
def test_what_an_agent_lacks_is_one_line(server: Server, tmp_path: Path, system: str, says: str) -> None:
    models_at(server, tmp_path, Script())
    announced = (SYSTEM, f"mem0:model={MODEL}")
    log = tmp_path / "shared.db"
    anyio.run(announce, log, announced, tmp_path / "models.toml")
    ran = egostream(
        "worker", "agent", "--system", system, "--log", log, "--run", "any", cwd=tmp_path / "tmp", env=OURS
    )
    assert ran.code == 2
    assert says in one_line(ran)


async def announce(log: Path, systems: tuple[str, ...], models: Path) -> None:
    """A run that waits for its agents."""
    asked = RunOptions(data=DATA, systems=systems, out=log.parent / "run", log=str(log), models=models)
    plan = plan_run(asked)
    async with open_log(str(log)) as opened:
        await begin(opened, plan.started, preamble(plan))
