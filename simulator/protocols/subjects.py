"""Which protocol an anchor or a probe goes by: its trajectory, its metrics, and what these are judged on."""

from __future__ import annotations

from typing import Final, TypeAlias

from simulator.events import Metric, Outcome, ProbeEvent, Subject
from simulator.protocols.probe import ProbeTrajectory
from simulator.protocols.streammembench import BASIS, METRICS, AnchorTrajectory, expected_metrics
from simulator.protocols.trajectory import Input

AnyTrajectory: TypeAlias = AnchorTrajectory | ProbeTrajectory

RATES: Final[frozenset[Metric]] = frozenset(
    (
        *METRICS,
        *("mcq_accuracy", "mcq_accuracy_offline", "open_accuracy", "open_accuracy_offline", "decision"),
    )
)
"""Metrics that pass or fail; the others are means, whose verdicts have a value."""


def new_trajectory(lane: str, subject: Subject, *, ablate_commit: bool = False) -> AnyTrajectory:
    """A trajectory that waits for its lane's delta."""
    if isinstance(subject, ProbeEvent):
        return ProbeTrajectory(lane=lane, anchor=subject)
    return AnchorTrajectory(lane=lane, anchor=subject, ablate_commit=ablate_commit)


def metrics_of(subject: Subject, ieu: Outcome | None, *, ablate_commit: bool = False) -> tuple[Metric, ...]:
    """The metrics that its closed trajectory must have a verdict for. `ieu`: the verdict on R1, where that decides."""
    if isinstance(subject, ProbeEvent):
        return subject.metrics
    return expected_metrics(ieu, ablate_commit=ablate_commit)


def basis_of(metric: Metric) -> Input:
    """The input that a metric is judged on: of probes, R1."""
    return BASIS.get(metric, "R1")
