"""Probes, and what a lane publishes about them."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.events import Gold, Metric, ProbeEvent, ProbeMetric, VerdictEvent
from tests.protocols.scripted import END_US, LANE


def probe_of(
    stream: str = "A1_JAKE",
    segment: int = 9,
    number: int = 0,
    *,
    metrics: Sequence[ProbeMetric] = ("qa", "ndcg@10"),
    asked_us: int = END_US,
    gold: Gold | None = None,
) -> ProbeEvent:
    name = f"{stream}/s{segment}/p{number}"
    return ProbeEvent(
        id=f"{name}/probe",
        run="run",
        stream=stream,
        event_time_us=END_US,
        anchor=name,
        segment=segment,
        source_id="its own name",
        asked_time_us=asked_us,
        question=f"question {name}",
        text=f"question {name}, as it is asked",
        gold=gold or Gold(answer="gold answer", option="B", segments=(3,), memories=("gold memory",)),
        groups={"type": "x"},
        metrics=tuple(metrics),
    )


def verdict_of(trajectory: str, probe: ProbeEvent, metric: Metric, lane: str = LANE) -> VerdictEvent:
    return VerdictEvent(
        id=f"{trajectory}/{metric}",
        run="run",
        stream=probe.stream,
        lane=lane,
        event_time_us=probe.task_time_us,
        as_of=probe.segment,
        trajectory=trajectory,
        anchor=probe.anchor,
        metric=metric,
        outcome="fail",
        value=0.5,
    )
