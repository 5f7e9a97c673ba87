"""`egostream report` of runs: what it gives, what it warns of, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.foreign.catalogue import catalogue
from consumers.audit import Certificate
from simulator.report.overview import overview
from simulator.report.render import render
from simulator.report.runs import read_overview
from simulator.report.runs_page import runs_page
from simulator.report.shares import of_mean
from tests.cli.helpers import egostream, one_line
from tests.load.reports import loaded, written
from tests.load.test_report import Page
from tests.report.conftest import Runs, scores_of

MAIN = "from simulator.cli import main; sys.exit(main())"
WITHOUT = """
import importlib.machinery, sys
class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition('.')[0] in {names!r} else super().find_spec(name, path, target)
sys.meta_path = [Without if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""


def without(names: tuple[str, ...], *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a Python that lacks these modules."""
    code = WITHOUT.format(names=names) + MAIN
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_json_has_what_is_on_the_page(runs: Runs) -> None:
    shown = runs.shown
    assert shown["report"] == str(runs.page)
    assert [run["benchmark"] for run in shown["runs"]] == list(runs.folders)
    for run, folder in zip(shown["runs"], runs.folders.values(), strict=True):
        assert run["scores"] == scores_of(folder)
        assert run["audit"]["sound"] is True
        assert run["audit"]["digest"] == json.loads((folder / "audit.json").read_text())["digest"]
        assert len([each for each in run["shown"] if each["by"]]) > 0
    text = " ".join(Page(runs.page.read_text()).texts)
    for run in shown["runs"]:
        assert all(line in text for line in (*run["lines"], *run["notes"], *run["facts"].values()))
    assert all(warning in text for warning in shown["warnings"])
    assert {len(row["cells"]) for row in shown["summary"]} == {len(shown["columns"])}
    assert [row["privileged"] for row in shown["summary"]] == [True, False, False, False, False]


def test_a_page_of_runs_stands_alone(runs: Runs) -> None:
    text = runs.page.read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert [address for address in page.addresses if not address.startswith(("#", "data:"))] == []
    assert "url(http" not in text
    assert "#0500" not in text  # a stand-in colour


async def test_one_run_has_its_page_in_its_folder_and_equal_bytes_in_any_process(runs: Runs) -> None:
    folder = runs.folders["apm"]
    ran = egostream("report", folder, env={"PYTHONHASHSEED": "1", "TZ": "UTC1"})
    assert (ran.code, ran.out) == (0, f"The report is {folder}/report.html: open it in a browser.\n"), ran.err
    here = render(runs_page(await read_overview([str(folder)])))
    assert (folder / "report.html").read_text() == here


def test_several_have_theirs_in_this_folder(runs: Runs, tmp_path: Path) -> None:
    ran = egostream("report", runs.folders["apm"], runs.folders["realmem"] / "log.db", cwd=tmp_path)
    assert ran.code == 0, ran.err
    text = (tmp_path / "report.html").read_text()
    assert "<h1>APM, RealMem: 3 memory systems</h1>" in text
    assert "RealMem: not audited: `egostream audit " in text  # a log by itself has no certificate beside it


def test_loads_are_given_by_themselves(runs: Runs, tmp_path: Path) -> None:
    load = tmp_path / "load"
    written(load, loaded())
    ran = egostream("report", runs.folders["apm"], load)
    assert ran.code == 2
    assert one_line(ran).endswith(f"{load} is a load: give loads by themselves, `egostream report {load}`")
    ran = egostream("report", load, "--out", tmp_path / "new" / "page.html")
    assert ran.code == 0, ran.err
    assert "<h1>Load of it</h1>" in (tmp_path / "new" / "page.html").read_text()


def test_what_is_no_run_is_one_line_that_says_so(runs: Runs, tmp_path: Path) -> None:
    ran = egostream("report", tmp_path / "nothing", runs.folders["apm"])
    assert ran.code == 2
    assert "no run at" in one_line(ran)
    again = f"{runs.folders['apm']}/../apm"
    ran = egostream("report", runs.folders["apm"], again)
    assert ran.code == 2
    assert one_line(ran).endswith(f"{again} is there twice: name each run once")
    replayed = egostream(
        "replay",
        "-q",
        "--data",
        "synthetic:segments_per_day=1",
        "--rate",
        "inf",
        "--out",
        tmp_path / "replay",
    )
    assert replayed.code == 0, replayed.err
    ran = egostream("report", tmp_path / "replay")
    assert ran.code == 2
    assert "is a replay without memory systems" in one_line(ran)


def test_a_run_needs_nothing_of_what_loads_need(runs: Runs, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = without(("hdrh", "psutil"), "report", runs.folders["apm"], "--out", page)
    assert ran.returncode == 0, ran.stderr
    assert page.stat().st_size > 10_000
    ran = without(("jinja2", "matplotlib"), "report", runs.folders["apm"], "--out", page)
    assert ran.returncode == 2
    said = "a report needs matplotlib, which is not installed: pip install 'egostream[report]'"
    assert ran.stderr.strip().endswith(said)
    load = tmp_path / "load"
    written(load, loaded())
    ran = without(("hdrh",), "report", load)
    assert ran.returncode == 2
    assert ran.stderr.strip().endswith(
        "a load needs hdrh, which is not installed: pip install 'egostream[load]'"
    )


async def test_a_broken_invariant_is_the_first_warning(runs: Runs, tmp_path: Path) -> None:
    folder = tmp_path / "smb"
    shutil.copytree(runs.folders["streammembench"], folder)
    path = folder / "audit.json"
    certificate = msgspec.json.decode(path.read_bytes(), type=Certificate)
    earlier = replace(certificate, digest="0" * 64)
    path.write_bytes(msgspec.json.encode(certificate.held_against(earlier)))
    shown = await read_overview([str(folder)])
    assert shown.runs[0].audit.sound is False
    assert shown.warnings[0].startswith(
        "StreamMemBench: the log breaks an invariant, so its numbers prove nothing (not sound: "
    )
    path.write_bytes(msgspec.json.encode(replace(certificate, run="run-other")))
    shown = await read_overview([str(folder)])
    assert shown.runs[0].audit.sound is None
    assert any("audit.json is that of run-other" in warning for warning in shown.warnings)


async def test_what_is_not_to_be_compared_is_said(runs: Runs) -> None:
    (run,) = (await read_overview([str(runs.folders["apm"])])).runs
    assert overview([run, replace(run, name="again")]).warnings == ()
    other = replace(
        run, name="other", identity={**run.identity, "top_k": "3", "systems": "bm25=rag_raw:retrieval=bm25"}
    )
    assert overview([run, other]).warnings == (
        "APM and other differ in top_k: don't compare their columns.",
        "bm25 is not the same system in all runs, so its row is not that of one system: APM: bm25; other: "
        "rag_raw:retrieval=bm25.",
    )


async def test_a_checkout_that_was_not_as_measured_is_warned_of(runs: Runs) -> None:
    (run,) = (await read_overview([str(runs.folders["apm"])])).runs
    known = catalogue()["amem"]
    ran = f"{known.implementation}, source 0123456789ab{known.unlike}"
    shown = overview([replace(run, identity={**run.identity, "implementation.mine": ran})])
    assert [warning.partition(" that ")[0] for warning in shown.warnings] == [
        "APM: mine ran from a checkout of A-Mem"
    ]


async def test_runs_of_one_benchmark_are_numbered(runs: Runs, tmp_path: Path) -> None:
    shutil.copytree(runs.folders["apm"], tmp_path / "apm")
    shown = await read_overview(
        [str(runs.folders["apm"]), str(runs.folders["realmem"]), str(tmp_path / "apm")]
    )
    assert [run.name for run in shown.runs] == ["APM (1)", "RealMem", "APM (2)"]
    row = next(row for row in shown.summary if row.system == "bm25")
    first = [cell for cell, column in zip(row.cells, shown.columns, strict=True) if column.run == "APM (1)"]
    second = [cell for cell, column in zip(row.cells, shown.columns, strict=True) if column.run == "APM (2)"]
    assert first == second != []


async def test_rates_and_means_have_intervals_around_them(runs: Runs) -> None:
    shown = await read_overview([str(folder) for folder in runs.folders.values()])
    kinds = set()
    for run in shown.runs:
        for each in run.shown:
            if each.interval is None:
                assert each.n < 2 or each.metric == "decision_balanced_accuracy"
                continue
            assert each.value is not None
            assert 0 <= each.interval.low <= each.value <= each.interval.high <= 1
            kinds.add(each.passed is None)
    assert kinds == {True, False}


def test_the_interval_of_a_mean_by_hand() -> None:
    found = of_mean([0.4, 0.6, 0.4, 0.6])  # variance 0.04/3, standard error sqrt(0.04/12) = 0.057735
    assert found is not None
    assert (found.low, found.high) == (
        pytest.approx(0.5 - 1.959964 * 0.057735),
        pytest.approx(0.5 + 1.959964 * 0.057735),
    )
    assert of_mean([0.5]) is None
    clipped = of_mean([0.0, 1.0])
    assert clipped is not None
    assert (clipped.low, clipped.high) == (0, 1)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_the_interval_of_a_mean_holds_it_and_mirrors(values: list[float]) -> None:
    found, mirrored = of_mean(values), of_mean([1 - value for value in values])
    assert found is not None
    assert mirrored is not None
    assert found.low - 1e-12 <= sum(values) / len(values) <= found.high + 1e-12
    assert found.low == pytest.approx(1 - mirrored.high, abs=1e-9)
