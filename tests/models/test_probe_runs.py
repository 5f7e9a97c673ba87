"""Whole runs of probes that ask models over HTTP, by the command line: the five rubrics, an outage, and what of it is
made good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import ConfigError
from simulator.models import ModelOptions
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import log_path
from simulator.workers import judge_worker
from tests.conftest import ROOT
from tests.datasets.test_lifedialbench import history, question
from tests.datasets.test_lifedialbench import write as write_lifedial
from tests.datasets.test_realmem import MONDAY, assistant, query, session, used, user
from tests.datasets.test_realmem import write as write_realmem
from tests.models.roles import role_of
from tests.models.server import Script, Step, scripted_server
from tests.models.test_runs import DOWN, RULE, configured, ran, verdicts

SYSTEMS = ("null", "oracle", "recency")
TUESDAY, FRIDAY = "2025-12-16 (Tuesday)", "2025-12-19 (Friday)"


def realmem(folder: Path) -> Path:
    """Four queries: one of them has no gold memory, and one no answer."""
    return write_realmem(
        folder,
        session(0, MONDAY, user("I drink nothing but oolong tea."), assistant("Oolong it is.")),
        session(1, TUESDAY, user("From now on only sencha tea for me."), assistant("Sencha, noted.")),
        session(
            2,
            FRIDAY,
            query("Which tea do I like?", "Q-1"),
            assistant(
                "You drink only sencha tea now.", **used(["u1"], ("u1", "only sencha tea from now on"))
            ),
            query("Which tea did I drink before?", "Q-2"),
            assistant("Before, nothing but oolong tea.", **used(["u0", "u1"], ("u0", "drank oolong tea"))),
            query("And what shall I buy?", "Q-3"),
            assistant("Whatever you like.", memory_session_uuids=["u1"]),
            query("Any news?", "Q-4"),
        ),
    )


def lifedial(folder: Path) -> Path:
    return write_lifedial(
        folder,
        history(
            question("What was said first?", options=None, answer="one"),
            question(
                "What was said third?", options=["A. three", "B. seven"], golden_option="A", answer="three"
            ),
            question("Nobody knows?", options=None, answer=" "),
            question("Which is right?", golden_option=None),
        ),
    )


def apm(folder: Path) -> Path:
    return ROOT / "examples" / "apm_tasks.json"


BENCHMARKS = {
    "realmem": (realmem, {"qa", "memory_recall", "helpful"}),
    "lifedialbench": (lifedial, {"open_answer"}),
    "apm": (apm, {"rating"}),
}


def command(folder: Path, benchmark: str, *more: object, systems: Iterable[str] = SYSTEMS) -> list[object]:
    make, _ = BENCHMARKS[benchmark]
    where = ["--models", folder / "models.toml", "--cache", folder / "cache.db"]
    names = [word for system in systems for word in ("--system", system)]
    return ["run", "--benchmark", benchmark, "--data", make(folder), *names, *where, *more]


def said(folder: Path, out: str) -> list[dict[str, Any]]:
    """The verdicts of a run or of its retry: they differ in the run's name."""
    return [
        {name: value for name, value in verdict.items() if name != "run"}
        for verdict in verdicts(folder, out).values()
    ]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
