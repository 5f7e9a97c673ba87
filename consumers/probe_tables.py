"""The scores of probes for people: tables by system, by group, and what follows from several metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from rich.table import Table
from rich.text import Text

from consumers.scores import ChoiceRate, GroupScore, MetricMean, MetricRate, Scores
from consumers.tables import bytes_shown, judged_shown, mean_shown, new_table, seconds_shown, system_name
from simulator.events import Metric, ProbeMetric

PROBE_TITLES: Final[Mapping[Metric, str]] = {
    "recall_any@10": "Recall\nany@10",
    "recall_all@10": "Recall\nall@10",
    "ndcg@10": "NDCG\n@10",
    "recall_any@20": "Recall\nany@20",
    "recall_all@20": "Recall\nall@20",
    "ndcg@20": "NDCG\n@20",
    "qa": "QA",
    "memory_recall": "Memory\nrecall",
    "helpful": "Helpful",
    "mcq_accuracy": "Choices",
    "open_accuracy": "Open\nanswers",
    "mcq_accuracy_offline": "Choices,\noffline",
    "open_accuracy_offline": "Open,\noffline",
    "decision": "Decisions",
    "gated_score": "Gated\nscore",
}
FINDING_TITLES: Final[Mapping[str, str]] = {
    "contamination_auroc_mcq": "Contamination (AUROC), choices",
    "contamination_auroc_open": "Contamination (AUROC), open answers",
    "overwriting_mcq": "Overwriting, choices",
    "overwriting_open": "Overwriting, open answers",
    "decision_balanced_accuracy": "Decision balanced accuracy",
    "response_quality": "Response quality",
}
_PLAIN: Final = frozenset(("contamination_auroc_mcq", "contamination_auroc_open"))


def probe_table(scores: Scores) -> Table:
    """Systems as rows, the metrics as columns, each with how many it stands on."""
    metrics = _metrics(scores)
    titles = [PROBE_TITLES[metric] for metric in metrics]
    table = new_table("Scores (judged)", "System", *titles, numbers=titles)
    for system in scores.systems:
        found = {score.metric: score for score in scores.scores if score.system == system}
        table.add_row(system_name(scores, system), *(_score(found.get(metric)) for metric in metrics))
    return table


def probe_group_table(scores: Scores, by: str) -> Table:
    """The metrics by group, below each system's name."""
    metrics = _metrics(scores)
    titles = [PROBE_TITLES[metric] for metric in metrics]
    table = new_table(f"By {by.replace('_', ' ')}", "System", *titles, numbers=titles)
    found = {(s.system, s.group, s.metric): s for s in scores.groups if s.by == by}
    for system in scores.systems:
        table.add_row(system_name(scores, system))
        for group in sorted({s.group for s in scores.groups if (s.by, s.system) == (by, system)}):
            cells = [_group(found.get((system, group, metric))) for metric in metrics]
            table.add_row(Text(f"  {group}"), *cells)
    return table


def finding_table(scores: Scores) -> Table:
    """What follows from several metrics, and from asking in two ways."""
    table = new_table("What follows", "System", "What", "Value", "Over", "From", numbers=("Value", "Over"))
    last = None
    for found in scores.findings:
        name = system_name(scores, found.system) if found.system != last else Text()
        value = (
            "–"
            if found.value is None
            else f"{found.value:.3f}"
            if found.name in _PLAIN
            else f"{found.value:.1%}"
        )
        counts = ", ".join(f"{what.replace('_', ' ')} {count:g}" for what, count in found.counts.items())
        table.add_row(name, FINDING_TITLES[found.name], value, str(found.n), counts)
        last = found.system
    return table


def pace_table(scores: Scores) -> Table:
    """What each system kept, and how fast it was."""
    titles = ["Most kept\nper hour", "Real-time\nfactor", "First\ntoken"]
    table = new_table("Pace, over the sessions", "System", *titles, numbers=titles)
    for pace in scores.pace:
        kept, factor = pace.peak_bytes_per_hour, pace.replay_real_time_factor
        table.add_row(
            system_name(scores, pace.system),
            "–" if kept is None else bytes_shown(kept),
            "–" if factor is None else f"{factor:.2g}",
            mean_shown(pace.first_token_seconds, seconds_shown),
        )
    return table


def probe_notes(scores: Scores) -> list[str]:
    """What must be known to read the table."""
    invalid = [
        f"{rate.system} {rate.invalid} of {rate.judged} ({PROBE_TITLES[rate.metric].replace(chr(10), ' ').lower()})"
        for rate in scores.scores
        if isinstance(rate, ChoiceRate) and rate.invalid
    ]
    return (
        [f"Replies that name no option, or several, count as not right: {'; '.join(invalid)}."]
        if invalid
        else []
    )


def groupings(scores: Scores) -> list[str]:
    """What the probes' scores can be split by."""
    return sorted({score.by for score in scores.groups})


def _metrics(scores: Scores) -> list[Metric]:
    there = {score.metric for score in scores.scores}
    return [metric for metric in get_args(ProbeMetric) if metric in there]


def _score(score: MetricRate | MetricMean | None) -> str:
    match score:
        case None:
            return "–"
        case MetricRate():
            value, counted = score.rate, f"{score.passed}/{score.judged}"
        case MetricMean():
            value, counted = score.value, str(score.n)
    return judged_shown(value, counted, score.unjudged)


def _group(score: GroupScore | None) -> str:
    return "–" if score is None else judged_shown(score.value, score.n, score.unjudged)
