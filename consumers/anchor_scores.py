"""How the numbers of StreamMemBench follow from a run's rows. Pure functions; definitions: docs/metrics.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from consumers.amounts import by_count
from consumers.scores import LABELS, MAIN_METRICS, Ablation, Label, Labels, Mark, MetricRate, Row
from simulator.events import Metric, Outcome


def failure_label(marks: Mapping[Metric, Mark]) -> tuple[Label | None, str]:
    """The failure label and, where it hangs on something unjudged, what and why. The first that applies, over
    trajectories with IEU = 0 or FUR = 0; (None, "") where neither failed."""

    def outcome(metric: Metric) -> Outcome:
        return marks[metric].outcome

    def hangs_on(metric: Metric) -> tuple[None, str]:
        return None, f"{metric} unjudged: {marks[metric].reason}"

    ieu, fur = outcome("ieu"), outcome("fur")
    if "fail" not in (ieu, fur):
        unjudged: list[Metric] = [metric for metric in ("ieu", "fur") if outcome(metric) == "unjudged"]
        return hangs_on(unjudged[0]) if unjudged else (None, "")
    if outcome("fidelity") == "unjudged":
        return hangs_on("fidelity")
    if outcome("fidelity") == "fail":
        return "formation failure", ""
    if ieu == "unjudged":
        return hangs_on("ieu")
    if ieu == "pass":
        return "evidence-use persistence failure", ""
    if outcome("fi") == "unjudged":
        return hangs_on("fi")
    if outcome("fi") == "fail":
        return "feedback incorporation failure", ""
    if fur == "unjudged":
        return hangs_on("fur")
    return ("initial evidence use failure" if fur == "pass" else "correction consolidation failure"), ""


def metric_rates(system: str, privileged: bool, rows: Sequence[Row]) -> list[MetricRate]:
    """Fidelity, IEU, FI and FUR of one system's rows."""
    return [replace(rate, privileged=privileged) for rate in _rates(system, rows)]


def group_rates(
    by_system: Mapping[str, Sequence[Row]], groups: Iterable[str], group_of: Callable[[Row], str]
) -> tuple[MetricRate, ...]:
    """Every metric by system and group, groups in the order given, empty ones with denominator 0."""
    rates: list[MetricRate] = []
    groups = tuple(groups)
    for system, rows in by_system.items():
        members: dict[str, list[Row]] = {group: [] for group in groups}
        for row in rows:
            members[group_of(row)].append(row)
        for group, kept in members.items():
            rates.extend(replace(rate, group=group) for rate in _rates(system, kept))
    return tuple(rates)


def label_counts(system: str, rows: Sequence[Row]) -> Labels:
    """How many of one system's trajectories have which failure label."""
    counts = Counter(row.label for row in rows if row.label is not None)
    return Labels(
        system=system,
        no_failure=sum(row.label is None and not row.unlabelled for row in rows),
        labels={label: counts[label] for label in LABELS},
        unlabelled=by_count(row.unlabelled for row in rows if row.unlabelled),
    )


def commit_ablation(system: str, rows: Sequence[Row]) -> Ablation:
    """The paired difference that the commit made to one system."""
    pairs: Counter[tuple[Outcome, Outcome]] = Counter(
        (row.marks["fur"].outcome, row.marks["fur_uncommitted"].outcome) for row in rows
    )
    both, only_with, only_without = pairs["pass", "pass"], pairs["pass", "fail"], pairs["fail", "pass"]
    judged = both + only_with + only_without + pairs["fail", "fail"]
    return Ablation(
        system=system,
        pairs=judged,
        unpaired=len(rows) - judged,
        passed_committed=both + only_with,
        passed_uncommitted=both + only_without,
        only_committed=only_with,
        only_uncommitted=only_without,
        difference=(only_with - only_without) / judged if judged else None,
    )


def _rates(system: str, rows: Sequence[Row]) -> Iterator[MetricRate]:
    for metric in MAIN_METRICS:
        outcomes = Counter(row.marks[metric].outcome for row in rows if metric in row.marks)
        judged = outcomes["pass"] + outcomes["fail"]
        yield MetricRate(
            system=system,
            metric=metric,
            passed=outcomes["pass"],
            judged=judged,
            unjudged=outcomes["unjudged"],
            rate=outcomes["pass"] / judged if judged else None,
        )
