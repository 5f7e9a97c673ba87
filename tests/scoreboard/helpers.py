"""What the tests of the scoreboard share: the whole log of trajectories that go as planned, and its scores."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import product

import msgspec
from rich.console import Console

from consumers.score_tables import render
from consumers.scoreboard import Scoreboard
from consumers.scores import Scores
from simulator.events import (
    AnchorEvent,
    Event,
    Metric,
    Outcome,
    RunEndedEvent,
    RunStartedEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from simulator.protocols.streammembench import BASIS, METRICS, expected_metrics
from tests.protocols.scripted import Fate, anchor_of, run_through


class Plan(msgspec.Struct, frozen=True):
    """How one trajectory goes: its fate and the verdicts that judges would give (where they can)."""

    fate: Fate
    outcomes: dict[Metric, Outcome]


def good(outcome: Outcome = "pass", **outcomes: Outcome) -> Plan:
    verdicts: dict[Metric, Outcome] = {metric: outcomes.get(metric, "pass") for metric in METRICS}
    return Plan(Fate(None, outcome), verdicts)


def started(
    systems: Sequence[str], anchors: Sequence[AnchorEvent], *, ablate: bool = False
) -> RunStartedEvent:
    return RunStartedEvent(
        id="run_started",
        run="run",
        event_time_us=0,
        identity={},
        streams=tuple(dict.fromkeys(anchor.stream for anchor in anchors)),
        systems=tuple(systems),
        privileged=("oracle",),
        anchors=len(anchors),
        segments=dict.fromkeys((anchor.stream for anchor in anchors), 9),
        partitions=1,
        isolation="branch",
        ablate_commit=ablate,
    )


def trajectory_events(system: str, anchor: AnchorEvent, plan: Plan, *, ablate: bool = False) -> list[Event]:
    """All that a finished trajectory leaves in the log."""
    lane = f"{system}@{anchor.stream}"
    trajectory, took, gave = run_through(plan.fate, ablate=ablate, lane=lane, anchor=anchor)
    closed = gave[-1]
    assert isinstance(closed, TrajectoryClosedEvent)
    events = [*took, *gave]
    have = {event.id for event in took}
    answered = trajectory.taken.keys() - trajectory.failures.keys()
    for metric in expected_metrics(trajectory.ieu, ablate_commit=ablate):
        verdict_id = f"{trajectory.id}/{metric}"
        if verdict_id in have:
            continue
        outcome = plan.outcomes[metric] if BASIS[metric] in answered else "unjudged"
        events.append(
            VerdictEvent(
                id=verdict_id,
                run="run",
                stream=anchor.stream,
                lane=lane,
                event_time_us=anchor.event_time_us,
                trajectory=trajectory.id,
                anchor=anchor.anchor,
                metric=metric,
                outcome=outcome,
                reason=(closed.reason or "judge down") if outcome == "unjudged" else "",
                judge="scripted",
            )
        )
    return events


def log_of(
    systems: Sequence[str],
    anchors: Sequence[AnchorEvent],
    plans: Sequence[Plan],
    *,
    ablate: bool = False,
) -> list[Event]:
    events: dict[str, Event] = {}
    for (system, anchor), plan in zip(product(systems, anchors), plans, strict=True):
        for event in (anchor, *trajectory_events(system, anchor, plan, ablate=ablate)):
            events.setdefault(event.id, event)
    return [started(systems, anchors, ablate=ablate), *events.values(), ended()]


def ended() -> RunEndedEvent:
    return RunEndedEvent(id="run_ended", run="run", event_time_us=0, trajectories=0, verdicts=0, unjudged=0)


def scores_of(events: Sequence[Event]) -> Scores:
    board = Scoreboard()
    for event in events:
        board.feed(event)
    scores = board.scores()
    assert scores is not None
    return scores


def shown(scores: Scores) -> str:
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(render(scores, ("third", "type", "subject")))
    return console.export_text()


ANCHORS = [anchor_of("A", segment, number) for segment in (0, 4, 8) for number in (0, 1)]
