"""Judges of probes by a model: a rating becomes a verdict, and of a heartbeat's response only behind its gate."""

from __future__ import annotations

from typing import Final

from adapters.model import Model
from adapters.prompt import PromptLanguage
from judges.apm import Judged, gated_score, read_decision
from judges.choice import answered, read_letter
from judges.judge import Judge, Judgment, ProbeCase, outcome_of
from judges.rating import ProbeJudge, UnratedError
from judges.rubrics import RatedMetric, RatingCase
from simulator.events import Metric

RATED_BY: Final[dict[Metric, RatedMetric]] = {
    "qa": "qa",
    "memory_recall": "memory_recall",
    "helpful": "helpful",
    "open_accuracy": "open_answer",
    "open_accuracy_offline": "open_answer",
    "gated_score": "rating",
}
"""Metric of probes → what a model rates for it."""


class RatedJudge:
    """One of RealMem's measures, or open answers, by a model's rating. Scores: `mark` on the metric's own scale, and
    `agreement`."""

    def __init__(self, judge: ProbeJudge, rated: RatedMetric) -> None:
        self._judge = judge
        self._rated = rated
        self.name: str = judge.name_of(rated)
        self.metrics: frozenset[Metric] = frozenset(m for m, by in RATED_BY.items() if by == rated)

    async def judge(self, case: ProbeCase) -> Judgment:
        """Rate one answer, or what it rests on."""
        judgment, _ = await _rate(self._judge, self._rated, case, case.text)
        return judgment


class GatedJudge:
    """APM-Bench's gated score: 0 where the decision is wrong, or the option of a positive probe of ERA; 1 for a right
    SILENT; else the model's rating of what is said. Scores: `option`, 0 or 1 where one was asked for, and `rating`, 1
    to 5, where it passed the gate."""

    metrics: frozenset[Metric] = frozenset(("gated_score",))

    def __init__(self, judge: ProbeJudge) -> None:
        self._judge = judge
        self.name: str = f"gate; {judge.name_of('rating')}"

    async def judge(self, case: ProbeCase) -> Judgment:
        """Judge one reply at a heartbeat."""
        probe, reply = case.probe, read_decision(case.text)
        assert probe.gold.decision is not None
        option = None
        if probe.gold.option and reply.decision == "INTERVENE":
            option = answered(read_letter(reply.said, probe.options), probe.gold.option) == "right"
        judged = Judged(
            task=probe.groups.get("task", ""),
            expected=probe.gold.decision,
            decision=reply.decision,
            option_right=option,
        )
        scores = {} if option is None else {"option": float(option)}
        if judged.passed_gate and judged.expected == "INTERVENE":
            judgment, mark = await _rate(self._judge, "rating", case, reply.said)
            rated = {} if mark is None else {"rating": float(mark)}
            return Judgment(
                outcome=judgment.outcome,
                reason=judgment.reason,
                value=judgment.value,
                votes=judgment.votes,
                scores={**judgment.scores, **scores, **rated},
            )
        value = gated_score(judged) / 100
        return Judgment(outcome=outcome_of(value), value=value, scores=scores)


def model_probe_judges(
    model: Model, label: str, *, votes: int = 3, language: PromptLanguage = "en"
) -> tuple[Judge[ProbeCase], ...]:
    """All metrics of probes that need a model, by one. `label`: the name by which it is configured."""
    judge = ProbeJudge(model, label, votes=votes, language=language)
    rated: tuple[RatedMetric, ...] = ("qa", "memory_recall", "helpful", "open_answer")
    return (*(RatedJudge(judge, metric) for metric in rated), GatedJudge(judge))


async def _rate(
    judge: ProbeJudge, rated: RatedMetric, case: ProbeCase, answer: str
) -> tuple[Judgment, int | None]:
    """The judgment that a rating is, and the mark. Raises ValueError where the gold is missing."""
    probe = case.probe
    shown = RatingCase(
        question=probe.question,
        options=probe.options,
        answer=answer,
        reference=probe.gold.answer,
        memories=probe.gold.memories,
        retrieved=case.retrieved,
        asked_time_us=probe.asked_time_us,
    )
    try:
        found = await judge.rate(rated, shown)
    except UnratedError as failure:
        return Judgment(outcome="unjudged", reason=failure.reason, votes=failure.votes), None
    judgment = Judgment(
        outcome=outcome_of(found.value),
        reason=found.reason,
        value=None if rated == "open_answer" else found.value,
        scores={"mark": float(found.mark), "agreement": found.agreement},
        votes=found.votes,
    )
    return judgment, found.mark
