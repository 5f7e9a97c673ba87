"""Rows, tables and files: the scores as they are printed and written."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from consumers.score_tables import CSV_COLUMNS, summary_lines, to_csv, to_json, write_scores
from consumers.scores import LABELS, MAIN_METRICS
from simulator.events import ResponseEvent
from tests.protocols.scripted import anchor_of
from tests.scoreboard.helpers import ANCHORS, good, log_of, scores_of, shown


def test_a_row_traces_its_trajectory() -> None:
    row = scores_of(log_of(["oracle"], ANCHORS[:1], [good("fail")])).rows[0]
    place = "oracle@A/s0/e0"
    assert (row.system, row.lane, row.stream, row.segment, row.trajectory) == (
        "oracle",
        "oracle@A",
        "A",
        0,
        place,
    )
    assert row.texts == {
        "T1": "first A/s0/e0",
        "R1": "answer R1",
        "F": "F fail",
        "R_F": "answer R_F",
        "T2": "second A/s0/e0",
        "R2": "answer R2",
    }
    assert row.events["R_F"] == f"{place}/R_F"
    assert row.events["commit"] == f"{place}/commit"
    assert {metric: mark.verdict for metric, mark in row.marks.items()} == {
        metric: f"{place}/{metric}" for metric in MAIN_METRICS
    }
    assert row.retrieved == {"R1": 0, "R_F": 0, "R2": 0}
    assert (row.day, row.time) == ("2025-08-16", "00:05:00")


def test_rows_come_in_the_runs_order_and_e10_after_e9() -> None:
    anchors = [anchor_of("B", 0, number) for number in (10, 9, 0)] + [anchor_of("A", 3)]
    scores = scores_of(log_of(["null", "flat"], anchors, [good()] * 8))
    places = [f"{row.system} {row.anchor}" for row in scores.rows]
    order = ["B/s0/e0", "B/s0/e9", "B/s0/e10", "A/s3/e0"]
    assert places == [f"{system} {anchor}" for system in ("null", "flat") for anchor in order]


def test_tables_mark_privileged_systems_and_print_labels_as_they_are() -> None:
    systems = ["rag[top_k=5]", "oracle"]
    plans = [*[good()] * 5, good("fail", fi="unjudged"), *[good()] * 6]
    text = shown(scores_of(log_of(systems, ANCHORS, plans)))
    assert "rag[top_k=5]" in text
    assert "oracle †" in text
    assert "rag[top_k=5] †" not in text
    assert "upper bound, not a competitor" in text
    assert "83.3% (5/6)" in text
    assert re.search(r"– \(0/0\).*\n.* 1 unjudged", text)
    assert all(label in text for label in LABELS)


def test_json_has_the_fixed_keys_and_csv_one_line_a_trajectory(tmp_path: Path) -> None:
    scores = scores_of(log_of(["null"], ANCHORS, [good("fail", fi="fail"), *[good()] * 5]))
    value = msgspec.json.decode(to_json(scores))
    assert value["scores"][0].keys() == {
        "system",
        "metric",
        "passed",
        "judged",
        "unjudged",
        "rate",
        "privileged",
    }
    assert [rate["metric"] for rate in value["scores"]] == list(MAIN_METRICS)
    assert value["scores"][2]["rate"] == 0.0
    assert len(value["rows"]) == 6
    written = write_scores(tmp_path, scores)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.json", "trajectories.csv"]
    assert "rows" not in msgspec.json.decode(written[0].read_bytes())
    lines = list(csv.DictReader(io.StringIO(written[1].read_text(encoding="utf-8"), newline="")))
    assert [line["anchor"] for line in lines] == [row.anchor for row in scores.rows]
    assert lines[0].keys() == set(CSV_COLUMNS)
    assert (lines[0]["fi"], lines[1]["fi"]) == ("fail", "")
    assert lines[0]["label"] == "feedback incorporation failure"
    assert lines[0]["R_F_text"] == "answer R_F"


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    scores = scores_of(log_of(["null"], ANCHORS[:1], [good()]))
    (tmp_path / "trajectories.csv").mkdir()
    with pytest.raises(OSError, match=r"trajectories\.csv"):
        write_scores(tmp_path, scores)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.json", "trajectories.csv"]


def test_texts_with_commas_quotes_and_newlines_survive_the_csv() -> None:
    events = log_of(["null"], ANCHORS[:1], [good()])
    said = 'a, "b"\n咖啡\r\n; c'
    events = [replace(e, text=said) if isinstance(e, ResponseEvent) else e for e in events]
    (line,) = csv.DictReader(io.StringIO(to_csv(scores_of(events)), newline=""))
    assert line["R1_text"] == said


def test_of_many_kinds_of_oddities_those_are_named_that_lost_something_and_the_rarest() -> None:
    oddities = {"a": 22_513, "b": 3_654, "no_text_left_out": 80, "d": 2, "e": 1}
    scores = replace(scores_of(log_of(["null"], ANCHORS[:1], [good()])), oddities=oddities)
    said = "The source has 26,250 oddities: 80 no_text_left_out, 1 e, 2 d, 26,167 of 2 other kinds. "
    assert f"{said}What each is, and where: `egostream inspect PATH --examples`" in summary_lines(scores)
    (*_, probes) = summary_lines(replace(scores, protocol="apm", oddities={"e": 1}))
    assert probes.startswith("The source has 1 oddity: 1 e. ")
    assert probes.endswith("`egostream inspect --benchmark apm PATH --examples`")
    assert "oddit" not in shown(replace(scores, oddities={}))
