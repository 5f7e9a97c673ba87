"""Several judges on every case: each decides by itself, and the majority of them is the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio
from msgspec.structs import replace

from judges.judge import Case, Judge, Judgment
from judges.panel import JudgePanel, majority
from simulator.events import Metric, Vote


class SeveralJudges:
    """Judges of the same metrics as one. Each has one vote, whatever its own votes say; one that fails or takes
    longer than `deadline_s` is an unjudged vote. Feedback is that of the first judge, in the order given, that is on
    the majority's side. Scores: `agreement` among the judges, and each one's own as `<label>.<score>`."""

    def __init__(self, judges: Mapping[str, Judge[Case]], *, deadline_s: float = 600.0) -> None:
        (metrics,) = {judge.metrics for judge in judges.values()}
        self.metrics: frozenset[Metric] = metrics
        self.name: str = " & ".join(judge.name for judge in judges.values())
        self._panels = {
            label: JudgePanel([judge], metrics, deadline_s=deadline_s) for label, judge in judges.items()
        }

    async def judge(self, case: Case) -> Judgment:
        """Ask all of them at once."""
        judged: dict[str, Judgment] = {}

        async def ask(label: str, panel: JudgePanel[Case]) -> None:
            judged[label] = await panel.judge(case)

        async with anyio.create_task_group() as asking:
            for label, panel in self._panels.items():
                asking.start_soon(ask, label, panel)
        theirs = [judged[label] for label in self._panels]
        votes = [
            Vote(outcome=own.outcome, reason=own.reason, judge=label, votes=own.votes)
            for label, own in zip(self._panels, theirs, strict=True)
        ]
        verdict = majority(votes)
        scores = {
            f"{label}.{name}": value for label in self._panels for name, value in judged[label].scores.items()
        }
        agreeing = (own.feedback for own in theirs if own.outcome == verdict.outcome and own.feedback)
        return replace(verdict, scores={**verdict.scores, **scores}, feedback=next(agreeing, None))


def together(
    members: Mapping[str, Sequence[Judge[Case]]], *, deadline_s: float = 600.0
) -> tuple[Judge[Case], ...]:
    """Label → its judges, as judges of each metric: itself where there is one, else several as one. All members judge
    the same metrics, divided alike."""
    if len(members) == 1:
        return tuple(next(iter(members.values())))
    alike: dict[frozenset[Metric], dict[str, Judge[Case]]] = {}
    for label, judges in members.items():
        for judge in judges:
            alike.setdefault(judge.metrics, {})[label] = judge
    return tuple(SeveralJudges(judges, deadline_s=deadline_s) for judges in alike.values())
