"""`demo`, `run` and `scores`: what is printed, written and returned."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

from tests.cli.helpers import Ran, egostream, one_line

METRICS = {"fidelity", "ieu", "fi", "fur"}
HEADINGS = ("Fidelity", "evidence use", "incorporation", "reuse")


def test_the_demo_ends_in_a_table_and_two_next_steps_that_work(tmp_path: Path) -> None:
    ran = egostream("demo", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "4 systems, 32 anchors, 128 trajectories: every metric judged." in ran.out
    assert all(heading in ran.out for heading in HEADINGS)
    assert re.search(r"^null +0\.0% \(0/32\)", ran.out, re.MULTILINE)
    assert "oracle †" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    steps = re.findall(r"^    egostream (.+)$", ran.out, re.MULTILINE)
    assert len(steps) == 2
    for step in steps:
        assert egostream(*step.split(), cwd=tmp_path).code == 0


def test_run_says_what_came_out_where_it_is_and_what_next(finished: tuple[Path, Ran]) -> None:
    folder, ran = finished
    assert ran.code == 0, ran.err
    assert "3 systems, 6 anchors, 18 trajectories: every metric judged." in ran.out
    assert str(folder / "log.db") in ran.out
    for step in re.findall(r"^    egostream (.+)$", ran.out, re.MULTILINE):
        assert egostream(*step.split()).code == 0
    assert "240 observations, 12 segments, 6 anchors; 3 systems, 18 trajectories" in ran.err
    written = json.loads((folder / "scores.json").read_text())
    assert written["scores"] == egostream("scores", folder, "--json").json["scores"]


def test_run_with_json_prints_json_only(release: Path, tmp_path: Path) -> None:
    arguments = ("run", "--data", release, "--system", "null", "--out", tmp_path / "r", "--json")
    ran = egostream(*arguments, "--log-level", "info", "--log-json", "--segments", 3)
    assert ran.code == 0, ran.err
    assert {rate["metric"] for rate in ran.json["scores"]} == METRICS
    logged = [json.loads(line) for line in ran.err.splitlines() if line.startswith("{")]
    assert [line["event"] for line in logged] == ["run", "replayed", "run_ended"]
    assert logged[0]["segments"] == "3"

    refused = egostream(*arguments)  # without --segments it is another run
    assert refused.code == 2
    assert "already holds a run with segments '3' (not 'all')" in one_line(refused)
    assert egostream(*arguments, "--overwrite", "-q").err == ""


def test_a_call_over_its_timeout_is_unjudged_and_the_run_goes_on(release: Path, tmp_path: Path) -> None:
    slow = "slow=tests.load.systems:FixedTime:service_ms=60000"
    options = ("--segments", 1, "--call-timeout", 0.2, "--out", tmp_path / "r", "--json")
    ran = egostream("run", "--data", release, "--system", slow, *options)
    assert ran.code == 4
    assert {rate["unjudged"] for rate in ran.json["scores"] if rate["metric"] == "fidelity"} == {1}
    reasons = egostream("tap", tmp_path / "r", "deltas", "--json").out
    assert "0.2 s" in reasons


def test_scores_as_json(run_folder: Path) -> None:
    found = egostream("scores", run_folder, "--json").json
    rates = {(rate["system"], rate["metric"]): rate for rate in found["scores"]}
    assert rates.keys() == {(system, metric) for system in ("null", "oracle", "bm25") for metric in METRICS}
    for rate in rates.values():
        assert rate["unjudged"] == 0
        assert rate["rate"] == (rate["passed"] / rate["judged"] if rate["judged"] else None)
    assert rates["null", "fidelity"]["passed"] == 0
    assert (rates["oracle", "fidelity"]["passed"], rates["oracle", "fidelity"]["judged"]) == (6, 6)
    assert len(found["rows"]) == 18


def test_scores_pretty_by_group(run_folder: Path) -> None:
    ran = egostream("scores", run_folder, "--by", "third", "--by", "type", "--by", "subject")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "3 systems, 6 anchors, 18 trajectories: every metric judged."
    groups = ("Early, middle and late", "By evidence type", "By subject", "\n  early ", "\n  stated ")
    assert all(group in ran.out for group in groups)
    assert "Where it went wrong" in ran.out
    assert re.search(r"^null +0 B +\d+\.\d+ ms +\d+\.\d+ ms *$", ran.out, re.MULTILINE)
    assert "Tokens" not in ran.out  # no model was asked
    assert max(map(len, ran.out.splitlines())) <= 80


def test_scores_as_csv(run_folder: Path, tmp_path: Path) -> None:
    printed = egostream("scores", run_folder, "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(printed.out, newline="")))
    assert len(rows) == 18
    assert {row["system"] for row in rows} == {"null", "oracle", "bm25"}
    file = tmp_path / "rows.csv"
    ran = egostream("scores", run_folder, "--csv", file)
    assert "Scores" in ran.out
    assert ran.err == f"written: {file}\n"
    assert file.read_text() == printed.out


def test_scores_write_what_the_run_wrote(run_folder: Path) -> None:
    names = ("scores.json", "trajectories.csv")
    before = [(run_folder / name).read_bytes() for name in names]
    for name in names:
        (run_folder / name).unlink()
    assert egostream("scores", run_folder, "--write", "-q").err == ""
    assert [(run_folder / name).read_bytes() for name in names] == before


def test_a_terminal_that_knows_no_such_characters_gets_the_tables_all_the_same(run_folder: Path) -> None:
    ran = egostream("scores", run_folder, env={"PYTHONIOENCODING": "ascii"})
    assert ran.code == 0
    assert "oracle ?" in ran.out


def test_where_nothing_says_how_wide_it_is_tables_do_not_wrap(run_folder: Path) -> None:
    ran = egostream("scores", run_folder, env={"COLUMNS": ""})
    assert re.search(r"^System +Fidelity +evidence use +incorporation +reuse$", ran.out, re.MULTILINE)


def test_your_own_memory_system_may_fail_and_is_unjudged(release: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from adapters.systems.null import NullMemory\n\n\n"
        "class Mute(NullMemory):\n"
        "    async def answer(self, request):\n"
        "        raise ValueError('cat got my tongue')\n"
    )
    ran = egostream("run", "--data", release, "--system", "mine:Mute", "--out", "r", cwd=tmp_path)
    assert ran.code == 4
    assert re.match(
        r"1 system, 6 anchors, 6 trajectories: 6 of 6 trajectories unjudged \(100\.0%\): ", ran.out
    )
    assert "cat got my tongue" in ran.out.splitlines()[0]
    assert egostream("scores", "r", "--json", cwd=tmp_path).code == 4


CUES = """1
00:00:01,000 --> 00:00:03,000
Jake: good morning

