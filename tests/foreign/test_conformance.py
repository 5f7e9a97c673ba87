"""A foreign system passes the suite that ours pass, with its model behind the gateway and its process killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.conformance import CASES
from tests.cli.helpers import egostream
from tests.conftest import ROOT


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
    )
    assert (ran.code, ran.err) == (0, ""), ran.out
    said = {result["case"]: (result["outcome"], result["said"]) for result in ran.json["toy"]}
    assert said.keys() == CASES.keys()
    assert {outcome for outcome, _ in said.values()} == {"pass"}
    assert said["kill"][1] == "1 process killed: it went on as it was"
