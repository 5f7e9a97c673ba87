"""Several judges on every case."""

from __future__ import annotations

import pytest

from judges.by_model import model_judges
from judges.deterministic import official_judges
from judges.judge import Case, Judgment
from judges.panel import JudgePanel
from judges.several import SeveralJudges, together
from simulator.events import FeedbackDraft, Outcome
from simulator.protocols.streammembench import METRICS
from tests.judges.test_by_model import ANCHOR, finding, reaction
from tests.judges.test_panel import Scripted
from tests.models.fakes import FakeModel, down


def gives(outcome: Outcome, feedback: str = "") -> Judgment:
    kind = "affirm" if outcome == "pass" else "revise"
    draft = FeedbackDraft(type=kind, text=feedback) if feedback else None
    reason = "out of order" if outcome == "unjudged" else ""
    return Judgment(outcome=outcome, reason=reason, feedback=draft)


async def judged(*results: Judgment | Exception | None, deadline_s: float = 60.0) -> Judgment:
    judges = {f"j{i}": Scripted("ieu", result, f"judge {i}") for i, result in enumerate(results)}
    panel = JudgePanel([SeveralJudges(judges, deadline_s=deadline_s)], ["ieu"])
    return await panel.judge(Case(metric="ieu", anchor=ANCHOR, text="text"))


async def test_the_majority_of_judges_decides_and_its_first_one_speaks() -> None:
    judgment = await judged(gives("pass", "fine"), gives("fail", "second"), gives("fail", "third"))
    assert (judgment.outcome, judgment.scores["agreement"]) == ("fail", 2 / 3)
    assert judgment.feedback is not None
    assert judgment.feedback.text == "second"
    assert [(vote.judge, vote.outcome) for vote in judgment.votes] == [
        ("j0", "pass"),
        ("j1", "fail"),
        ("j2", "fail"),
    ]


@pytest.mark.parametrize("broken", [gives("unjudged"), RuntimeError("down"), None, gives("pass", "")])
async def test_a_judge_that_fails_in_whatever_way_has_no_say(broken: Judgment | Exception | None) -> None:
    judgment = await judged(broken, gives("pass", "fine"), gives("pass", "fine"), deadline_s=0.2)
    assert judgment.outcome == "pass"
    assert judgment.votes[0].outcome == "unjudged"
    assert judgment.votes[0].reason


async def test_judges_that_differ_leave_it_unjudged() -> None:
    judgment = await judged(gives("pass", "fine"), gives("fail", "again"))
    assert (judgment.outcome, judgment.feedback) == ("unjudged", None)
    assert "no majority: 1 pass, 1 fail, 0 unjudged" in judgment.reason


async def test_each_judge_keeps_its_own_votes_and_scores() -> None:
    says = {"yes": finding(True), "no": finding(False)}
    members = {
        "official": official_judges(),
        **{name: model_judges(FakeModel(name, lambda ask, s=s: s), name) for name, s in says.items()},
    }
    panel = JudgePanel(together(members), METRICS)
    case = Case(metric="fidelity", anchor=ANCHOR, text=ANCHOR.evidence_statement)
    judgment = await panel.judge(case)
    assert judgment.outcome == "pass"
    assert [len(vote.votes) for vote in judgment.votes] == [0, 3, 3]
    assert judgment.scores == {
        "agreement": 2 / 3,
        "official.evidence": 1.0,
        "yes.agreement": 1.0,
        "no.agreement": 1.0,
    }
    for metric in METRICS:
        name = panel.describe()[f"judge.{metric}"]
        assert all(part in name for part in ("official", "by yes", "by no"))


async def test_one_judge_alone_is_itself() -> None:
    judges = model_judges(FakeModel(says=lambda ask: reaction("affirm")), "m")
    assert together({"m": judges}) == judges


async def test_what_is_down_in_all_judges_is_unjudged_with_each_reason() -> None:
    members = {name: model_judges(FakeModel(says=lambda ask: down()), name) for name in ("a", "b")}
    panel = JudgePanel(together(members), METRICS)
    judgment = await panel.judge(Case(metric="fur", anchor=ANCHOR, text="text"))
    assert judgment.outcome == "unjudged"
    assert "a gave no vote (unavailable: can't connect); b gave no vote" in judgment.reason