2
00:00:05,000 -> 00:00:07
Jake: a line that is no cue's

3
00:00:0x,000 --> 00:00:09,000
Jake: nor is this one

4
00:00:02,000 --> 00:00:04,000
Alice:good morning, Jake
"""


def test_what_is_odd_in_the_source_is_said_by_all_that_shows_scores(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "run"
    file = data / "Transcript/A1_JAKE/DAY1/A1_JAKE_DAY1_11000000.srt"
    file.parent.mkdir(parents=True)
    file.write_text(CUES)
    found = egostream("inspect", data, "--json").json["oddities"]
    assert found["unreadable_times"] == 1
    ran = egostream("run", "--data", data, "--system", "null", "--out", folder)
    assert ran.code == 0, ran.err
    (line,) = [line for line in ran.out.splitlines() if "oddit" in line]
    assert len(line) < 200
    assert line.startswith(f"The source has {sum(found.values())} oddities: 1 unreadable_times, 1 ")
    command = line.partition("`egostream ")[2].rstrip("`").replace("PATH", str(data))
    assert f"{file.name}:10: 00:00:0x,000 --> 00:00:09,000" in egostream(*command.split()).out
    assert line in egostream("scores", folder).out
    assert egostream("scores", folder, "--json").json["oddities"] == found
    assert json.loads((folder / "scores.json").read_text())["oddities"] == found
    assert egostream("report", folder, "--out", tmp_path / "report.html").code == 0
    assert "The source has" in (tmp_path / "report.html").read_text()
