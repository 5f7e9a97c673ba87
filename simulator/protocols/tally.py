"""Which verdicts each trajectory has, in one small number a trajectory: a run has thousands, and a finished one is
never forgotten, since a second verdict on it must be found out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, get_args

from simulator.events import Metric, Outcome, ProbeEvent, ProbeMetric, Subject
from simulator.protocols.streammembench import METRICS, expected_metrics

_CLOSED: Final = 1 << len(METRICS)
_IEU: Final[dict[Outcome, int]] = {
    "pass": 1 << len(METRICS) + 1,
    "fail": 2 << len(METRICS) + 1,
    "unjudged": 3 << len(METRICS) + 1,
}
_OUTCOMES: Final[dict[int, Outcome]] = {bits: outcome for outcome, bits in _IEU.items()}
_IEU_MASK: Final = 3 << len(METRICS) + 1
# Behind those of anchors, whose numbers stay below 256
_BIT: Final[dict[Metric, int]] = {metric: 1 << place for place, metric in enumerate(METRICS)} | {
    metric: 1 << len(METRICS) + 3 + place for place, metric in enumerate(get_args(ProbeMetric))
}


class Tally:
    """A fold over verdicts and closed trajectories. Numbers below 256 are shared by the interpreter: what is kept of
    a trajectory is its id and its place in a dict; of a probe's, also what it is judged by."""

    def __init__(self, *, ablate_commit: bool = False) -> None:
        self._ablate_commit = ablate_commit
        self._bits: dict[str, int] = {}
        self._probes: dict[str, tuple[Metric, ...]] = {}
        self._expected = {
            bits: sum(_BIT[m] for m in expected_metrics(outcome, ablate_commit=ablate_commit))
            for bits, outcome in _OUTCOMES.items()
        }

    def expect(self, trajectory: str, subject: Subject) -> None:
        """Note what a trajectory is about, before it can have finished: a probe says itself what it is judged by."""
        if isinstance(subject, ProbeEvent):
            self._probes[trajectory] = subject.metrics

    def add(self, trajectory: str, metric: Metric) -> bool:
        """Note a verdict; False, changing nothing, where there was one on that metric."""
        bits = self._bits.get(trajectory, 0)
        if bits & _BIT[metric]:
            return False
        self._bits[trajectory] = bits | _BIT[metric]
        return True

    def judge_r1(self, trajectory: str, outcome: Outcome) -> None:
        """Note what the verdict on R1 says: whether `fi` is expected hangs on it."""
        self._bits[trajectory] = self._bits.get(trajectory, 0) & ~_IEU_MASK | _IEU[outcome]

    def ieu(self, trajectory: str) -> Outcome | None:
        """What was noted of R1."""
        return _OUTCOMES.get(self._bits.get(trajectory, 0) & _IEU_MASK)

    def close(self, trajectory: str) -> None:
        """Note that it has ended: no more is asked of its agent."""
        self._bits[trajectory] = self._bits.get(trajectory, 0) | _CLOSED

    def closed(self, trajectory: str) -> bool:
        """It has ended."""
        return bool(self._bits.get(trajectory, 0) & _CLOSED)

    def finished(self, trajectory: str) -> bool:
        """It has ended and has every verdict that it must have."""
        bits = self._bits.get(trajectory, 0)
        if (metrics := self._probes.get(trajectory)) is not None:
            return bool(bits & _CLOSED) and all(bits & _BIT[metric] for metric in metrics)
        expected = self._expected.get(bits & _IEU_MASK)
        return bool(bits & _CLOSED) and expected is not None and bits & expected == expected

    def missing(self, trajectory: str) -> list[Metric]:
        """The metrics that it must have and that nobody has judged."""
        expected = self._probes.get(trajectory) or expected_metrics(
            self.ieu(trajectory), ablate_commit=self._ablate_commit
        )
        return [metric for metric in expected if not self._bits.get(trajectory, 0) & _BIT[metric]]

    def forget_verdicts(self, streams: Collection[str]) -> None:
        """Forget the verdicts on the trajectories of some streams."""
        for name, bits in self._bits.items():
            if _stream_of(name) in streams:
                self._bits[name] = bits & _CLOSED


def _stream_of(trajectory: str) -> str:
    """The stream in `<label>@<stream>/s<segment>/e<n>`: no label holds these marks."""
    return trajectory.partition("@")[2].split("/")[0]
