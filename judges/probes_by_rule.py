"""Judges of probes that need no model: what was retrieved held against the gold segments, and choices by letter.

Definitions: docs/realmem.md, docs/lifedialbench.md, docs/apm.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from judges.apm import read_decision
from judges.choice import answered, read_letter
from judges.judge import Judge, Judgment, ProbeCase, outcome_of
from judges.retrieval import first_mentions, ndcg, recall_all, recall_any
from simulator.events import Metric

_MEASURES: Final[Mapping[Metric, tuple[Callable[[Sequence[int], Collection[int], int], float], int]]] = {
    "recall_any@10": (recall_any, 10),
    "recall_all@10": (recall_all, 10),
    "ndcg@10": (ndcg, 10),
    "recall_any@20": (recall_any, 20),
    "recall_all@20": (recall_all, 20),
    "ndcg@20": (ndcg, 20),
}


class RetrievalJudge:
    """RealMem's measures of a ranking of segments (its sessions): each stands where the best record of it does.
    Scores: `ranked`, how many segments the records are of."""

    name: str = "retrieval (RealMem's recall and NDCG over segments)"
    metrics: frozenset[Metric] = frozenset(_MEASURES)

    async def judge(self, case: ProbeCase) -> Judgment:
        """Judge what an answer rests on."""
        measure, k = _MEASURES[case.metric]
        ranked = first_mentions(case.segments)
        value = measure(ranked, case.probe.gold.segments, k)
        return Judgment(outcome=outcome_of(value), value=value, scores={"ranked": float(len(ranked))})


class ChoiceJudge:
    """The exact letter, read tolerantly. Scores: `invalid`, 1 where the reply names no option, or several: that is
    counted apart, and is no right answer."""

    name: str = "letter (exact, read tolerantly)"
    metrics: frozenset[Metric] = frozenset(("mcq_accuracy", "mcq_accuracy_offline"))

    async def judge(self, case: ProbeCase) -> Judgment:
        """Judge a choice."""
        reading = read_letter(case.text, case.probe.options)
        said = answered(reading, case.probe.gold.option)
        return Judgment(
            outcome="pass" if said == "right" else "fail",
            reason=reading.reason,
            scores={"invalid": float(said == "invalid")},
        )


class DecisionJudge:
    """INTERVENE or SILENT, the first word. Scores: `intervene`, 0 or 1; missing where the reply begins with neither,
    which is wrong on either polarity."""

    name: str = "decision (the first word)"
    metrics: frozenset[Metric] = frozenset(("decision",))

    async def judge(self, case: ProbeCase) -> Judgment:
        """Judge a decision."""
        reply = read_decision(case.text)
        if reply.decision is None:
            return Judgment(outcome="fail", reason="the reply begins with neither INTERVENE nor SILENT")
        right = reply.decision == case.probe.gold.decision
        return Judgment(
            outcome="pass" if right else "fail", scores={"intervene": float(reply.decision == "INTERVENE")}
        )


def probe_judges() -> tuple[Judge[ProbeCase], ...]:
    """All metrics of probes that need no model."""
    return (RetrievalJudge(), ChoiceJudge(), DecisionJudge())
