"""What a run scored: the struct that is printed, written and compared, and how its numbers follow from its
rows.

Pure functions over rows, one row a trajectory. Definitions: docs/metrics.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from consumers.agreement import Agreement, agreements
from consumers.amounts import Amount
from consumers.spending import Spending
from simulator.events import Isolation, Means, Metric, Outcome, Vote

MAIN_METRICS: Final[tuple[Metric, ...]] = ("fidelity", "ieu", "fi", "fur")
Third = Literal["early", "middle", "late"]
THIRDS: Final[tuple[Third, ...]] = ("early", "middle", "late")

Label = Literal[
    "formation failure",
    "initial evidence use failure",
    "feedback incorporation failure",
    "correction consolidation failure",
    "evidence-use persistence failure",
]
LABELS: Final[tuple[Label, ...]] = (
    "formation failure",
    "initial evidence use failure",
    "feedback incorporation failure",
    "correction consolidation failure",
    "evidence-use persistence failure",
)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How one metric of one trajectory came out, and the verdict that says so (empty: there is none)."""

    outcome: Outcome
    reason: str = ""
    scores: dict[str, float] = {}
    judge: str = ""
    verdict: str = ""
    votes: tuple[Vote, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory, with all that is needed to trace it. `marks` has the metrics that it is expected to
    have (`fi` only where R1 failed); `events`, `texts`, `retrieved` and `errors` go by the event's name in
    the trajectory (`T1`, `R1`, `F`, `R_F`, `commit`, `committed`, `T2`, `R2`, `R2-uncommitted`)."""

    system: str
    lane: str
    stream: str
    segment: int
    third: Third
    day: str
    """The segment's date in the lifelog (UTC)."""
    time: str
    """When the segment ended, `HH:MM:SS` (UTC)."""
    anchor: str
    trajectory: str
    evidence_id: str
    evidence_type: str
    subject: str
    evidence: str
    marks: dict[Metric, Mark]
    label: Label | None
    """The failure label; None where nothing failed, or where `unlabelled` says what is missing for one."""
    unlabelled: str
    events: dict[str, str]
    texts: dict[str, str]
    retrieved: dict[str, int]
    errors: dict[str, str]
    closed: bool
    closed_reason: str
    attempt: int = 1
    """Above 1 where it was unjudged and run again (`egostream retry`)."""


class MetricRate(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one system. `rate` = passed / judged in [0, 1]; None when nothing was judged."""

    system: str
    metric: Metric
    passed: int
    judged: int
    unjudged: int
    rate: float | None
    privileged: bool = False


class GroupRate(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one system over a group of its trajectories (a third, an evidence type, a subject)."""

    system: str
    group: str
    metric: Metric
    passed: int
    judged: int
    unjudged: int
    rate: float | None


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """Why trajectories failed. Failure-free, labelled and unlabelled ones add up to all. `unlabelled`:
    whether they failed, or why, hangs on something unjudged: reason → number."""

    system: str
    no_failure: int
    labels: dict[Label, int]
    unlabelled: dict[str, int]


class Ablation(msgspec.Struct, frozen=True, kw_only=True):
    """Follow-up reuse with and without the interaction committed, over the trajectories judged in both arms.
    `difference` = (passed committed - passed uncommitted) / pairs; None without pairs."""

    system: str
    pairs: int
    unpaired: int
    passed_committed: int
    passed_uncommitted: int
    only_committed: int
    only_uncommitted: int
    difference: float | None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a system cost; None where nothing was measured. Failed operations are left out of bytes and
    seconds, but what they cost in tokens was paid."""

    system: str
    stored_bytes: Amount | None
    """Per segment ingested."""
    ingest_seconds: Amount | None
    """Per segment ingested."""
    answer_seconds: Amount | None
    """Per T1 answered."""
    ingest_tokens: Amount | None
    """Prompt and completion tokens, per segment."""
    trajectory_tokens: Amount | None
    """Prompt and completion tokens of all answers and commits, per trajectory begun."""
    branch_seconds: Amount | None = None
    """Getting the memory that a trajectory runs on, per T1 answered."""
    replayed_tokens: Amount | None = None
    """Prompt and completion tokens of the ingests that were repeated for branches, per trajectory begun; None for a
    system that is not replayed."""


class Unjudged(msgspec.Struct, frozen=True, kw_only=True):
    """Trajectories that lack a judged metric. `reasons`: reason of the first such metric → trajectories;
    `systems`: system → trajectories."""

    trajectories: int = 0
    share: float = 0.0
    reasons: dict[str, int] = {}
    systems: dict[str, int] = {}


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run scored, in the run's order of systems."""

    run: str
    ended: bool
    systems: tuple[str, ...]
    privileged: tuple[str, ...]
    isolation: Isolation
    means: dict[str, Means]
    """Isolation `branch`: system → how its branches were made, where that is known."""
    announced_anchors: int
    anchors: int
    failed_ingests: dict[str, dict[str, int]]
    """System → reason → segments."""
    dead_letters: dict[str, int]
    """Reason → records."""
    strays: tuple[str, ...]
    """Trajectories in the log that no anchor and system of the run has."""
    trajectories: int = 0
    unjudged: Unjudged = Unjudged()
    scores: tuple[MetricRate, ...] = ()
    ablation: tuple[Ablation, ...] = ()
    labels: tuple[Labels, ...] = ()
    thirds: tuple[GroupRate, ...] = ()
    by_evidence_type: tuple[GroupRate, ...] = ()
    by_subject: tuple[GroupRate, ...] = ()
    costs: tuple[Cost, ...] = ()
    """Of the run itself: what retries cost is theirs. So are `spending`."""
    spending: tuple[Spending, ...] = ()
    """What models took, by system and role; empty where none was asked."""
    agreement: tuple[Agreement, ...] = ()
    """How far the votes of judges agreed; empty where nobody voted."""
    answered_by: str = ""
    """The model that answers for memory systems; empty: they answer by extraction."""
    embedded_by: tuple[str, ...] = ()
    """Models that make vectors: what these took is in no event, so `spending` lacks it."""
    answered_apart: tuple[str, ...] = ()
    """Where a model answers: systems that answer by themselves all the same."""
    rows: tuple[Row, ...] = ()

    @property
    def retried(self) -> int:
        """How many trajectories stand as a retry left them."""
        return sum(row.attempt > 1 for row in self.rows)

    @property
    def complete(self) -> bool:
        """Every metric of every announced trajectory was judged, and no record was lost to a dead letter."""
        return not (
            self.unjudged.trajectories
            or self.dead_letters
            or self.strays
            or self.anchors != self.announced_anchors
        )


def tallied(scores: Scores, rows: Sequence[Row], *, ablated: bool) -> Scores:
    """The scores with other rows: all that follows from rows worked out from these."""
    by_system: dict[str, list[Row]] = {system: [] for system in scores.systems}
    for row in rows:
        by_system[row.system].append(row)
    return msgspec.structs.replace(
        scores,
        trajectories=len(rows),
        unjudged=unjudged_trajectories(rows),
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
        agreement=agreements(rows),
        rows=tuple(rows),
    )


def with_retry(scores: Scores, retry: Scores, attempt: int) -> Scores:
    """The scores of a run with what a later retry made of some of its trajectories. A retried trajectory counts as
    its newest attempt left it, wholly: marks of two attempts are never mixed."""
    again = {row.trajectory: row for row in retry.rows}
    rows = [
        row
        if (new := again.get(row.trajectory)) is None
        else msgspec.structs.replace(new, attempt=attempt, third=row.third)
        for row in scores.rows
    ]
    return tallied(scores, rows, ablated=bool(scores.ablation))


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
    rates = []
    for metric in MAIN_METRICS:
        passed, judged, unjudged, rate = _count(rows, metric)
        rates.append(
            MetricRate(
                system=system,
                metric=metric,
                passed=passed,
                judged=judged,
                unjudged=unjudged,
                rate=rate,
                privileged=privileged,
            )
        )
    return rates


def group_rates(
    by_system: Mapping[str, Sequence[Row]], groups: Iterable[str], group_of: Callable[[Row], str]
) -> tuple[GroupRate, ...]:
    """Every metric by system and group, groups in the order given, empty ones with denominator 0."""
    rates = []
    groups = tuple(groups)
    for system, rows in by_system.items():
        members: dict[str, list[Row]] = {group: [] for group in groups}
        for row in rows:
            members[group_of(row)].append(row)
        for group, kept in members.items():
            for metric in MAIN_METRICS:
                passed, judged, unjudged, rate = _count(kept, metric)
                rates.append(
                    GroupRate(
                        system=system,
                        group=group,
                        metric=metric,
                        passed=passed,
                        judged=judged,
                        unjudged=unjudged,
                        rate=rate,
                    )
                )
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


def by_count(reasons: Iterable[str]) -> dict[str, int]:
    """Reason → number, the commonest first, then by name."""
    return dict(sorted(Counter(reasons).items(), key=lambda item: (-item[1], item[0])))


def _count(rows: Sequence[Row], metric: Metric) -> tuple[int, int, int, float | None]:
    outcomes = Counter(row.marks[metric].outcome for row in rows if metric in row.marks)
    judged = outcomes["pass"] + outcomes["fail"]
    return outcomes["pass"], judged, outcomes["unjudged"], outcomes["pass"] / judged if judged else None