async def test_all_is_judged_estimated_and_counted(tmp_path: Path, benchmark: str) -> None:
    options = ("--judge", "judge", "--answers", "small", "--json", "-q")
    async with scripted_server(Script(rule=RULE)) as server:
        configured(tmp_path, server)
        dry = await ran(*command(tmp_path, benchmark, *options, "--dry-run", "--out", tmp_path / "run"))
        assert dry.code == 0, dry.err
        assert await server.asked() == []
        done = await ran(*command(tmp_path, benchmark, *options, "--out", tmp_path / "run"))
        assert done.code == 0, done.err
        asked = Counter(role_of(call.body) for call in await server.asked())
    assert set(asked) == BENCHMARKS[benchmark][1] | {"answer"}

    # whatever a model judged has its votes, and a mean its value
    by_model = {m for m, name in _judges(done.json).items() if "probes by judge" in name}
    assert by_model
    values: dict[str, set[float]] = {}
    for verdict in verdicts(tmp_path).values():
        assert verdict["outcome"] != "unjudged", verdict
        if verdict["metric"] in by_model and verdict.get("votes"):
            assert len(verdict["votes"]) == 3
            assert all(vote["judge"] == "judge" for vote in verdict["votes"])
        values.setdefault(verdict["metric"], set()).add(verdict.get("value", -1))
    means = {score["metric"] for score in done.json["scores"] if "value" in score}
    assert all(-1 not in values[metric] for metric in means)
    assert all(values[metric] == {-1} for metric in values.keys() - means)
    assert any(len(values[metric]) > 1 for metric in by_model & means) or benchmark == "lifedialbench"
    agreement = {found["metric"]: found for found in done.json["agreement"]}
    assert agreement.keys() == by_model
    assert all(found["judge"] == "judge" and found["failed"] == 0 for found in agreement.values())

    # the estimate is the most there can be, and what was spent is by role
    rows = {(row["system"], row["role"]): row for row in dry.json["rows"]}
    spent = {(row["system"], row["role"]): row for row in done.json["spending"]}
    assert rows.keys() == {(system, role) for system in SYSTEMS for role in ("answer", "judge")}
    assert spent.keys() <= rows.keys()
    assert ("recency", "judge") in spent
    for role, row in rows.items():
        calls = spent[role]["calls"] if role in spent else 0
        assert row["calls"] >= calls
        assert row["money"] > 0
        if role[1] == "answer":
            assert row["calls"] == calls == done.json["anchors"]
    assert rows["oracle", "judge"]["calls"] >= spent["oracle", "judge"]["calls"] > 0


async def test_an_outage_of_the_judge_leaves_unjudged_what_it_judges_and_a_retry_makes_it_good(
    tmp_path: Path,
) -> None:
    options = ("--judge", "judge", "--answers", "small", "--json", "-q")
    async with scripted_server(Script(rule=RULE)) as judging, scripted_server(Script(rule=RULE)) as answering:
        configured(tmp_path, judging, answering, attempts=1)
        done = await ran(*command(tmp_path, "realmem", *options, "--out", tmp_path / "run"))
        assert done.code == 0, done.err
        by_model = {"qa", "memory_recall", "helpful"}
        await judging.play(DOWN)
        (tmp_path / "cache.db").unlink()
        spoilt = await ran(*command(tmp_path, "realmem", *options, "--out", tmp_path / "down"))
        assert spoilt.code == 4, spoilt.err
        for score in spoilt.json["scores"]:
            name = (score["system"], score["metric"])
            whole = next(s for s in done.json["scores"] if (s["system"], s["metric"]) == name)
            assert score["n"] + score["unjudged"] == whole["n"]
            if score["metric"] not in by_model:
                assert score == whole
            elif not score["n"]:
                assert score["value"] is None
        assert sum(score["unjudged"] for score in spoilt.json["scores"]) > 0
        for verdict in verdicts(tmp_path, "down").values():
            if verdict["outcome"] == "unjudged":
                assert verdict["metric"] in by_model
                assert verdict["reason"].startswith("judge gave no vote (unavailable: ")
                assert "value" not in verdict
        await judging.play(Script(rule=RULE))
        again = await ran("retry", tmp_path / "down", "-q")
        assert again.code == 0, again.err
    assert "every metric judged" in again.out.splitlines()[0]
    assert said(tmp_path, "down") == said(tmp_path, "run")
    assert (await ran("audit", tmp_path / "down" / "retry-1", "-q")).code == 0
    shown = (await ran("scores", tmp_path / "down", "--json")).json
    for part in ("scores", "findings", "groups"):
        assert shown[part] == done.json[part]


def _judges(scores: dict[str, Any]) -> dict[str, str]:
    """Metric → its judge's name."""
    return {
        metric: mark["judge"]
        for row in scores["rows"]
        for metric, mark in row["marks"].items()
        if mark["judge"]
    }


