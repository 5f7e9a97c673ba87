"""The official deterministic judges, against their definition and figures worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.deterministic import (
    OfficialFidelityAuditor,
    OfficialUserSimulator,
    official_feedback,
    official_judges,
)
from judges.judge import Case
from judges.metrics import overlap
from judges.panel import JudgePanel
from simulator.events import AnchorEvent, AnchorTask, Metric
from simulator.protocols.streammembench import METRICS
from simulator.text import tokens


def anchor_of(
    evidence: str = "Shure brews pour over coffee",
    first: str = "names Shure",
    second: str = "advises against buying",
) -> AnchorEvent:
    return AnchorEvent(
        id="anchor/S/s0/e0",
        run="run",
        stream="S",
        event_time_us=0,
        anchor="S/s0/e0",
        segment=0,
        evidence_id="x",
        evidence_statement=evidence,
        evidence_type="stated",
        subject="Shure",
        initial_task=AnchorTask(user_request="who?", expected_behavior=first),
        followup_task=AnchorTask(user_request="buy?", expected_behavior=second),
    )


@pytest.mark.parametrize(
    ("query", "text", "share"),
    [
        ("a b c d", "A x B", 0.5),
        ("a a a b", "b", 0.5),
        ("咖啡 cup", "我要咖啡", 2 / 3),
        ("", "anything", 0.0),
        ("!?…", "anything", 0.0),
        ("a", "", 0.0),
        ("don't", "t", 0.5),
        ("snake_case", "snake case", 0.0),
    ],
)
def test_overlap_is_the_share_of_the_querys_distinct_tokens(query: str, text: str, share: float) -> None:
    assert overlap(query, text) == pytest.approx(share)


@given(st.text(), st.text(), st.text())
def test_overlap_lies_in_0_1_and_more_text_never_lowers_it(query: str, text: str, more: str) -> None:
    share = overlap(query, text)
    assert 0 <= share <= 1
    assert overlap(query, f"{text} {more}") >= share
    assert overlap(query, query) == (1.0 if tokens(query) else 0.0)


@pytest.mark.parametrize(
    ("delta", "outcome", "evidence"),
    [("Shure brews coffee", "pass", 0.6), ("Shure", "fail", 0.2), ("", "fail", 0.0)],
)
async def test_fidelity_needs_half_of_the_evidence(delta: str, outcome: str, evidence: float) -> None:
    judgment = await OfficialFidelityAuditor().judge(Case(metric="fidelity", anchor=anchor_of(), text=delta))
    assert (judgment.outcome, judgment.scores) == (outcome, {"evidence": evidence})
    assert judgment.feedback is None


async def test_exactly_half_of_the_evidence_and_three_tenths_of_the_behaviour_pass() -> None:
    anchor = anchor_of("e1 e2", "b1 b2 b3 b4 b5 b6 b7 b8 b9 b10", "c1 c2 c3 c4 c5 c6 c7 c8 c9 c10")
    judge = OfficialUserSimulator()

    async def outcome(metric: Metric, text: str) -> str:
        return (await judge.judge(Case(metric=metric, anchor=anchor, text=text))).outcome

    assert await outcome("ieu", "e1 b1 b2 b3") == "pass"
    assert await outcome("ieu", "e1 b1 b2") == "fail"
    assert await outcome("ieu", "b1 b2 b3 b4 b5") == "fail"
    assert await outcome("fi", "e1 b1 b2 b3") == "pass"
    arms: tuple[Metric, ...] = ("fur", "fur_uncommitted")
    for metric in arms:
        assert await outcome(metric, "e1 b1 b2 b3") == "fail"
        assert await outcome(metric, "e1 c1 c2 c3") == "pass"


async def test_evidence_without_tokens_fails_by_the_definition() -> None:
    anchor = anchor_of("…", "names Shure", "advises")
    panel = JudgePanel(official_judges(), METRICS)
    for metric in METRICS:
        judgment = await panel.judge(Case(metric=metric, anchor=anchor, text="… names Shure advises"))
        assert (judgment.outcome, judgment.scores["evidence"]) == ("fail", 0.0)


async def test_only_r1_is_answered_with_feedback() -> None:
    judge, anchor = OfficialUserSimulator(), anchor_of()
    right = f"{anchor.evidence_statement} names Shure advises against buying"
    for text, outcome, kind in ((right, "pass", "affirm"), ("no idea", "fail", "revise")):
        judgment = await judge.judge(Case(metric="ieu", anchor=anchor, text=text))
        assert judgment.outcome == outcome
        assert judgment.feedback is not None
        assert judgment.feedback.type == kind
        others: tuple[Metric, ...] = ("fi", "fur", "fur_uncommitted")
        for metric in others:
            assert (await judge.judge(Case(metric=metric, anchor=anchor, text=text))).feedback is None


@pytest.mark.parametrize("evidence", ["Shure brews coffee.", "舒尔会做手冲咖啡。"])
def test_feedback_speaks_the_evidences_language_and_reveals_the_evidence_only_on_revise(
    evidence: str,
) -> None:
    affirm, revise = official_feedback(True, evidence), official_feedback(False, evidence)
    assert evidence in revise.text
    assert evidence not in affirm.text
    chinese = "舒" in evidence
    for feedback in (affirm, revise):
        rest = feedback.text.replace(evidence, "")
        assert any("\u4e00" <= character <= "\u9fff" for character in rest) is chinese
    assert official_feedback(True, evidence) == affirm


def release(data_dir: Path) -> list[tuple[AnchorEvent, str]]:
    """Every anchor of the release layout with its segment's raw text, read without the project's reader."""
    root = data_dir / "streammembench"
    texts: dict[tuple[str, str, int], str] = {}
    for path in sorted(root.rglob("segments/*/*.json")):
        day: dict[str, Any] = json.loads(path.read_text())
        for segment in day["segments"]:
            observations = segment["stream_segment"]["observations"]
            texts[day["participant"], day["day"], segment["segment_id"]] = "\n".join(
                o["text"] for o in observations
            )
    found = []
    for path in sorted(root.rglob("evidence_tasks/*/*.json")):
        day = json.loads(path.read_text())
        for item in day["items"]:
            for raw in item["evidence_anchors"]:
                tasks = raw["tasks"]
                anchor = anchor_of(
                    raw["evidence_statement"],
                    tasks["initial_task"]["expected_behavior"],
                    tasks["followup_task"]["expected_behavior"],
                )
                found.append((anchor, texts[item["participant"], item["day"], item["segment_id"]]))
    return found


@pytest.mark.data
async def test_real_anchors_give_the_figures_worked_out_apart(data_dir: Path) -> None:
    anchors = release(data_dir)
    assert len(anchors) == 44
    panel = JudgePanel(official_judges(), METRICS)

    async def passed(metric: Metric, texts: list[str]) -> int:
        cases = [Case(metric=metric, anchor=a, text=t) for (a, _), t in zip(anchors, texts, strict=True)]
        return sum([(await panel.judge(case)).outcome == "pass" for case in cases])

    evidence = [anchor.evidence_statement for anchor, _ in anchors]
    assert await passed("ieu", evidence) == 35
    assert await passed("fur", evidence) == 30
    assert await passed("fidelity", [text for _, text in anchors]) == 43
    for metric in METRICS:
        assert await passed(metric, [""] * 44) == 0
