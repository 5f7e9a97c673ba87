"""The official deterministic judges of StreamMemBench: token overlap, no model (docs/metrics.md).

They are the published smoke path: the same text always gets the same verdict, at no cost.
"""

from __future__ import annotations

from typing import Final

from judges.judge import Case, Judge, Judgment
from judges.metrics import CJK, overlap_with
from simulator.events import FeedbackDraft, Metric, Outcome
from simulator.text import tokens

EVIDENCE_OVERLAP: Final = 0.5
"""What holds at least this share of the evidence statement's tokens holds the evidence."""
BEHAVIOUR_OVERLAP: Final = 0.3
"""A response must also hold at least this share of the expected behaviour's tokens."""


class OfficialFidelityAuditor:
    """Fidelity: does the segment's memory delta hold the evidence? Scores: `evidence`, an overlap."""

    name: str = f"official-fidelity (evidence>={EVIDENCE_OVERLAP})"
    metrics: frozenset[Metric] = frozenset({"fidelity"})

    async def judge(self, case: Case) -> Judgment:
        """Judge one memory delta."""
        evidence = overlap_with(case.anchor.evidence_statement, frozenset(tokens(case.text)))
        return Judgment(outcome=_outcome(evidence >= EVIDENCE_OVERLAP), scores={"evidence": evidence})


class OfficialUserSimulator:
    """Does a response use the evidence and behave as expected? R1 (`ieu`) and R_F (`fi`) are held against the
    initial task, R2 (`fur`, `fur_uncommitted`) against the follow-up task. R1 is also answered with feedback.
    Scores: `evidence` and `behaviour`, overlaps."""

    name: str = f"official-user (evidence>={EVIDENCE_OVERLAP}, behaviour>={BEHAVIOUR_OVERLAP})"
    metrics: frozenset[Metric] = frozenset({"ieu", "fi", "fur", "fur_uncommitted"})

    async def judge(self, case: Case) -> Judgment:
        """Judge one response."""
        anchor = case.anchor
        task = anchor.initial_task if case.metric in ("ieu", "fi") else anchor.followup_task
        response = frozenset(tokens(case.text))
        evidence = overlap_with(anchor.evidence_statement, response)
        behaviour = overlap_with(task.expected_behavior, response)
        passed = evidence >= EVIDENCE_OVERLAP and behaviour >= BEHAVIOUR_OVERLAP
        return Judgment(
            outcome=_outcome(passed),
            scores={"evidence": evidence, "behaviour": behaviour},
            feedback=official_feedback(passed, anchor.evidence_statement) if case.metric == "ieu" else None,
        )


def official_feedback(passed: bool, evidence: str) -> FeedbackDraft:
    """What the person says to R1, in the evidence's language: a fixed sentence, or the evidence and a
    request to answer again. The gold behaviour is never told."""
    chinese = CJK.search(evidence) is not None
    if passed:
        text = "好的，这正是我需要的。" if chinese else "That's fine, this is what I needed."
        return FeedbackDraft(type="affirm", text=text)
    if chinese:
        return FeedbackDraft(type="revise", text=f"这个回答没有用到我的情况：{evidence}请据此重新回答。")
    text = (
        f"That leaves out something you could have known: {evidence} Please answer again with this in mind."
    )
    return FeedbackDraft(type="revise", text=text)


def official_judges() -> tuple[Judge[Case], ...]:
    """All metrics of StreamMemBench without a model."""
    return (OfficialFidelityAuditor(), OfficialUserSimulator())


def _outcome(passed: bool) -> Outcome:
    return "pass" if passed else "fail"
