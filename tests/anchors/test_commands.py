"""`egostream anchors` as a person meets it: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from producers.datasets import read_dataset, write_release
from tests.cli.helpers import egostream, one_line


@pytest.fixture
def release(tmp_path: Path) -> Path:
    path = tmp_path / "made_up_v1_en"
    write_release(read_dataset("synthetic:seed=3,wearers=1,segments_per_day=8,anchors_per_day=5"), path)
    return path


def edit(release: Path, change: Any) -> None:
    """Change the first anchor in its file."""
    path = release / "evidence_tasks" / "W01_ADA" / "DAY1.clean.json"
    content = json.loads(path.read_bytes())
    change(content["items"][0]["evidence_anchors"][0])
    path.write_text(json.dumps(content))


def test_a_release_that_is_right_passes(release: Path) -> None:
    ran = egostream("anchors", "check", release)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("5 anchors of 1 streams: no errors")
    found = egostream("anchors", "check", release, "--json").json
    assert found["matched"] == found["supporting_observations"] > 0
    assert set(found["by_check"].values()) >= {0}


@pytest.mark.parametrize(
    ("check", "change"),
    [
        (
            "quote_not_found",
            lambda a: a["supporting_observations"][0]["metadata"].update(quote_hint="never said"),
        ),
        ("no_such_observation", lambda a: _everywhere(a, 77_777)),
        ("leak", lambda a: a["tasks"]["initial_task"].update(user_request=a["evidence_statement"])),
        (
            "equal_requests",
            lambda a: a["tasks"]["followup_task"].update(a["tasks"]["initial_task"]),
        ),
        ("unknown_type", lambda a: a.update(evidence_type="heard")),
        ("empty_field", lambda a: a.pop("subject")),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_to_do(release: Path, check: str, change: Any) -> None:
    edit(release, change)
    ran = egostream("anchors", "check", release, "--json")
    assert ran.code == 1
    errors = [finding for finding in ran.json["findings"] if finding["severity"] == "error"]
    assert {finding["check"] for finding in errors} == {check}
    assert ran.json["anchors_with_errors"] == 1
    assert errors[0]["file"] == "evidence_tasks/W01_ADA/DAY1.clean.json"
    assert errors[0]["path"] == "$.items[0].evidence_anchors[0]"


def test_findings_are_listed_as_far_as_asked(release: Path) -> None:
    edit(release, lambda a: a.update(evidence_type="heard", subject=""))
    pretty = egostream("anchors", "check", release, "--first", 1)
    assert pretty.code == 1
    assert "1 with errors (2 errors, " in pretty.out
    assert re.search(r"^ +1 +unknown_type +error ", pretty.out, re.MULTILINE)
    assert "\nerror: empty_field: W01_ADA DAY1 " in pretty.out
    assert (
        "  evidence_tasks/W01_ADA/DAY1.clean.json $.items[0].evidence_anchors[0]\n  subject says"
        in pretty.out
    )
    assert "more findings: --first N" in pretty.out


def _everywhere(anchor: Any, index: int) -> None:
    anchor["supporting_observations"] = anchor["supporting_observations"][:1]
    anchor["supporting_observations"][0]["metadata"]["stream_index"] = index
    anchor["supporting_observations"][0]["timestamp"] = f"stream_index:{index}"
    anchor["source_span"]["raw_indices"] = [index]


def test_warnings_count_only_when_asked(release: Path) -> None:
    edit(release, lambda a: a.update(subject="Zebulon"))
    ran = egostream("anchors", "check", release, "--json")
    assert (ran.code, ran.json["errors"], ran.json["by_check"]["unknown_subject"]) == (0, 0, 1)
    assert egostream("anchors", "check", release, "--strict").code == 1


def test_what_cannot_be_read_is_one_line(release: Path, tmp_path: Path) -> None:
    edit(release, lambda a: a.update(evidence_statement=5))
    ran = egostream("anchors", "check", release)
    assert ran.code == 2
    assert "DAY1.clean.json: Expected `str | null`, got `int`" in one_line(ran)
    assert "$.items[0].evidence_anchors[0].evidence_statement" in ran.err
    assert egostream("anchors", "check", tmp_path / "nowhere").code == 2
    assert "no such folder" in one_line(
        egostream("anchors", "audit", "x", "--sample", 1, "--out", tmp_path / "s")
    )
    assert "can't be read" in one_line(egostream("anchors", "agreement", "a.csv", "b.csv"))


def test_audit_and_agreement(release: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheets"
    ran = egostream("anchors", "audit", release, "--sample", 4, "--out", out, "--json")
    a, b = ran.json["sheets"]
    assert sum(stratum["drawn"] for stratum in ran.json["drawn"]) == 4
    assert "may hold answers" in one_line(egostream("anchors", "audit", release, "--sample", 4, "--out", out))
    assert "from 1 to 5" in one_line(egostream("anchors", "audit", release, "--sample", 6, "--out", out))
    other = tmp_path / "others"
    pretty = egostream(
        "anchors", "audit", release, "--sample", 4, "--seed", 1, "--out", other, "--format", "jsonl"
    )
    assert "egostream anchors agreement" in pretty.out
    assert "compare sheets of one sample" in one_line(
        egostream("anchors", "agreement", a, other / "annotator_b.jsonl")
    )
    found = egostream("anchors", "agreement", a, b, "--json").json
    assert found["items"] == 4
    assert found["criteria"]["leak"] == {
        "n": 0,
        "both_yes": 0,
        "both_no": 0,
        "only_a": 0,
        "only_b": 0,
        "unanswered": 4,
        "agreement": None,
        "kappa": None,
        "undefined": "no item was answered by both",
    }
    said = egostream("anchors", "agreement", a, b)
    assert said.code == 0
    assert "no kappa for" in said.out


@pytest.mark.parametrize("command", ["build", "check", "audit", "agreement"])
def test_help_has_an_example_and_fits_a_terminal(command: str) -> None:
    ran = egostream("anchors", command, "--help")
    assert ran.code == 0
    assert f"egostream anchors {command}" in ran.out[ran.out.index("Example") :]
    assert "--json" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
