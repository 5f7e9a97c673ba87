"""The judges of probes as a run asks them, and what follows from their verdicts, on tables worked out by hand."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.probe_scores import findings, group_scores, metric_scores
from consumers.scores import ChoiceRate, Mark, MetricMean, MetricRate, Row
from judges.judge import Judgment, ProbeCase
from judges.panel import JudgePanel
from judges.probes_by_model import GatedJudge, model_probe_judges
from judges.probes_by_rule import probe_judges
from judges.rating import ProbeJudge
from simulator.errors import ConfigError
from simulator.events import Decision, Gold, Metric, ProbeMetric, RetrievedRecord
from simulator.eventtime import segment_of
from simulator.models import NO_MODELS, probe_panel
from tests.models.fakes import FakeModel, down
from tests.protocols.probes import probe_of

RULES = JudgePanel(probe_judges(), [m for judge in probe_judges() for m in judge.metrics])
OPTIONS = ("an umbrella", "a coat", "a hat")


class Heartbeat(NamedTuple):
    """A probe of APM, what was said to it, what the judge would rate that, and by hand: whether the decision is right,
    and the gated score in [0, 1] (None: unjudged)."""

    task: str
    expected: Decision
    golden: str
    reply: str
    rating: int | None
    right: bool
    score: float | None


TABLE = [
    Heartbeat("ERA", "INTERVENE", "B", "INTERVENE B. Take a coat, it is cold.", 5, True, 1.0),
    Heartbeat("ERA", "INTERVENE", "B", "Intervene: A. Take an umbrella", 5, True, 0.0),  # the wrong option
    Heartbeat("ERA", "INTERVENE", "B", "INTERVENE You had better dress warmly.", 5, True, 0.0),  # names none
    Heartbeat("ERA", "INTERVENE", "B", "SILENT", 5, False, 0.0),
    Heartbeat("ERA", "SILENT", "", "SILENT", None, True, 1.0),
    Heartbeat("ERA", "SILENT", "", "INTERVENE A. Take an umbrella", 5, False, 0.0),
    Heartbeat("PRM", "INTERVENE", "", "INTERVENE The photo is due.", 4, True, 0.75),
    Heartbeat("PRM", "INTERVENE", "", "INTERVENE Something is due.", 2, True, 0.25),
    Heartbeat(
        "PRM", "INTERVENE", "", "INTERVENE", None, True, 0.0
    ),  # and says nothing: the worst rating, unasked
    Heartbeat("PRM", "INTERVENE", "", "Well, the photo is due.", 5, False, 0.0),  # decides nothing
    Heartbeat("PRM", "SILENT", "", "", None, False, 0.0),
    Heartbeat("TPG", "SILENT", "", "**SILENT**", None, True, 1.0),
    Heartbeat(
        "TPG", "INTERVENE", "", "Decision: INTERVENE - leave now.", None, True, None
    ),  # the judge is down
]


def heartbeat(number: int, asked: Heartbeat) -> ProbeCase:
    reference = "Says what is due." if asked.expected == "INTERVENE" else ""
    probe = replace(
        probe_of(
            number=number,
            metrics=("decision", "gated_score"),
            gold=Gold(answer=reference, option=asked.golden, decision=asked.expected),
        ),
        options=OPTIONS if asked.task == "ERA" else (),
        groups={
            "task": asked.task,
            "polarity": "positive" if asked.expected == "INTERVENE" else "negative",
        },
    )
    return ProbeCase(metric="gated_score", probe=probe, text=asked.reply)


async def judged(asked: Heartbeat, number: int = 0) -> tuple[Judgment, Judgment, FakeModel]:
    """The decision, the gated score, and who was asked for the rating."""
    said = down() if asked.rating is None else json.dumps({"reason": "so", "rating": asked.rating})
    model = FakeModel(says=lambda ask: said)
    panel = JudgePanel([*probe_judges(), *model_probe_judges(model, "m")], ["decision", "gated_score"])
    case = heartbeat(number, asked)
    decided = await panel.judge(replace(case, metric="decision"))
    return decided, await panel.judge(case), model


@pytest.mark.parametrize("asked", TABLE)
async def test_gated_scores_of_the_table(asked: Heartbeat) -> None:
    decided, gated, model = await judged(asked)
    assert (decided.outcome == "pass") == asked.right
    assert decided.value is None
    assert gated.value == asked.score
    if asked.score is None:
        assert (gated.outcome, gated.value) == ("unjudged", None)
        assert gated.reason == "m gave no vote (unavailable: can't connect)"
    else:
        assert gated.outcome == ("pass" if asked.score == 1 else "fail")
    rates = asked.rating is not None and asked.right and asked.expected == "INTERVENE"
    wrong_option = gated.scores.get("option") == 0.0
    assert bool(model.asks) == ((rates or asked.score is None) and not wrong_option)
    if rates and not wrong_option:
        assert gated.scores["rating"] == asked.rating
        assert [vote.value for vote in gated.votes] == [asked.score] * 3


async def test_what_is_rated_is_what_is_said_after_the_decision() -> None:
    _, _, model = await judged(TABLE[0])
    (prompt, *_) = model.prompts()
    assert "Take a coat, it is cold." in prompt
    assert "INTERVENE" not in prompt.partition("<answer>")[2].partition("</answer>")[0]


async def rows_of(table: list[Heartbeat]) -> list[Row]:
    rows = []
    for number, asked in enumerate(table):
        decided, gated, _ = await judged(asked, number)
        probe = heartbeat(number, asked).probe
        marks: dict[Metric, Mark] = {
            name: Mark(outcome=j.outcome, scores=j.scores, value=j.value, votes=j.votes)  # type: ignore[misc]
            for name, j in (("decision", decided), ("gated_score", gated))
        }
        rows.append(row_of(probe.anchor, marks, probe.groups))
    return rows


def row_of(name: str, marks: dict[Metric, Mark], groups: dict[str, str], **more: object) -> Row:
    told = {
        "system": "s",
        "lane": "s@A",
        "stream": "A",
        "segment": 0,
        "third": "early",
        "day": "",
        "time": "",
        "anchor": name,
        "trajectory": name,
        "evidence_id": name,
        "events": {},
        "texts": {},
        "retrieved": {},
        "errors": {},
        "closed": True,
        "closed_reason": "",
    }
    return Row(**{**told, "marks": marks, "groups": groups, **more})  # type: ignore[arg-type]  # fields by name


async def test_findings_of_the_table() -> None:
    rows = await rows_of(TABLE)
    found = {finding.name: finding for finding in findings("s", rows)}
    balanced = found["decision_balanced_accuracy"]
    # of 9 positive probes 3 + 3 + 1 are spoken to; of 4 negative ones 1 + 1 are left alone
    assert balanced.counts == {
        "positive": 9,
        "negative": 4,
        "intervene_rate": pytest.approx(7 / 9),
        "silent_rate": pytest.approx(2 / 4),
    }
    assert balanced.value == pytest.approx((7 / 9 + 2 / 4) / 2)
    assert balanced.n == 13
    # right to speak, and rated: 1, 0 and 0 (options), .75, .25, 0; the one without a rating is left out
    quality = found["response_quality"]
    assert (quality.value, quality.n) == (pytest.approx(2 / 6), 6)
    decision, gated = metric_scores("s", rows, privileged=False)
    assert isinstance(decision, MetricRate)
    assert (decision.passed, decision.judged, decision.unjudged) == (9, 13, 0)
    assert isinstance(gated, MetricMean)
    assert (gated.value, gated.n, gated.unjudged) == (pytest.approx((1 + 1 + 0.75 + 0.25 + 1) / 12), 12, 1)
    by_task = {
        (s.group, s.metric): (s.value, s.n, s.unjudged) for s in group_scores("s", rows) if s.by == "task"
    }
    assert by_task["ERA", "gated_score"] == (pytest.approx(2 / 6), 6, 0)
    assert by_task["PRM", "gated_score"] == (pytest.approx(1 / 5), 5, 0)
    assert by_task["TPG", "gated_score"] == (1.0, 1, 1)
    assert by_task["TPG", "decision"] == (1.0, 2, 0)


async def test_findings_without_a_polarity_or_without_a_model() -> None:
    rows = await rows_of([asked for asked in TABLE if asked.expected == "INTERVENE"])
    found = {finding.name: finding for finding in findings("s", rows)}
    assert found["decision_balanced_accuracy"].value is None
    assert found["decision_balanced_accuracy"].counts["negative"] == 0
    bare = [replace(row, marks={"decision": row.marks["decision"]}) for row in rows]
    assert [finding.name for finding in findings("s", bare)] == ["decision_balanced_accuracy"]


# --- retrieval: the published formulas over what a run's answers name -----------------------------------------

SEGMENTS = 14
ENDS_US = [100 * (number + 1) for number in range(SEGMENTS)]
NAMED = st.lists(st.tuples(st.integers(0, SEGMENTS - 1), st.integers(0, 99)), max_size=40)


def published(ranked: list[int], gold: set[int], k: int) -> dict[str, float]:
    """Written from the published script, apart from the code: relevances in ranked order, and log2 of 2, 3, 4 ..."""

    def dcg(relevances: list[int]) -> float:
        kept = relevances[:k]
        return float(sum(r if i == 0 else r / math.log2(i + 1) for i, r in enumerate(kept)))

    found = [1 if item in gold else 0 for item in ranked]
    return {
        f"recall_any@{k}": float(any(found[:k])),
        f"recall_all@{k}": float(len(gold & set(ranked[:k])) == len(gold)),
        f"ndcg@{k}": dcg(found) / dcg([1] * len(gold)),
    }


@settings(max_examples=200, deadline=None)
@given(named=NAMED, gold=st.sets(st.integers(0, SEGMENTS + 3), min_size=1))
async def test_what_answers_name_is_measured_as_published(
    named: list[tuple[int, int]], gold: set[int]
) -> None:
    retrieved = tuple(
        RetrievedRecord(id=f"r{i}", text="", event_time_us=100 * segment + offset)
        for i, (segment, offset) in enumerate(named)
    )
    segments = tuple(segment_of(found.event_time_us, ENDS_US) for found in retrieved)
    assert segments == tuple(segment for segment, _ in named)
    ranked: list[int] = []
    for segment, _ in named:
        if segment not in ranked:
            ranked.append(segment)
    probe = probe_of(gold=Gold(segments=tuple(sorted(gold))))
    for k in (10, 20):
        for metric, expected in published(ranked, gold, k).items():
            name: ProbeMetric = metric  # type: ignore[assignment]  # one of them
            found = await RULES.judge(
                ProbeCase(metric=name, probe=probe, text="", retrieved=retrieved, segments=segments)
            )
            assert found.value is not None
            assert abs(found.value - expected) < 1e-9
            assert found.outcome == ("pass" if found.value == 1.0 else "fail")
            assert found.scores == {"ranked": float(len(ranked))}


# --- choices, and the panel ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "outcome", "invalid"),
    [("B", "pass", 0), ("a coat", "pass", 0), ("A.", "fail", 0), ("", "fail", 1), ("A and B", "fail", 1)],
)
async def test_choices_are_right_wrong_or_invalid(reply: str, outcome: str, invalid: int) -> None:
    probe = replace(probe_of(gold=Gold(option="B")), options=OPTIONS)
    rows = []
    for metric in ("mcq_accuracy", "mcq_accuracy_offline"):
        name: ProbeMetric = metric  # type: ignore[assignment]  # one of them
        found = await RULES.judge(ProbeCase(metric=name, probe=probe, text=reply))
        assert (found.outcome, found.value, found.scores) == (outcome, None, {"invalid": float(invalid)})
        rows.append(row_of(metric, {name: Mark(outcome=found.outcome, scores=found.scores)}, {}))
    for score in metric_scores("s", rows, privileged=False):
        assert isinstance(score, ChoiceRate)
        assert (score.judged, score.invalid) == (1, invalid)


async def test_overwriting_and_contamination_pair_by_stream_and_question() -> None:
    """Online and offline, (right, right) twice, (right, wrong), (wrong, right), (wrong, wrong), (right, unjudged)."""
    pairs = [(1, 1), (1, 1), (1, 0), (0, 1), (0, 0), (1, None)]
    newer = [True, False, False, True, False, True]
    rows = []
    for number, (online, offline) in enumerate(pairs):
        for metric, right in (("open_accuracy", online), ("open_accuracy_offline", offline)):
            name: Metric = metric  # type: ignore[assignment]  # one of them
            mark = Mark(outcome="unjudged" if right is None else "pass" if right else "fail")
            told = {"evidence_id": f"q{number}", "newer": newer[number]}
            rows.append(row_of(f"{metric}{number}", {name: mark}, {}, **told))
    found = {finding.name: finding for finding in findings("s", rows)}
    lost = found["overwriting_open"]
    assert (lost.value, lost.n) == (pytest.approx(1 / 3), 3)
    assert lost.counts == {
        "pairs": 5,
        "unpaired": 1,
        "right_both": 2,
        "overwritten": 1,
        "gained": 1,
        "wrong_both": 1,
    }
    area = found["contamination_auroc_open"]
    # right offline: newer, not, newer; wrong: not, not. Of six pairs four are won and two are ties
    assert (area.value, area.n) == (pytest.approx((4 + 2 / 2) / 6), 5)
    assert area.counts == {"right": 3, "wrong": 2, "on_newer_records": 2}
    elsewhere = [replace(row, stream="B") if "offline" in row.trajectory else row for row in rows]
    assert "overwriting_open" not in {finding.name for finding in findings("s", elsewhere)}


async def test_one_judge_a_metric_whoever_else_could() -> None:
    wanted: tuple[ProbeMetric, ...] = ("ndcg@10", "mcq_accuracy")
    panel = probe_panel(("official",), wanted, NO_MODELS, votes=3, language="en")
    assert panel.describe().keys() == {"judge.ndcg@10", "judge.mcq_accuracy"}
    with pytest.raises(ConfigError, match="no judge for qa"):
        probe_panel(("official",), ("qa",), NO_MODELS, votes=3, language="en")
    with pytest.raises(ConfigError, match="one model judges probes, and 2 are named: a, b"):
        probe_panel(("a", "official", "b"), ("qa",), NO_MODELS, votes=3, language="en")


async def test_gold_that_is_missing_or_a_judge_that_raises_is_unjudged_and_never_0() -> None:
    judge = GatedJudge(ProbeJudge(FakeModel(says=lambda ask: "{}"), "m"))
    panel = JudgePanel([judge], ["gated_score"])
    bare = heartbeat(0, TABLE[6])
    bare = replace(bare, probe=replace(bare.probe, gold=Gold(decision="INTERVENE")))
    found = await panel.judge(bare)
    assert (found.outcome, found.value) == ("unjudged", None)
    assert "the probe has no reference answer to judge by" in found.reason
    nonsense = await panel.judge(heartbeat(0, TABLE[6]))
    assert (nonsense.outcome, nonsense.value) == ("unjudged", None)
