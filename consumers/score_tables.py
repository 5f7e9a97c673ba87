"""Scores for people and for files: summary lines, tables, JSON and CSV. Only `write_scores` touches a
disk."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from consumers.probe_tables import (
    PROBE_TITLES,
    finding_table,
    groupings,
    pace_table,
    probe_group_table,
    probe_notes,
    probe_table,
)
from consumers.rebuild import differing_line, same_line
from consumers.scores import LABELS, MAIN_METRICS, Cost, MetricRate, Row, Scores
from consumers.tables import (
    DAGGER,
    bytes_shown,
    judged_shown,
    mean_shown,
    new_table,
    seconds_shown,
    system_name,
)
from simulator.counts import counted
from simulator.errors import ConfigError
from simulator.events import Means, Metric, ProbeMetric
from simulator.files import write_whole
from simulator.protocols.streammembench import METRICS
from simulator.protocols.trajectory import STEPS

METRIC_TITLES: Final[Mapping[Metric, str]] = {
    "fidelity": "Fidelity",
    "ieu": "Initial evidence use",
    "fi": "Feedback incorporation",
    "fur": "Follow-up reuse",
    "fur_uncommitted": "Follow-up reuse, uncommitted",
    **{metric: title.replace("\n", " ") for metric, title in PROBE_TITLES.items()},
}

_GROUPS: Final[Mapping[str, tuple[str, Callable[[Scores], Sequence[MetricRate]]]]] = {
    "third": ("Early, middle and late thirds of each stream", lambda scores: scores.thirds),
    "type": ("By evidence type", lambda scores: scores.by_evidence_type),
    "subject": ("By subject", lambda scores: scores.by_subject),
}

_MEANS: Final[Mapping[Means, str]] = {
    "copy": "each trajectory ran on a copy of its folder",
    "replay": "each trajectory ran on a new memory that ingested the stream again up to there",
}
_REASON_CHARACTERS: Final = 120
_REASONS_SHOWN: Final = 3
_ODDITIES_SHOWN: Final = 3
_LOST: Final = re.compile(
    r"^(unreadable|malformed)_|_left_out$|^(text_before_first_cue|stream_without_observations|empty_file)$"
)
"""Oddities by which something of the source could not be read, or was left out."""


def summary_lines(scores: Scores) -> list[str]:
    """What a reader must know before any number: the first line says what was run and what stayed
    unjudged."""
    about = ("anchor", "anchors") if scores.protocol == "streammembench" else ("probe", "probes")
    size = ", ".join(
        (
            counted(len(scores.systems), "system"),
            counted(scores.anchors, *about),
            counted(scores.trajectories, "trajectory", "trajectories"),
        )
    )
    unjudged = scores.unjudged
    if unjudged.trajectories:
        whose = "".join(f"; {system} {count}" for system, count in unjudged.systems.items())
        lines = [
            f"{size}: {unjudged.trajectories} of {scores.trajectories} trajectories unjudged "
            f"({unjudged.share:.1%}{whose if len(scores.systems) > 1 else ''}): {_reasons(unjudged.reasons)}."
        ]
    elif scores.trajectories:
        lines = [f"{size}: every metric judged."]
    else:
        lines = [f"{size}: nothing to judge."]
    if scores.retried:
        lines.append(
            f"Taken from a retry, with its costs: {counted(scores.retried, 'trajectory', 'trajectories')}."
        )
    if not scores.ended:
        lines.append("The run has not ended: these are the scores so far.")
    if scores.anchors != scores.announced_anchors:
        lines.append(
            f"The run announced {scores.announced_anchors} {about[1]}; the log has {scores.anchors}."
        )
    if scores.gapped:
        gapped = counted(scores.gapped, "trajectory", "trajectories")
        lines.append(
            f"{gapped} on a memory that lacks a segment, whose ingest failed: a retry runs them again."
        )
    if differing := differing_line(scores.rebuilds):
        lines.append(differing)
    for system, reasons in scores.failed_ingests.items():
        failed = counted(sum(reasons.values()), "segment")
        when = "Before the retry " if scores.retried else ""
        lines.append(f"{when}{system} failed to ingest {failed}: {_reasons(reasons)}.")
    if scores.dead_letters:
        dead = counted(sum(scores.dead_letters.values()), "dead letter")
        lines.append(f"{dead}: {_reasons(scores.dead_letters)}.")
    if scores.strays:
        strays = counted(len(scores.strays), "trajectory", "trajectories")
        lines.append(
            f"{strays} in the log, but of no {about[0]} and system of this run: {scores.strays[0]} ..."
        )
    if scores.oddities:
        lines.append(_oddities_line(scores))
    return lines


def _oddities_line(scores: Scores) -> str:
    # what was lost comes first, and then the rarest: thousands of a kind are how a data set is written
    kinds = sorted(scores.oddities.items(), key=lambda odd: (not _LOST.search(odd[0]), odd[1], odd[0]))
    shown = ", ".join(f"{count:,} {name}" for name, count in kinds[:_ODDITIES_SHOWN])
    if rest := kinds[_ODDITIES_SHOWN:]:
        shown += f", {sum(count for _, count in rest):,} of {counted(len(rest), 'other kind')}"
    odd = counted(sum(scores.oddities.values()), "oddity", "oddities")
    benchmark = "" if scores.protocol == "streammembench" else f" --benchmark {scores.protocol}"
    return f"The source has {odd}: {shown}. What each is, and where: `egostream inspect{benchmark} PATH --examples`"


def score_table(scores: Scores) -> Table:
    """Systems as rows, the four metrics as columns, each rate with its denominator."""
    titles = [METRIC_TITLES[metric].replace(" ", "\n", 1) for metric in MAIN_METRICS]
    table = new_table("Scores (passed / judged)", "System", *titles, numbers=titles)
    for system in scores.systems:
        rates = [r for r in scores.scores if r.system == system and isinstance(r, MetricRate)]
        table.add_row(system_name(scores, system), *(_rate(rate) for rate in rates))
    return table


def score_notes(scores: Scores) -> list[str]:
    """What must be known to read the score table."""
    notes = ["Feedback incorporation counts only where the first answer failed."]
    if scores.protocol != "streammembench":
        notes = probe_notes(scores)
    if scores.privileged:
        notes.append(f"{DAGGER} is handed the evidence: an upper bound, not a competitor.")
    if scores.answered_by:
        apart = f"; {', '.join(scores.answered_apart)}: by itself" if scores.answered_apart else ""
        notes.append(f"Answers by {scores.answered_by}{apart}.")
    notes += [
        f"{system} can't fork: {_MEANS[means]}." for system, means in scores.means.items() if means != "fork"
    ]
    if same := same_line(scores.rebuilds):
        notes.append(same)
    return notes


def label_table(scores: Scores) -> Table:
    """Why trajectories failed, one column a system."""
    table = new_table("Where it went wrong", "Trajectories")
    for labels in scores.labels:
        table.add_column(system_name(scores, labels.system), justify="right")
    table.add_row("no failure", *(str(labels.no_failure) for labels in scores.labels))
    for label in LABELS:
        table.add_row(label, *(str(labels.labels[label]) for labels in scores.labels))
    if any(labels.unlabelled for labels in scores.labels):
        unlabelled = (sum(labels.unlabelled.values()) for labels in scores.labels)
        table.add_row("can't tell: unjudged", *(str(count) for count in unlabelled))
    return table


def cost_table(scores: Scores) -> Table:
    """What each system cost, as means; an en dash where nothing was measured. Tokens only where a model was
    asked."""
    titles = ["Stored\nper segment", "Ingest\nper segment", "Answer\nto T1"]
    with_tokens = any(sum(_tokens(cost)) for cost in scores.costs)
    if with_tokens:
        titles += ["Tokens\nper segment", "Tokens per\ntrajectory", "Tokens\nin all"]
    branched = any(means != "fork" for means in scores.means.values())
    if branched:
        titles.append("Branch per\ntrajectory")
    replayed = any(cost.replayed_tokens and cost.replayed_tokens.total for cost in scores.costs)
    if replayed:
        titles.append("Replayed\ntokens per\ntrajectory")
    table = new_table("Cost (means)", "System", *titles, numbers=titles)
    for cost in scores.costs:
        cells = [mean_shown(cost.stored_bytes, bytes_shown), mean_shown(cost.ingest_seconds, seconds_shown)]
        cells.append(mean_shown(cost.answer_seconds, seconds_shown))
        if with_tokens:
            cells += [
                mean_shown(cost.ingest_tokens, "{:,.0f}".format),
                mean_shown(cost.trajectory_tokens, "{:,.0f}".format),
            ]
            cells.append(f"{sum(_tokens(cost)):,.0f}" if _tokens(cost) else "–")
        if branched:
            cells.append(mean_shown(cost.branch_seconds, seconds_shown))
        if replayed:
            cells.append(mean_shown(cost.replayed_tokens, "{:,.0f}".format))
        table.add_row(system_name(scores, cost.system), *cells)
    return table


def spending_table(scores: Scores) -> Table:
    """What models took, by system and role."""
    priced = any(spent.money and spent.money.total for spent in scores.spending)
    titles = ["Calls", "Of these\ncached", "Tokens in", "Tokens out", "Tokens\neach", "Seconds\neach"]
    titles += ["Money", "Money\neach"] if priced else []
    table = new_table("What was asked of models", "System", "What", "Model", *titles, numbers=titles)
    last = None
    for spent in scores.spending:
        cells = [
            f"{spent.calls:,}" if spent.calls else "–",
            "–" if spent.cached is None else f"{spent.cached:,}",
            f"{spent.prompt_tokens:,}",
            f"{spent.completion_tokens:,}",
            f"{spent.tokens.mean:,.0f}",
            mean_shown(spent.seconds, seconds_shown),
        ]
        if priced:
            cells += (
                ["–", "–"] if spent.money is None else [money(spent.money.total), money(spent.money.mean)]
            )
        name = system_name(scores, spent.system) if spent.system != last else Text()
        table.add_row(name, spent.role, Text(spent.model), *cells)
        last = spent.system
    return table


def spending_notes(scores: Scores) -> list[str]:
    """What must be known to read the spending table."""
    notes: list[str] = []
    if scores.spending:
        notes += [
            "Each: per segment ingested, or per trajectory begun. "
            "Seconds: per operation that waited for no cached answer.",
            "Tokens and money are those of all answers, cached ones too: what they would have cost.",
        ]
    if scores.embedded_by:
        notes.append(f"Vectors by {', '.join(scores.embedded_by)} are not counted here.")
    if uncounted := sum(spent.uncounted for spent in scores.spending):
        operations = counted(uncounted, "operation")
        notes.append(f"Of {operations} the server did not say how many tokens they took: they are missing.")
    return notes


def agreement_table(scores: Scores) -> Table:
    """How far votes agreed, by metric; of a panel also each judge with what the panel said."""
    titles = ["Cases", "Unanimous", "Split", "Undecided", "of these\nties", "Failed\nvotes", "Agreement"]
    panel = any(found.with_verdict is not None for found in scores.agreement)
    titles += ["With\nverdict"] if panel else []
    table = new_table("Votes", "Judge", "Metric", *titles, numbers=titles)
    last = None
    for found in scores.agreement:
        cells = [str(n) for n in (found.cases, found.unanimous, found.split, found.undecided, found.ties)]
        cells += [f"{found.failed}/{found.votes}", f"{found.agreement:.1%}"]
        if not found.cases:
            cells = ["–"] * len(cells)
        if panel:
            cells.append("–" if found.with_verdict is None else f"{found.with_verdict:.1%}")
        name = (found.judge or "the panel") if found.judge != last else ""
        table.add_row(Text(name), METRIC_TITLES[found.metric], *cells)
        last = found.judge
    return table


def ablation_table(scores: Scores) -> Table:
    """Follow-up reuse with and without the commit, over the same trajectories."""
    titles = ("Committed", "Uncommitted", "Difference", "Only\ncommitted", "Only\nuncommitted", "Unpaired")
    table = new_table("What the commit made of follow-up reuse", "System", *titles, numbers=titles)
    for arm in scores.ablation:
        table.add_row(
            system_name(scores, arm.system),
            f"{arm.passed_committed}/{arm.pairs}",
            f"{arm.passed_uncommitted}/{arm.pairs}",
            "–" if arm.difference is None else f"{100 * arm.difference:+.1f} points",
            str(arm.only_committed),
            str(arm.only_uncommitted),
            str(arm.unpaired),
        )
    return table


def group_table(scores: Scores, group: str) -> Table:
    """The metrics by group, below each system's name."""
    title, rates_of = _GROUPS[group]
    titles = [METRIC_TITLES[metric].replace(" ", "\n", 1) for metric in MAIN_METRICS]
    table = new_table(title, "System", *titles, numbers=titles)
    cells: dict[tuple[str, str], list[str]] = {}
    for rate in rates_of(scores):
        cells.setdefault((rate.system, rate.group), []).append(_rate(rate))
    last = None
    for (system, name), row in cells.items():
        if system != last:
            table.add_row(system_name(scores, system))
        table.add_row(Text(f"  {name}"), *row)
        last = system
    return table


