"""`egostream systems check`, and systems that packages bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.conformance import CASES
from tests.cli.helpers import egostream
from tests.conftest import ROOT

BROKEN = "tests.conformance.stand_ins.isolating:Deaf"
QUICK = ("--case", "retrieval", "--case", "commit", "--case", "top_k")


def test_check_of_a_sound_system_is_a_table_and_says_how_many() -> None:
    ran = egostream("systems", "check", "rag_raw:retrieval=bm25", "full_context", *QUICK, "-q", cwd=ROOT)
    assert (ran.code, ran.err) == (0, "")
    assert "\n3 pass.\n" in ran.out
    assert "\n2 pass, 1 not applicable.\n" in ran.out
    assert "declared: it shows all that it holds" in " ".join(ran.out.split())


def test_check_of_a_broken_system_says_why_and_what_is_demanded() -> None:
    ran = egostream("systems", "check", BROKEN, *QUICK, cwd=ROOT)
    assert ran.code == 1
    assert "not found after its commit" in " ".join(ran.out.split())
    assert f"\ncommit: {CASES['commit'].demand}\n" in ran.out
    assert "\n2 pass, 1 fail.\n" in ran.out


def test_check_as_json_has_each_case_with_its_demand() -> None:
    ran = egostream("systems", "check", "null", f"deaf={BROKEN}", "--json", cwd=ROOT)
    assert ran.code == 1
    assert ran.json.keys() == {"null", "deaf"}
    for results in ran.json.values():
        assert [(r["case"], r["demand"]) for r in results] == [(c.name, c.demand) for c in CASES.values()]
        assert all(r["said"] and r["seconds"] >= 0 for r in results)
    assert [r["case"] for r in ran.json["deaf"] if r["outcome"] == "fail"] == ["commit"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("check", "Missing argument 'SYSTEM...'"),
        ("check null --case x", "'x' is not one of 'retrieval'"),
        ("check nil", "unknown memory system 'nil'"),
        ("check http", "http needs the server's address"),
        ("check rag_ext", "rag_ext needs a model"),
        ("check rag_ext:model=m --models none.toml", "none.toml"),
        ("null check", "unknown memory system 'check'"),
    ],
)
def test_check_of_what_can_t_be_checked_is_one_line(arguments: str, says: str, tmp_path: Path) -> None:
    ran = egostream("systems", *arguments.split(), cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1
