"""The panel: which judge judges which metric; what a judge raises becomes unjudged; votes become one
judgment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Generic

import anyio

from judges.judge import C, Judge, Judgment
from simulator.errors import ConfigError
from simulator.events import Metric, Outcome, Vote


class JudgePanel(Generic[C]):
    """One judge for each metric. Raises ConfigError when two judges claim a metric, or one of `metrics` has
    none.

    Args:
        judges: the judges.
        metrics: the metrics that the run needs.
        deadline_s: a judgment that takes longer than this is unjudged. It bounds a judge's own retries, and has to
            leave room for its waits.
    """

    def __init__(
        self,
        judges: Iterable[Judge[C]],
        metrics: Iterable[Metric],
        *,
        deadline_s: float = 900.0,
    ) -> None:
        self._judges: dict[Metric, Judge[C]] = {}
        self._deadline_s = deadline_s
        for judge in judges:
            for metric in sorted(judge.metrics):
                other = self._judges.setdefault(metric, judge)
                if other is not judge:
                    raise ConfigError(f"two judges claim {metric}: {other.name} and {judge.name}")
        self._metrics = frozenset(metrics)
        missing = sorted(self._metrics - self._judges.keys())
        if missing:
            raise ConfigError(f"no judge for {', '.join(missing)}")

    def judge_of(self, metric: Metric) -> Judge[C]:
        """The metric's judge; its name stands beside its verdicts."""
        return self._judges[metric]

    def describe(self) -> dict[str, str]:
        """`judge.<metric>` → the judge's name, for the run's identity."""
        return {f"judge.{metric}": self._judges[metric].name for metric in sorted(self._metrics)}

    async def judge(self, case: C) -> Judgment:
        """Judge a case. Whatever goes wrong in the judge gives `unjudged` with the reason: an outage of a
        judge never looks like a wrong answer."""
        judge = self._judges[case.metric]
        try:
            with anyio.fail_after(self._deadline_s):
                judgment = await judge.judge(case)
        except Exception as error:  # the judge may be anybody's code: its failure is this case's result
            return _unjudged(f"{judge.name} failed: {type(error).__name__}: {error}")
        if judgment.outcome == "unjudged":
            return judgment if judgment.reason else _unjudged(f"{judge.name} gave no reason", judgment.votes)
        if case.metric == "ieu":
            fitting = "affirm" if judgment.outcome == "pass" else "revise"
            given = judgment.feedback.type if judgment.feedback else "none"
            if given != fitting:
                reason = f"{judge.name} judged {judgment.outcome}, but its feedback is {given}, not {fitting}"
                # as one vote that failed: by themselves its votes have a majority, and the verdict would deny it
                failed = Vote(outcome="unjudged", reason=reason, judge=judge.name, votes=judgment.votes)
                return _unjudged(reason, (failed,) if judgment.votes else ())
        return judgment


def majority(votes: Sequence[Vote]) -> Judgment:
    """One judgment from several votes: the outcome that more than half of all votes have, failed ones
    counted; otherwise unjudged. All votes are kept. Score `agreement`: the share of votes with the
    commonest judged outcome."""
    votes = tuple(votes)
    counts = Counter(vote.outcome for vote in votes)
    agreement = max(counts["pass"], counts["fail"]) / len(votes) if votes else 0.0
    scores = {"agreement": agreement}
    if agreement > 0.5:
        outcome: Outcome = "pass" if counts["pass"] > counts["fail"] else "fail"
        reasons = (vote.reason for vote in votes if vote.outcome == outcome and vote.reason)
        return Judgment(outcome=outcome, reason=next(reasons, ""), scores=scores, votes=votes)
    tally = f"no majority: {counts['pass']} pass, {counts['fail']} fail, {counts['unjudged']} unjudged"
    failures = dict.fromkeys(vote.reason for vote in votes if vote.outcome == "unjudged" and vote.reason)
    reason = f"{tally} ({'; '.join(failures)})" if failures else tally
    return Judgment(outcome="unjudged", reason=reason, scores=scores, votes=votes)


def _unjudged(reason: str, votes: tuple[Vote, ...] = ()) -> Judgment:
    return Judgment(outcome="unjudged", reason=reason, votes=votes)