def render(scores: Scores, groups: Sequence[str] = ()) -> RenderableType:
    """Summary and tables for a terminal, also by these groups. Lines of text are not wrapped. Raises ConfigError for
    what the scores can't be split by."""
    of_probes = scores.protocol != "streammembench"
    known = groupings(scores) if of_probes else list(_GROUPS)
    if unknown := [group for group in groups if group not in known]:
        raise ConfigError(
            f"{scores.run} can't be split by {', '.join(unknown)}: there is {', '.join(known) or 'nothing yet'}"
        )
    tables = [(probe_group_table if of_probes else group_table)(scores, group) for group in groups]
    if scores.ablation:
        tables.insert(0, ablation_table(scores))
    parts: list[RenderableType] = [_unwrapped(summary_lines(scores))]
    if scores.trajectories:
        table = probe_table(scores) if of_probes else score_table(scores)
        parts += ["", table, _unwrapped(score_notes(scores))]
        if of_probes:
            tables = ([finding_table(scores)] if scores.findings else []) + tables
            tables += [pace_table(scores)] if scores.pace else []
        else:
            tables.append(label_table(scores))
    if scores.agreement:
        tables.append(agreement_table(scores))
    tables.append(cost_table(scores))
    if scores.spending:
        tables.append(spending_table(scores))
    notes = spending_notes(scores)
    for table in tables:
        parts += ["", table]
    return Group(*parts, *([_unwrapped(notes)] if notes else []))


