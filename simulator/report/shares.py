"""What runs scored, as shares with their intervals: over all of a run, and by group. Pure.

Intervals are at 95%: of a rate Clopper and Pearson's, exact; of a mean the normal one, ± 1.96 standard errors within
[0, 1], which is too narrow where probes are few. Both take probes as independent of each other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist, fmean, stdev
from typing import Any, Final

import msgspec

from consumers.probe_scores import counted_value
from consumers.probe_tables import FINDING_TITLES
from consumers.score_tables import METRIC_TITLES
from consumers.scores import MAIN_METRICS, MetricMean, MetricRate, Scores
from simulator.events import Benchmark, Metric
from simulator.load.confidence import LEVEL, Interval, chance

MAIN: Final[Mapping[Benchmark, tuple[Metric, ...]]] = {
    "streammembench": MAIN_METRICS,
    "lifedialbench": ("mcq_accuracy", "open_accuracy", "mcq_accuracy_offline", "open_accuracy_offline"),
    "realmem": ("recall_all@10", "ndcg@10", "qa", "memory_recall", "helpful"),
    "apm": ("mcq_accuracy", "decision", "gated_score"),
}
"""What is compared at a glance, and split by groups."""
_TITLES: Final[Mapping[str, str]] = {str(metric): title for metric, title in METRIC_TITLES.items()} | dict(
    FINDING_TITLES
)
STANDS_FOR: Final[Mapping[Metric, str]] = {"decision": "decision_balanced_accuracy"}
"""Metric → the finding that stands for it at a glance: who always says the same would be right more often than not."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one system over all of a run (`by` and `group` empty), or over a group. `value` is in [0, 1], over
    `n` judged ones; None without any. `passed`: of a rate; None of a mean. `interval`: None where `n` can give none."""

    system: str
    metric: str
    by: str = ""
    group: str = ""
    value: float | None
    n: int
    passed: int | None = None
    unjudged: int = 0
    interval: Interval | None = None


def shares_of(scores: Scores) -> tuple[Shown, ...]:
    """All that is shown of a run's scores, which need their rows for the intervals of means."""
    return (*_overall(scores), *_findings(scores), *_groups(scores))


def title_of(metric: str) -> str:
    """A metric's title, or that of a finding."""
    return _TITLES[metric]


def of_mean(values: Sequence[float]) -> Interval | None:
    """The normal interval of the mean of values in [0, 1]; None of fewer than two."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    half = NormalDist().inv_cdf((1 + LEVEL) / 2) * stdev(values) / math.sqrt(len(values))
    return Interval(low=max(0.0, mean - half), high=min(1.0, mean + half), level=LEVEL)


def _overall(scores: Scores) -> Iterable[Shown]:
    values = _values(scores)
    for score in scores.scores:
        about: dict[str, Any] = {"system": score.system, "metric": score.metric, "unjudged": score.unjudged}
        match score:
            case MetricRate(passed=passed, judged=judged):
                yield _rate(passed, judged, score.rate, about)
            case MetricMean(value=value, n=n):
                interval = of_mean(values.get((score.system, "", "", score.metric), ()))
                yield Shown(**about, value=value, n=n, interval=interval)


def _findings(scores: Scores) -> Iterable[Shown]:
    """Those that stand for a metric at a glance."""
    unjudged = {(score.system, score.metric): score.unjudged for score in scores.scores}
    for metric, name in STANDS_FOR.items():
        for found in scores.findings:
            if found.name == name:
                left = unjudged.get((found.system, metric), 0)
                yield Shown(system=found.system, metric=name, value=found.value, n=found.n, unjudged=left)


def _groups(scores: Scores) -> Iterable[Shown]:
    split: tuple[tuple[str, Sequence[MetricRate]], ...] = (
        ("third", scores.thirds),
        ("evidence type", scores.by_evidence_type),
        ("subject", scores.by_subject),
    )
    for by, rates in split:
        for rate in rates:
            where = {"system": rate.system, "metric": rate.metric, "by": by, "group": rate.group}
            yield _rate(rate.passed, rate.judged, rate.rate, {**where, "unjudged": rate.unjudged})
    values = _values(scores)
    means = {score.metric for score in scores.scores if isinstance(score, MetricMean)}
    for score in scores.groups:
        by = score.by.replace("_", " ")
        about: dict[str, Any] = {"system": score.system, "metric": score.metric, "by": by}
        about |= {"group": score.group, "unjudged": score.unjudged}
        if score.metric in means:
            interval = of_mean(values.get((score.system, score.by, score.group, score.metric), ()))
            yield Shown(**about, value=score.value, n=score.n, interval=interval)
        else:
            yield _rate(round((score.value or 0) * score.n), score.n, score.value, about)


def _rate(passed: int, judged: int, rate: float | None, about: Mapping[str, Any]) -> Shown:
    interval = chance(passed, judged) if judged else None
    return Shown(**about, value=rate, n=judged, passed=passed, interval=interval)


def _values(scores: Scores) -> dict[tuple[str, str, str, Metric], list[float]]:
    """(System, by, group, metric) → what each judged probe counts, of metrics that are means."""
    means = {score.metric for score in scores.scores if isinstance(score, MetricMean)}
    values: dict[tuple[str, str, str, Metric], list[float]] = defaultdict(list)
    for row in scores.rows if means else ():
        for metric, mark in row.marks.items():
            if metric in means and mark.outcome != "unjudged":
                for by, group in (("", ""), *row.groups.items()):
                    values[row.system, by, group, metric].append(counted_value(metric, mark))
    return values
