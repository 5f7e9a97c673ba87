"""Foreign systems pass the suite that ours pass, with their models behind the gateway and their processes killed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from adapters.conformance import CASES
from adapters.foreign.catalogue import known
from adapters.foreign.environment import installed
from tests.cli.helpers import Ran, egostream
from tests.conftest import ROOT, skip_without
from tests.foreign.hosts import checkout
from tests.models.server import Script, Server

DEADLINE_S = 540.0
"""A check starts some forty processes of its system, each of which loads its libraries anew: one to two seconds each
where nothing else runs."""


pytestmark = pytest.mark.timeout(DEADLINE_S + 60)


@pytest.mark.usefixtures("toy")
def test_foreign_system_passes_every_case(tmp_path: Path) -> None:
    ran = egostream(
        "systems",
        "check",
        "toy=tests.foreign.helpers:ToyMemory:model=small",
        "--json",
        "--quiet",
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        deadline_s=DEADLINE_S,
    )
    said = outcomes(ran)
    assert {outcome for outcome, _ in said.values()} == {"pass"}
    assert said["kill"][1] == "1 process killed: it went on as it was"


@pytest.mark.parametrize("name", ["mem0", "amem", "memoryos", "memskill"])
async def test_installed_system_passes_every_case(name: str, server: Server, tmp_path: Path) -> None:
    if installed(known(name)) is None:
        skip_without("systems", f"{name} is not installed: egostream systems install {name}")
    source = checkout(name)
    spec = f"{name}:model=small" + ("" if source is None else f",source={source}")
    models = tmp_path / "models.toml"
    models.write_text(f'[models.small]\nbase_url = "{server.url}"\nmodel = "{name}"\n')
    await server.play(Script(rule="tests.foreign.rules:everyone"))
    arguments = (
        "systems",
        "check",
        spec,
        "--models",
        models,
        "--cache",
        tmp_path / "cache.db",
        "--json",
        "-q",
    )
    ran = await anyio.to_thread.run_sync(partial(egostream, *arguments, cwd=tmp_path, deadline_s=DEADLINE_S))
    said = outcomes(ran)
    assert {outcome for outcome, _ in said.values()} == {"pass"}, said


def outcomes(ran: Ran) -> dict[str, tuple[str, str]]:
    """Of all cases of the one system that was checked, with what was said of each."""
    assert (ran.code, ran.err) == (0, ""), ran.out
    (results,) = ran.json.values()
    said = {result["case"]: (result["outcome"], result["said"]) for result in results}
    assert said.keys() == CASES.keys()
    return said
