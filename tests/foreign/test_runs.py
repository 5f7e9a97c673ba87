"""Whole runs of foreign systems, in their own environments, by the command line. `egostream systems install NAME` makes
one before; without it they are skipped. The toy runs everywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from adapters.endpoints import ModelSettings
from adapters.foreign.catalogue import known
from adapters.foreign.environment import installed
from adapters.registry import parse_spec
from simulator.models import system_identity
from tests.cli.helpers import Ran, egostream, has, started, wait_for
from tests.conftest import ROOT, skip_without
from tests.foreign.helpers import TOY_KNOWN, children_of, is_host, wait_until
from tests.foreign.hosts import checkout
from tests.models.server import Script, Server

DATA = "synthetic:seed=3,wearers=1,days=1,segments_per_day=4,observations_per_segment=10,anchors_per_day=4"
TOY = "toy=tests.foreign.helpers:ToyMemory:model=small"
JUDGED = "1 system, 4 anchors, 4 trajectories: every metric judged."
OPTIONS = {"amem": "", "mem0": "", "memoryos": ",short_term_capacity=1", "memskill": ""}
"""With which a stream of four segments has its model asked."""


@pytest.fixture(params=OPTIONS)
def system(request: pytest.FixtureRequest) -> str:
    """A foreign system that is installed here."""
    name: str = request.param
    if installed(known(name)) is None:
        skip_without("systems", f"{name} is not installed: egostream systems install {name}")
    return name


def run_of(system: str, server: Server, folder: Path, *more: object) -> tuple[object, ...]:
    models = folder / "models.toml"
    models.write_text(f'[models.small]\nbase_url = "{server.url}"\nmodel = "small"\n')
    where = ("--models", models, "--cache", folder / "cache.db")
    return ("run", "--data", DATA, "--system", system, *where, *more, "-q")


def outcomes(folder: Path) -> dict[str, str]:
    lines = (folder / "verdicts.jsonl").read_text().splitlines()
    return {verdict["id"]: verdict["outcome"] for verdict in map(json.loads, lines)}


async def ran(*arguments: object) -> Ran:
    return await anyio.to_thread.run_sync(partial(egostream, *arguments, cwd=ROOT))


async def chats(server: Server) -> int:
    return sum(call.path.endswith("completions") for call in await server.asked())


async def test_a_run_is_judged_whole_and_keeps_the_invariants(
    system: str, server: Server, tmp_path: Path
) -> None:
    source = checkout(system)
    spec = f"{system}:model=small{OPTIONS[system]}" + ("" if source is None else f",source={source}")
    for out, rule in {"run": f"tests.foreign.rules:{system}", "again": "echo"}.items():
        await server.play(Script(rule=rule))
        done = await ran(*run_of(spec, server, tmp_path, "--out", tmp_path / out))
        assert done.code == 0, done.err + done.out
        assert done.out.splitlines()[0] == JUDGED
        audit = await ran("audit", tmp_path / out)
        assert audit.code == 0, audit.out
        assert bool(await chats(server)) == (out == "run")  # the second time all of it is in the cache
    assert outcomes(tmp_path / "run") == outcomes(tmp_path / "again")
    assert "pass" in outcomes(tmp_path / "run").values()
    folders = [path for path in (tmp_path / "run").iterdir() if path.is_dir()]
    assert [path.name for path in folders] == ["logs"]


async def test_a_run_says_after_its_scores_what_only_approximates_a_system(
    server: Server, tmp_path: Path
) -> None:
    about = known("mem0")
    if installed(about) is None:
        skip_without("systems", "mem0 is not installed: egostream systems install mem0")
    await server.play(Script(rule="tests.foreign.rules:mem0"))
    run = run_of("mine=mem0:model=small", server, tmp_path, "--segments", 1)
    told = "mine approximates Mem0: `egostream systems mem0` says in what it differs"
    done = await ran(*run[:-1], "--out", tmp_path / "told")
    assert done.code == 0, done.err
    assert done.err.splitlines().count(told) == 1
    assert "approximates" not in done.out
    as_json = await ran(*run, "--out", tmp_path / "json", "--json")
    assert as_json.err == ""
    assert as_json.json["approximations"] == {"mine": list(about.approximations)}


@pytest.mark.usefixtures("toy")
async def test_a_run_goes_on_when_the_process_of_its_system_is_killed(server: Server, tmp_path: Path) -> None:
    await server.play(Script())
    done = await ran(*run_of(TOY, server, tmp_path, "--out", tmp_path / "whole"))
    assert done.code == 0, done.err + done.out
    assert done.out.splitlines()[0] == JUDGED
    await server.play(Script(delay_s=0.2))
    out = tmp_path / "killed"
    arguments = (*run_of(TOY, server, tmp_path, "--out", out), "--cache", tmp_path / "another.db")
    with started(*arguments, cwd=ROOT) as run:
        await anyio.to_thread.run_sync(_kill_hosts_of, run, out)
        assert await anyio.to_thread.run_sync(run.wait) == 0, run.stderr and run.stderr.read()
    assert outcomes(out) == outcomes(tmp_path / "whole")
    assert "what the system prints" in (out / "logs" / "toy@W01_ADA.log").read_text()
    audit = await ran("audit", out)
    assert audit.code == 0, audit.out


@pytest.mark.usefixtures("toy")
async def test_a_run_that_was_killed_goes_on_with_the_same_memories(server: Server, tmp_path: Path) -> None:
    await server.play(Script(delay_s=0.3))
    arguments = run_of(TOY, server, tmp_path, "--out", tmp_path / "run")
    with started(*arguments, cwd=ROOT) as run:
        await anyio.to_thread.run_sync(wait_for, lambda: has(tmp_path / "run", "deltas"), run)
        run.kill()
    await server.play(Script())
    done = await ran(*arguments)
    assert done.code == 0, done.err + done.out
    assert done.out.splitlines()[0] == JUDGED
    audit = await ran("audit", tmp_path / "run")
    assert audit.code == 0, audit.out
    assert not (tmp_path / "run" / "memories").exists()  # nor what the killed one left


@pytest.mark.usefixtures("toy")
async def test_a_run_that_is_killed_leaves_no_process(server: Server, tmp_path: Path) -> None:
    await server.play(Script(delay_s=0.05))
    with started(*run_of(TOY, server, tmp_path, "--out", tmp_path / "run"), cwd=ROOT) as run:
        hosts = await anyio.to_thread.run_sync(_hosts_of, run)
        run.kill()
    await anyio.to_thread.run_sync(wait_until, lambda: not any(map(is_host, hosts)))


def test_a_run_s_identity_says_what_ran() -> None:
    configured = {"small": ModelSettings(base_url="http://127.0.0.1:1/v1", model="small")}
    identity = system_identity(configured, [parse_spec(TOY)], "en")
    assert identity["implementation.toy"] == f"toy 1, pins {TOY_KNOWN.pins_digest}"
    assert identity["memory.toy"] == "small at http://127.0.0.1:1/v1 (structured=schema)"


def _kill_hosts_of(run: subprocess.Popen[str], out: Path) -> None:
    """Twice, each time that another change is under way."""
    begun = 0
    for _ in range(2):
        wait_until(lambda begun=begun: _journal_bytes(out) > begun and bool(children_of(run)), 60)
        time.sleep(0.1)
        begun = _journal_bytes(out)
        for pid in children_of(run):
            os.kill(pid, signal.SIGKILL)


def _journal_bytes(out: Path) -> int:
    return sum(path.stat().st_size for path in out.glob("memories/process-*/*/journal.jsonl"))


def _hosts_of(run: subprocess.Popen[str]) -> list[int]:
    found: list[int] = []
    wait_until(lambda: bool(found.extend(children_of(run)) or found), 60)
    return found