async def test_what_lacks_its_gold_is_not_asked_and_counted(tmp_path: Path) -> None:
    options = ("--judge", "judge", "--json", "-q")
    async with scripted_server(Script(rule=RULE)) as server:
        configured(tmp_path, server)
        done = await ran(*command(tmp_path, "realmem", *options, "--out", tmp_path / "real"))
        assert done.code == 0, done.err
        metrics = {row["evidence_id"]: set(row["marks"]) for row in done.json["rows"]}
        assert {name: kept & {"qa", "memory_recall", "helpful"} for name, kept in metrics.items()} == {
            "Q-1": {"qa", "memory_recall", "helpful"},
            "Q-2": {"qa", "memory_recall", "helpful"},
            "Q-3": {"helpful"},
        }
        done = await ran(*command(tmp_path, "lifedialbench", *options, "--out", tmp_path / "life"))
        assert done.code == 0, done.err
    assert {
        score["metric"]: score["judged"] for score in done.json["scores"] if score["system"] == "null"
    } == {
        "mcq_accuracy": 1,
        "open_accuracy": 1,
    }
    report = await ran("tap", tmp_path / "life", "control", "--where", "kind=dataset_report", "--json", "-q")
    assert report.json_lines[0]["counts"]["probes_without_gold_not_asked"] == 2


async def test_an_answer_that_fails_leaves_all_of_its_metrics_unjudged(tmp_path: Path) -> None:
    options = ("--judge", "judge", "--answers", "small", "--json", "-q")
    async with scripted_server(Script(rule=RULE)) as judging, scripted_server(DOWN) as answering:
        configured(tmp_path, judging, answering, attempts=1)
        done = await ran(*command(tmp_path, "realmem", *options, "--out", tmp_path / "run"))
        assert await judging.asked() == []
        assert done.code == 4, done.err
        for verdict in verdicts(tmp_path).values():
            assert verdict["outcome"] == "unjudged"
            assert verdict["reason"].startswith("R1 failed: ModelError: ")
        assert all(score.get("value") is None for score in done.json["scores"])
        await answering.play(Script(rule=RULE))
        again = await ran("retry", tmp_path / "run", "-q")
    assert again.code == 0, again.err


async def test_a_model_that_talks_nonsense_at_times_is_asked_again_and_outvoted(tmp_path: Path) -> None:
    steps = (
        Step(does="not_json"),
        Step(say='{"reason": "?", "rating": 9}'),
        Step(does="cut"),
        Step(does="empty"),
    )
    script = Script(rule=RULE, faults=steps, fault_share=0.3)
    async with scripted_server(script) as server:
        configured(tmp_path, server, attempts=12)
        options = ("--judge", "judge", "--json", "-q")
        done = await ran(*command(tmp_path, "realmem", *options, "--out", tmp_path / "run"))
    assert done.code == 0, done.err
    assert all(vote.get("value", 0) <= 1 for v in verdicts(tmp_path).values() for vote in v.get("votes", ()))


async def test_a_worker_that_would_judge_otherwise_is_refused(tmp_path: Path) -> None:
    async with scripted_server(Script(rule=RULE)) as server:
        models = configured(tmp_path, server)
        given = {
            "models": models,
            "cache": tmp_path / "cache.db",
            "judges": ("judge",),
            "data": str(apm(tmp_path)),
        }
        plan = plan_run(RunOptions(benchmark="apm", systems=("null",), out=tmp_path / "run", **given))
        await execute(plan)
        log, asked = str(log_path(tmp_path / "run")), ModelOptions(models=models, cache=tmp_path / "cache.db")
        for judges, votes in ((("official",), 3), (("small",), 3), (("judge",), 5)):
            with pytest.raises(ConfigError, match=r"has judge\.gated_score"):
                await judge_worker(log, "any", judges=judges, votes=votes, models=asked)
        await judge_worker(log, "any", judges=("judge",), models=asked)
