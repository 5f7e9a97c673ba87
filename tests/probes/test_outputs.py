"""What is read off a run of probes: scores as JSON, tables and CSV, its groups, and what the commands show."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from rich.console import Console

from consumers.probe_tables import groupings
from consumers.score_tables import CSV_COLUMNS, render, summary_lines, to_csv, to_json
from consumers.scores import Scores
from simulator.errors import ConfigError
from simulator.events import OutlineEvent, ProbeEvent
from simulator.plan import plan_run
from simulator.run import execute
from tests.cli.helpers import egostream, one_line
from tests.datasets.test_realmem import MONDAY, assistant, query, session, used, user
from tests.datasets.test_realmem import write as write_realmem
from tests.probes.helpers import APM, options_for, run_of

SYSTEMS = ("null", "oracle", "bm25")
RATE = {"system", "metric", "passed", "judged", "unjudged", "rate", "privileged"}
MEAN = {"system", "metric", "value", "n", "unjudged", "privileged"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Scores, Path]]:
    folder = tmp_path_factory.mktemp("runs")
    real = write_realmem(
        folder,
        session(0, MONDAY, user("I like oolong tea."), assistant("Noted.")),
        session(1, "2025-12-16", user("Now it is sencha tea."), assistant("Noted.")),
        session(
            2,
            "2025-12-19",
            query("Which tea do I like?", "Q-1"),
            assistant("Sencha.", **used(["u1"], ("u1", "likes sencha"))),
            query("And before that tea?", "Q-2", topic="History"),
            assistant("Oolong.", **used(["u0", "u1"], ("u0", "liked oolong"))),
        ),
    )
    made = {
        "lifedialbench": {"asked": "both"},
        "realmem": {"benchmark": "realmem", "data": str(real)},
        "apm": {"benchmark": "apm", "data": APM},
    }
    found = {}
    for name, more in made.items():
        out = folder / name
        found[name] = (anyio.run(execute, plan_run(options_for(out, systems=SYSTEMS, **more))), out)
    return found


def shown(scores: Scores, *groups: str, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(render(scores, groups))
    return console.export_text()


@pytest.mark.parametrize(
    ("name", "choices", "rates", "means"),
    [
        ("lifedialbench", {"mcq_accuracy", "mcq_accuracy_offline"}, set(), set()),
        ("apm", {"mcq_accuracy"}, {"decision"}, set()),
        (
            "realmem",
            set(),
            set(),
            {f"{what}@{k}" for what in ("recall_any", "recall_all", "ndcg") for k in (10, 20)},
        ),
    ],
)
def test_json_says_of_each_metric_what_it_is(
    runs: dict[str, tuple[Scores, Path]], name: str, choices: set[str], rates: set[str], means: set[str]
) -> None:
    scores, out = runs[name]
    said = json.loads((out / "scores.json").read_text())
    assert {**said, "rows": []} == {**json.loads(to_json(scores)), "rows": []}  # the rows are the CSV's
    assert said["protocol"] == name
    kinds: dict[str, set[str]] = {}
    for score in said["scores"]:
        kinds.setdefault(score["metric"], set(score))
        assert kinds[score["metric"]] == set(score)
        if "rate" in score:
            assert score["rate"] == pytest.approx(score["passed"] / score["judged"])
        else:
            assert 0 <= score["value"] <= 1
    assert {metric for metric, keys in kinds.items() if keys == RATE | {"invalid"}} == choices
    assert {metric for metric, keys in kinds.items() if keys == RATE} == rates
    assert {metric for metric, keys in kinds.items() if keys == MEAN} == means
    assert kinds.keys() == choices | rates | means
    assert said["labels"] == said["thirds"] == said["ablation"] == []
    # groups add up to the whole, whichever way they are split
    for by in {group["by"] for group in said["groups"]}:
        for score in said["scores"]:
            split = [
                group
                for group in said["groups"]
                if (group["by"], group["system"], group["metric"]) == (by, score["system"], score["metric"])
            ]
            if by in ("polarity", "availability"):
                continue  # which only some of the probes have
            whole = score.get("n", score.get("judged"))
            assert sum(group["n"] for group in split) == whole
            mean = sum(group["n"] * group["value"] for group in split) / whole
            assert mean == pytest.approx(score.get("value", score.get("rate")))
    assert {finding["name"] for finding in said["findings"]} == {
        "lifedialbench": {"contamination_auroc_mcq", "overwriting_mcq"},
        "apm": {"decision_balanced_accuracy"},
        "realmem": set(),
    }[name]
    assert bool(said["pace"]) == (name == "apm")


@pytest.mark.parametrize("name", ["lifedialbench", "realmem", "apm"])
def test_tables_have_every_group_and_refuse_another(runs: dict[str, tuple[Scores, Path]], name: str) -> None:
    scores, _ = runs[name]
    known = groupings(scores)
    assert "quarter" in known
    told = shown(scores, *known)
    for group in scores.groups:
        assert group.group in told
    for by in known:
        assert f"By {by.replace('_', ' ')}" in told
    assert "every metric judged." in summary_lines(scores)[0]
    assert f"{scores.anchors} probes" in summary_lines(scores)[0]
    assert "an upper bound" in told
    assert "Feedback incorporation" not in told
    assert ("Replies that name no option" in told) == (name != "realmem")
    with pytest.raises(ConfigError, match=f"can't be split by colour, third: there is {', '.join(known)}"):
        render(scores, ("colour", "third"))


def test_a_run_of_anchors_is_split_by_what_anchors_have(tmp_path: Path) -> None:
    data = "synthetic:wearers=1,segments_per_day=3,anchors_per_day=2"
    plan = plan_run(options_for(tmp_path, benchmark="streammembench", data=data))
    scores = anyio.run(execute, plan)
    with pytest.raises(ConfigError, match="can't be split by quarter: there is third, type, subject"):
        render(scores, ("quarter",))


@pytest.mark.parametrize("name", ["lifedialbench", "realmem", "apm"])
def test_csv_has_a_row_for_each_trajectory(runs: dict[str, tuple[Scores, Path]], name: str) -> None:
    scores, out = runs[name]
    assert (out / "trajectories.csv").read_text() == to_csv(scores)
    rows = list(csv.DictReader(io.StringIO(to_csv(scores))))
    assert len(rows) == scores.trajectories
    assert tuple(rows[0]) == CSV_COLUMNS
    for row, told in zip(rows, scores.rows, strict=True):
        assert (row["trajectory"], row["evidence"], row["evidence_id"]) == (
            told.trajectory,
            told.evidence,
            told.evidence_id,
        )
        assert json.loads(row["groups"]) == told.groups
        assert row["newer"] == str(told.newer)
        assert row["T1_text"].startswith(told.evidence)
        assert row["T2_text"] == row["fidelity"] == row["label"] == ""
        for metric, mark in told.marks.items():
            assert row[metric] == mark.outcome
            assert row[f"{metric}_verdict"] == f"{told.trajectory}/{metric}"
            assert row[f"{metric}_value"] == ("" if mark.value is None else str(mark.value))
        unasked = [m for m in ("qa", "decision", "ndcg@10", "mcq_accuracy") if m not in told.marks]
        assert all(row[f"{metric}{part}"] == "" for metric in unasked for part in ("", "_value", "_judge"))


def test_what_commands_show(runs: dict[str, tuple[Scores, Path]]) -> None:
    _, out = runs["apm"]
    ran = egostream("scores", out, "--by", "task", "--by", "polarity")
    assert ran.code == 0
    assert "By task" in ran.out
    assert "Decision balanced accuracy" in ran.out
    refused = egostream("scores", out, "--by", "colour")
    assert refused.code == 2
    assert "can't be split by colour: there is availability, family" in one_line(refused)
    status = egostream("status", out, "--json").json
    assert (status["state"], status["trajectories"]) == ("ended", {"finished": 27})
    probes = egostream("tap", out, "anchors", "--where", "kind=probe", "--json", "-q").json_lines
    assert len(probes) == 9
    assert all(probe["gold"] for probe in probes)
    assert "outline" in egostream("tap", out, "anchors", "-q").out
    decisions = egostream(
        "tap", out, "verdicts", "--where", "metric=decision", "--where", "outcome=pass", "--json", "-q"
    ).json_lines
    assert {verdict["lane"].partition("@")[0] for verdict in decisions} == {"oracle"}


@pytest.mark.parametrize("benchmark", ["lifedialbench", "apm"])
def test_a_dry_run_asks_nothing_of_models_and_leaves_nothing(tmp_path: Path, benchmark: str) -> None:
    options = options_for(
        tmp_path / "run", benchmark=benchmark, **({"data": APM} if benchmark == "apm" else {})
    )
    ran = egostream(
        "run",
        *("--benchmark", benchmark, "--data", options.data, "--system", "null"),
        *("--out", options.out, "--dry-run", "--json"),
    )
    assert (ran.code, ran.json["calls"], ran.json["rows"]) == (0, 0, [])
    assert not options.out.exists()


async def test_nothing_on_the_anchors_topic_is_read_by_agents(tmp_path: Path) -> None:
    """Nor does anything that they read hold a probe's own name or gold."""
    _, history = await run_of(tmp_path, benchmark="apm", data=APM)
    gold = [probe.gold.answer for probe in history.of(ProbeEvent) if not probe.options and probe.gold.answer]
    assert gold
    kept: list[Any] = [event for event in history.events if not isinstance(event, ProbeEvent | OutlineEvent)]
    told = "\n".join(repr(event) for event in kept)
    assert not any(answer in told for answer in gold)