def to_json(scores: Scores, *, rows: bool = True) -> bytes:
    """The scores as indented JSON. Without `rows` (one a trajectory, texts included) it stays small."""
    if rows:
        return msgspec.json.format(msgspec.json.encode(scores), indent=2) + b"\n"
    value = msgspec.to_builtins(msgspec.structs.replace(scores, rows=()))
    del value["rows"]
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def to_csv(scores: Scores) -> str:
    """One trajectory a line, in the order of `Scores.rows`. The columns are the same for every run."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, CSV_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_csv_row(row) for row in scores.rows)
    return out.getvalue()


def write_scores(folder: Path, scores: Scores) -> tuple[Path, Path]:
    """Write `scores.json` (all but the rows) and `trajectories.csv` (the rows). Each appears whole or not
    at all."""
    written = folder / "scores.json", folder / "trajectories.csv"
    for path, content in zip(written, (to_json(scores, rows=False), to_csv(scores).encode()), strict=True):
        write_whole(path, content)
    return written


_TRACED: Final = (
    "system",
    "lane",
    "stream",
    "segment",
    "third",
    "day",
    "time",
    "anchor",
    "trajectory",
    "attempt",
    "evidence_id",
    "evidence_type",
    "subject",
    "evidence",
)
_ENDED: Final = ("label", "unlabelled", "closed", "closed_reason")
_SPOKEN: Final = tuple(name for name in STEPS if name not in ("commit", "committed"))
_ANSWERED: Final = tuple(name for name in STEPS if name.startswith("R"))
_FALLIBLE: Final = (*_ANSWERED, "committed")

_JUDGED: Final = ("", "_value", "_reason", "_scores", "_judge", "_verdict")

CSV_COLUMNS: Final = (
    *_TRACED,
    *(f"{metric}{part}" for metric in METRICS for part in ("", "_reason", "_scores", "_judge", "_verdict")),
    *(f"{metric}{part}" for metric in get_args(ProbeMetric) for part in _JUDGED),
    *_ENDED,
    *(f"{name}_text" for name in _SPOKEN),
    *(f"{name}_retrieved" for name in _ANSWERED),
    *(f"{name}_error" for name in _FALLIBLE),
    *(f"{name}_id" for name in STEPS),
    *("groups", "newer"),
)
"""Trace, metrics, label, texts, numbers of retrieved records, errors, event ids."""


def _csv_row(row: Row) -> dict[str, object]:
    cells: dict[str, object] = {name: getattr(row, name) for name in (*_TRACED, *_ENDED)}
    if row.groups:
        cells |= {"groups": json.dumps(row.groups, sort_keys=True, ensure_ascii=False), "newer": row.newer}
    for metric, mark in row.marks.items():
        cells[metric] = mark.outcome
        if mark.value is not None:
            cells[f"{metric}_value"] = mark.value
        cells[f"{metric}_reason"] = mark.reason
        cells[f"{metric}_scores"] = json.dumps(mark.scores, sort_keys=True) if mark.scores else ""
        cells[f"{metric}_judge"] = mark.judge
        cells[f"{metric}_verdict"] = mark.verdict
    by_event: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("text", row.texts),
        ("retrieved", row.retrieved),
        ("error", row.errors),
        ("id", row.events),
    )
    for what, values in by_event:
        cells |= {f"{name}_{what}": value for name, value in values.items()}
    return cells


def _unwrapped(lines: Sequence[str]) -> Text:
    return Text("\n".join(lines), no_wrap=True, overflow="ignore")


def _rate(rate: MetricRate) -> str:
    return judged_shown(rate.rate, f"{rate.passed}/{rate.judged}", rate.unjudged)


def money(amount: float) -> str:
    """Whole cents where there are many, else two digits that count. The currency is that of the prices."""
    if amount == 0 or amount >= 0.1:
        return f"{amount:,.2f}"
    return f"{amount:.2g}" if amount >= 1e-4 else f"{amount:.1e}"


def _tokens(cost: Cost) -> list[float]:
    return [amount.total for amount in (cost.ingest_tokens, cost.trajectory_tokens) if amount]


def _reasons(reasons: Mapping[str, int]) -> str:
    shown = [f"{_short(reason)} ({count})" for reason, count in list(reasons.items())[:_REASONS_SHOWN]]
    if len(reasons) > _REASONS_SHOWN:
        rest = sum(list(reasons.values())[_REASONS_SHOWN:])
        shown.append(f"{counted(len(reasons) - _REASONS_SHOWN, 'other reason')} ({rest})")
    return ", ".join(shown)


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _REASON_CHARACTERS else f"{line[: _REASON_CHARACTERS - 1]}…"
