"""How the numbers of the benchmarks that ask once follow from a run's rows. Pure functions; definitions:
docs/lifedialbench.md, docs/realmem.md, docs/apm.md."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from consumers.scores import ChoiceRate, Finding, GroupScore, Mark, MetricMean, MetricRate, Row, Scores
from judges.apm import Judged, balanced_accuracy, response_quality
from judges.diagnoses import contamination, overwriting
from simulator.events import Metric, ProbeMetric
from simulator.protocols.subjects import RATES

CHOICES: Final[frozenset[Metric]] = frozenset(("mcq_accuracy", "mcq_accuracy_offline"))
OFFLINE: Final[Mapping[Metric, Metric]] = {
    "mcq_accuracy": "mcq_accuracy_offline",
    "open_accuracy": "open_accuracy_offline",
}
"""Metric of a question asked when it is due → the same asked at the end of the stream."""


def with_probe_scores(scores: Scores, by_system: Mapping[str, Sequence[Row]]) -> Scores:
    """The scores with all that follows from the rows of probes."""
    return msgspec.structs.replace(
        scores,
        scores=tuple(
            score
            for system, rows in by_system.items()
            for score in metric_scores(system, rows, privileged=system in scores.privileged)
        ),
        groups=tuple(score for system, rows in by_system.items() for score in group_scores(system, rows)),
        findings=tuple(found for system, rows in by_system.items() for found in findings(system, rows)),
    )


def metric_scores(system: str, rows: Sequence[Row], *, privileged: bool) -> Iterator[MetricRate | MetricMean]:
    """Every metric that any row has, in the order of `ProbeMetric`."""
    for metric, judged, unjudged in _by_metric(rows):
        if metric not in RATES:
            yield MetricMean(
                system=system,
                metric=metric,
                value=_mean(counted_value(metric, mark) for mark in judged),
                n=len(judged),
                unjudged=unjudged,
                privileged=privileged,
            )
            continue
        passed = sum(mark.outcome == "pass" for mark in judged)
        counted: dict[str, Any] = {
            "system": system,
            "metric": metric,
            "passed": passed,
            "judged": len(judged),
            "unjudged": unjudged,
            "rate": passed / len(judged) if judged else None,
            "privileged": privileged,
        }
        if metric in CHOICES:
            invalid = sum(bool(mark.scores.get("invalid")) for mark in judged)
            yield ChoiceRate(**counted, invalid=invalid)
        else:
            yield MetricRate(**counted)


def group_scores(system: str, rows: Sequence[Row]) -> Iterator[GroupScore]:
    """Every metric by every group that the probes have, groups by name."""
    members: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        for by, group in row.groups.items():
            members[by, group].append(row)
    for (by, group), kept in sorted(members.items()):
        for metric, judged, unjudged in _by_metric(kept):
            yield GroupScore(
                system=system,
                by=by,
                group=group,
                metric=metric,
                value=_mean(counted_value(metric, mark) for mark in judged),
                n=len(judged),
                unjudged=unjudged,
            )


def _by_metric(rows: Sequence[Row]) -> Iterator[tuple[Metric, list[Mark], int]]:
    """Each metric that any row has, in the order of `ProbeMetric`: what was judged, and how many could not be."""
    for metric in get_args(ProbeMetric):
        marks = [row.marks[metric] for row in rows if metric in row.marks]
        if marks:
            judged = [mark for mark in marks if mark.outcome != "unjudged"]
            yield metric, judged, len(marks) - len(judged)


def findings(system: str, rows: Sequence[Row]) -> Iterator[Finding]:
    """What follows from several metrics of one system, where its rows have them."""
    yield from _online_and_offline(system, rows)
    heartbeats = [row for row in rows if "decision" in row.marks]
    if heartbeats:
        yield from _decisions(system, heartbeats)


def _online_and_offline(system: str, rows: Sequence[Row]) -> Iterator[Finding]:
    for online_metric, offline_metric in OFFLINE.items():
        offline = {_question(row): row for row in rows if offline_metric in row.marks}
        if not offline:
            continue
        kind = online_metric.partition("_")[0]
        answered = [
            (row.newer, right)
            for row in offline.values()
            if (right := _right(row, offline_metric)) is not None
        ]
        area = contamination(answered)
        yield Finding(
            system=system,
            name=f"contamination_auroc_{kind}",
            value=area.value,
            n=area.positives + area.negatives,
            counts={
                "right": area.positives,
                "wrong": area.negatives,
                "on_newer_records": sum(newer for newer, _ in answered),
            },
        )
        online = {_question(row): row for row in rows if online_metric in row.marks}
        both = overwriting(
            (_right(online[asked], online_metric), _right(row, offline_metric))
            for asked, row in offline.items()
            if asked in online
        )
        if both.pairs or both.unpaired:
            yield Finding(
                system=system,
                name=f"overwriting_{kind}",
                value=both.share,
                n=both.right_both + both.overwritten,
                counts={
                    name: getattr(both, name)
                    for name in ("pairs", "unpaired", "right_both", "overwritten", "gained", "wrong_both")
                },
            )


def _decisions(system: str, rows: Sequence[Row]) -> Iterator[Finding]:
    judged = [(row, found) for row in rows if (found := _judged(row)) is not None]
    balanced = balanced_accuracy(found for _, found in judged)
    yield Finding(
        system=system,
        name="decision_balanced_accuracy",
        value=balanced.value,
        n=balanced.intervene.n + balanced.silent.n,
        counts={
            "positive": balanced.intervene.n,
            "negative": balanced.silent.n,
            **({} if balanced.intervene.value is None else {"intervene_rate": balanced.intervene.value}),
            **({} if balanced.silent.value is None else {"silent_rate": balanced.silent.value}),
        },
    )
    rated = [found for row, found in judged if row.marks.get("gated_score", _UNJUDGED).outcome != "unjudged"]
    if rated:
        quality = response_quality(rated)
        value = None if quality.value is None else quality.value / 100
        yield Finding(system=system, name="response_quality", value=value, n=quality.n)


_UNJUDGED: Final = Mark(outcome="unjudged")


def _judged(row: Row) -> Judged | None:
    """A heartbeat as judged, by what its marks say; None where its decision was not."""
    decision = row.marks["decision"]
    if decision.outcome == "unjudged":
        return None
    scores = {**decision.scores, **row.marks.get("gated_score", _UNJUDGED).scores}
    rating, option = scores.get("rating"), scores.get("option")
    spoke = scores.get("intervene")
    return Judged(
        task=row.groups.get("task", ""),
        expected="INTERVENE" if row.groups.get("polarity") == "positive" else "SILENT",
        decision=None if spoke is None else "INTERVENE" if spoke else "SILENT",
        option_right=None if option is None else bool(option),
        rating=None if rating is None else round(rating),
    )


def _question(row: Row) -> tuple[str, str]:
    return row.stream, row.evidence_id


def _right(row: Row, metric: Metric) -> bool | None:
    outcome = row.marks[metric].outcome
    return None if outcome == "unjudged" else outcome == "pass"


def counted_value(metric: Metric, mark: Mark) -> float:
    """What a judged mark counts in a mean."""
    return float(mark.outcome == "pass") if metric in RATES or mark.value is None else mark.value


def _mean(values: Iterable[float]) -> float | None:
    """By an exact sum, so that no order changes it."""
    kept = list(values)
    return math.fsum(kept) / len(kept) if kept else None
