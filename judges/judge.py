"""The judge seam: a case in, a judgment out. Judges do not know the log."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from simulator.events import (
    AnchorEvent,
    AnchorMetric,
    FeedbackDraft,
    Metric,
    Outcome,
    ProbeEvent,
    ProbeMetric,
    RetrievedRecord,
    Vote,
)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be judged of an anchor: `text` is the segment's memory delta (records one a line) for `fidelity`, and
    the response R1, R_F or R2 for `ieu`, `fi` and `fur`."""

    metric: AnchorMetric
    anchor: AnchorEvent
    text: str


class ProbeCase(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be judged of a probe: the response, and the records that it rests on, best first. `segments`: of each
    record the segment in which its newest observation lies."""

    metric: ProbeMetric
    probe: ProbeEvent
    text: str
    retrieved: tuple[RetrievedRecord, ...] = ()
    segments: tuple[int, ...] = ()


C_contra = TypeVar("C_contra", Case, ProbeCase, contravariant=True)
C = TypeVar("C", Case, ProbeCase)


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """Pass, fail, or unjudged with a reason. `feedback` is set for `ieu`: what the person says to R1. `value`, in
    [0, 1], is set for metrics that are means: these pass where it is 1."""

    outcome: Outcome
    reason: str = ""
    scores: dict[str, float] = {}
    votes: tuple[Vote, ...] = ()
    feedback: FeedbackDraft | None = None
    value: float | None = None


def outcome_of(value: float) -> Outcome:
    """A mean passes where its value is 1, the whole of it."""
    return "pass" if value == 1.0 else "fail"


class Judge(Protocol[C_contra]):
    """Judges cases of some metrics. What it raises is retried by its own means; what escapes makes the case
    unjudged with that reason."""

    @property
    def name(self) -> str:
        """Stands beside every verdict and in the run's identity."""

    @property
    def metrics(self) -> frozenset[Metric]:
        """The metrics that it judges."""

    async def judge(self, case: C_contra) -> Judgment:
        """Judge one case."""
