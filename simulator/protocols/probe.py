"""The protocol of the benchmarks that ask once: T1 → R1, and the judgment of R1. Nothing is told, nothing is committed.

LifeDialBench, RealMem and APM-Bench differ in what they ask when, which their readers say, and in what R1 is judged by,
which the probe says. Each probe has a branch of its own, so that all that are due at one moment are answered at once.
Pure.
"""

from __future__ import annotations

from simulator.errors import InvariantError
from simulator.events import Event, LaneEvent, Metric, ProbeEvent, ResponseEvent
from simulator.protocols.trajectory import Input, Trajectory


class ProbeTrajectory(Trajectory[ProbeEvent], kw_only=True):
    """One lane and one probe."""

    def _first_task(self, cause: str) -> list[Event]:
        self.waiting = ("R1",)
        return [self._task("T1", "committed", self.anchor.text, cause)]

    def _follow(self, name: Input, event: LaneEvent) -> list[Event]:
        if not isinstance(event, ResponseEvent):  # `ieu` of what can't be judged, which no probe has
            raise InvariantError(f"{self.id} takes no {name}: it is about a probe", (event.id,))
        if event.error is not None:
            return self._fail(name, event.id, f"{name} failed: {event.error}")
        self._take(name, event)
        return [self._closed("", event.id)]

    def _unjudged(self, answered: frozenset[Input]) -> tuple[Metric, ...]:
        return () if "R1" in answered else self.anchor.metrics
