"""The scores that follow from a run's rows, one row a trajectory; and those with a retry taken in. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from consumers.agreement import agreements
from consumers.amounts import by_count
from consumers.anchor_scores import commit_ablation, group_rates, label_counts, metric_rates
from consumers.probe_scores import with_probe_scores
from consumers.scores import THIRDS, Row, Scores, Unjudged


def tallied(scores: Scores, rows: Sequence[Row], *, ablated: bool) -> Scores:
    """The scores with other rows: all that follows from rows worked out from these."""
    by_system: dict[str, list[Row]] = {system: [] for system in scores.systems}
    for row in rows:
        by_system[row.system].append(row)
    common = msgspec.structs.replace(
        scores,
        trajectories=len(rows),
        unjudged=unjudged_trajectories(rows),
        agreement=agreements(rows),
        rows=tuple(rows),
    )
    if scores.protocol != "streammembench":
        return with_probe_scores(common, by_system)
    return msgspec.structs.replace(
        common,
        scores=tuple(
            rate
            for system, kept in by_system.items()
            for rate in metric_rates(system, system in scores.privileged, kept)
        ),
        ablation=tuple(commit_ablation(system, kept) for system, kept in by_system.items())
        if ablated
        else (),
        labels=tuple(label_counts(system, kept) for system, kept in by_system.items()),
        thirds=group_rates(by_system, THIRDS, lambda row: row.third),
        by_evidence_type=group_rates(
            by_system, sorted({row.evidence_type for row in rows}), lambda row: row.evidence_type
        ),
        by_subject=group_rates(by_system, sorted({row.subject for row in rows}), lambda row: row.subject),
    )


def with_retry(scores: Scores, retry: Scores, attempt: int, taken: Scores) -> Scores:
    """The scores of a run with what a later retry made of some of its trajectories. A retried trajectory counts as
    its newest attempt left it, wholly: marks of two attempts are never mixed. `taken`: those of the run's scoreboard
    once it took the retry's, which have what everything cost."""
    again = {row.trajectory: row for row in retry.rows}
    rows = [
        row
        if (new := again.get(row.trajectory)) is None
        else msgspec.structs.replace(new, attempt=attempt, third=row.third)
        for row in scores.rows
    ]
    both = msgspec.structs.replace(
        scores,
        rebuilds=(*scores.rebuilds, *retry.rebuilds),
        costs=taken.costs,
        spending=taken.spending,
        pace=taken.pace,
    )
    return tallied(both, rows, ablated=bool(scores.ablation))


def unjudged_trajectories(rows: Sequence[Row]) -> Unjudged:
    """The trajectories that lack a judged metric, by reason."""
    reasons, systems = [], []
    for row in rows:
        missing = [mark.reason for mark in row.marks.values() if mark.outcome == "unjudged"]
        if missing:
            reasons.append(missing[0])
            systems.append(row.system)
    return Unjudged(
        trajectories=len(reasons),
        share=len(reasons) / len(rows) if rows else 0.0,
        reasons=by_count(reasons),
        systems=by_count(systems),
    )
