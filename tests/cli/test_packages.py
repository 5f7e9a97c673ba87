"""Memory systems that installed packages bring: the example, really installed, and broken ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.registry import brought, capabilities, parse_spec
from simulator.errors import ConfigError
from tests.cli.helpers import Ran, egostream
from tests.conftest import ROOT

PACKAGE = ROOT / "examples" / "memory_package"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the example package."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    shutil.copytree(PACKAGE, source)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-build-isolation",
        "--no-deps",
    ]
    subprocess.run([*pip, "--target", folder / "site", source], check=True, timeout=100)
    return folder / "site"


def with_packages(folder: Path, *arguments: object, cwd: Path) -> Ran:
    path = os.pathsep.join([str(folder), str(ROOT)])
    return egostream(*arguments, cwd=cwd, env={"PYTHONPATH": path})


def bring(folder: Path, package: str, entry_points: str) -> None:
    """A package as pip leaves it: what stands in its metadata, and nothing else."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[egostream.systems]\n{entry_points}\n")


def test_system_of_an_installed_package_is_listed_checked_and_run(installed: Path, tmp_path: Path) -> None:
    listed = with_packages(installed, "systems", cwd=tmp_path)
    assert (listed.code, listed.err) == (0, "")
    assert "from egostream-notebook 0.1.0" in listed.out
    assert "top_k: int | None" in listed.out
    row = with_packages(installed, "systems", "--json", cwd=tmp_path).json["notebook"]
    assert (row["package"], row["branches"]) == ("egostream-notebook 0.1.0", "copy")

    assert with_packages(installed, "systems", "check", "notebook", "--quiet", cwd=tmp_path).code == 0

    data = "synthetic:seed=3,wearers=1,segments_per_day=4,observations_per_segment=10,anchors_per_day=3"
    systems = ("--system", "notebook", "--system", "short=notebook:top_k=1", "--system", "null")
    ran = with_packages(installed, "run", "--data", data, *systems, "--out", "run", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.json["means"] == {"notebook": "copy", "short": "copy", "null": "fork"}
    assert with_packages(installed, "audit", "run", cwd=tmp_path).code == 0


def test_package_s_own_tests_pass(installed: Path) -> None:
    path = os.pathsep.join([str(installed), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    source = installed.parent / "source"
    ran = subprocess.run(
        command, cwd=source, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=100
    )
    assert ran.returncode == 0, ran.stdout.decode()
    assert b"2 passed" in ran.stdout


def test_option_of_a_brought_system_may_be_an_address(installed: Path, tmp_path: Path) -> None:
    ran = with_packages(installed, "systems", "check", "notebook:url=http://x/y", cwd=tmp_path)
    assert ran.code == 2
    assert "notebook: notebook has no option 'url': there are top_k" in ran.err


BROKEN = {
    "gone": ("no_such_module:Memory", "can't be imported: ModuleNotFoundError: No module named"),
    "bad": ("broken_memory:Memory", "can't be imported: ZeroDivisionError: division by zero"),
    "missing": ("json:Memory", "can't be imported: AttributeError"),
    "odd": ("json:loads", "is no class: its entry point is 'json:loads'"),
    "unfit": ("fractions:Fraction", "is no memory system: it lacks async ingest"),
    "bad name": ("fractions:Fraction", "which is no name for one"),
    "null": ("fractions:Fraction", "the built-in one is used"),
}


def test_broken_systems_are_one_line_each_where_they_are_listed_or_used_and_nowhere_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "broken_memory.py").write_text("1 / 0")
    bring(tmp_path, "broken-memory", "\n".join(f"{name} = {value}" for name, (value, _) in BROKEN.items()))
    listed = with_packages(tmp_path, "systems", cwd=tmp_path)
    assert listed.code == 0
    assert "rag_raw" in listed.out
    lines = dict(line.split(": ", 1) for line in listed.err.splitlines())
    assert lines.keys() == BROKEN.keys()
    for name, (_, says) in BROKEN.items():
        assert says in lines[name]
        assert "broken-memory 1.0" in lines[name] or name == "unfit"
    rows = with_packages(tmp_path, "systems", "--json", cwd=tmp_path).json
    assert {name: row["error"] for name, row in rows.items() if "error" in row} == {
        name: line for name, line in lines.items() if name != "null"
    }
    used = with_packages(tmp_path, "systems", "check", "bad", cwd=tmp_path)
    assert (used.code, used.out, used.err) == (2, "", f"egostream: error: {lines['bad']}\n")
    other = with_packages(tmp_path, "systems", "check", "null", "--case", "nothing", cwd=tmp_path)
    assert (other.code, other.err) == (0, "")


def test_name_that_packages_mean_differently_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    bring(
        tmp_path, "one", "same = examples.own_memory:LongestLines\nother = examples.own_memory:LongestLines"
    )
    bring(
        tmp_path,
        "two",
        "same = examples.own_memory:LongestLines\nother = examples.directory_memory:NotesOnDisk",
    )
    assert brought() == {"same": "one 1.0 and two 1.0", "other": "one 1.0 and two 1.0"}
    assert capabilities("same").fork == "cheap"
    assert capabilities("same").implementation == "one 1.0 and two 1.0"
    says = (
        "one 1.0 and two 1.0 bring a system 'other': name its class instead, one of "
        "examples.directory_memory:NotesOnDisk, examples.own_memory:LongestLines"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}$"):
        capabilities("other")


def test_metadata_that_can_t_be_read_spoils_the_list_of_packages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(tmp_path, "garbled", "this is no entry point")
    listed = with_packages(tmp_path, "systems", cwd=tmp_path)
    assert (listed.code, listed.err.count("\n")) == (0, 1)
    assert "the entry points of installed packages can't be read" in listed.err
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="can't be read"):
        parse_spec("notebook")
    assert capabilities("rag_raw").fork == "cheap"
