"""The judge seam: a case in, a judgment out. Judges do not know the log."""

from __future__ import annotations

from typing import Protocol

import msgspec

from simulator.events import AnchorEvent, FeedbackDraft, Metric, Outcome, Vote


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be judged: `text` is the segment's memory delta (records one a line) for `fidelity`, and the
    response R1, R_F or R2 for `ieu`, `fi` and `fur`."""

    metric: Metric
    anchor: AnchorEvent
    text: str


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """Pass, fail, or unjudged with a reason. `feedback` is set for `ieu`: what the person says to R1."""

    outcome: Outcome
    reason: str = ""
    scores: dict[str, float] = {}
    votes: tuple[Vote, ...] = ()
    feedback: FeedbackDraft | None = None


class Judge(Protocol):
    """Judges cases of some metrics. What it raises is retried by its own means; what escapes makes the case
    unjudged with that reason."""

    @property
    def name(self) -> str:
        """Stands beside every verdict and in the run's identity."""

    @property
    def metrics(self) -> frozenset[Metric]:
        """The metrics that it judges."""

    async def judge(self, case: Case) -> Judgment:
        """Judge one case."""
