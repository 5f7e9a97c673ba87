"""Scores for people and for files: summary lines, tables, JSON and CSV. Only `write_scores` touches a
disk."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from consumers.scores import LABELS, MAIN_METRICS, Amount, GroupRate, MetricRate, Row, Scores
from simulator.events import Metric
from simulator.protocols.streammembench import METRICS, STEPS

METRIC_TITLES: Final[Mapping[Metric, str]] = {
    "fidelity": "Fidelity",
    "ieu": "Initial evidence use",
    "fi": "Feedback incorporation",
    "fur": "Follow-up reuse",
    "fur_uncommitted": "Follow-up reuse, uncommitted",
}

_DAGGER: Final = "†"
_REASON_CHARACTERS: Final = 120
_REASONS_SHOWN: Final = 3


def summary_lines(scores: Scores) -> list[str]:
    """What a reader must know before any number: the first line says what was run and what stayed
    unjudged."""
    size = ", ".join(
        (
            _number(len(scores.systems), "system", "systems"),
            _number(scores.anchors, "anchor", "anchors"),
            _number(scores.trajectories, "trajectory", "trajectories"),
        )
    )
    unjudged = scores.unjudged
    if unjudged.trajectories:
        lines = [
            f"{size}: {unjudged.trajectories} of {scores.trajectories} trajectories unjudged "
            f"({unjudged.share:.1%}): {_reasons(unjudged.reasons)}."
        ]
    elif scores.trajectories:
        lines = [f"{size}: every metric judged."]
    else:
        lines = [f"{size}: nothing to judge."]
    if not scores.ended:
        lines.append("The run has not ended: these are the scores so far.")
    if scores.anchors != scores.announced_anchors:
        lines.append(f"The run announced {scores.announced_anchors} anchors; the log has {scores.anchors}.")
    for system, reasons in scores.failed_ingests.items():
        failed = _number(sum(reasons.values()), "segment", "segments")
        lines.append(f"{system} failed to ingest {failed}: {_reasons(reasons)}.")
    if scores.dead_letters:
        dead = _number(sum(scores.dead_letters.values()), "dead letter", "dead letters")
        lines.append(f"{dead}: {_reasons(scores.dead_letters)}.")
    if scores.strays:
        strays = _number(len(scores.strays), "trajectory", "trajectories")
        lines.append(f"{strays} in the log, but of no anchor and system of this run: {scores.strays[0]} ...")
    return lines


def score_table(scores: Scores) -> Table:
    """Systems as rows, the four metrics as columns, each rate with its denominator."""
    table = Table(title="Scores", title_justify="left", caption_justify="left")
    table.add_column("System")
    for metric in MAIN_METRICS:
        table.add_column(METRIC_TITLES[metric], justify="right")
    for system in scores.systems:
        rates = [rate for rate in scores.scores if rate.system == system]
        table.add_row(_system(scores, system), *(_rate(rate) for rate in rates))
    notes = ["Passed / judged. Feedback incorporation counts only where the first answer failed."]
    if scores.privileged:
        notes.append(f"{_DAGGER} is handed the evidence: an upper bound, not a competitor.")
    table.caption = Text("\n".join(notes))
    return table


def label_table(scores: Scores) -> Table:
    """Why trajectories failed, one column a system."""
    table = Table(title="Where it went wrong", title_justify="left")
    table.add_column("Trajectories")
    for labels in scores.labels:
        table.add_column(_system(scores, labels.system), justify="right")
    table.add_row("no failure", *(str(labels.no_failure) for labels in scores.labels))
    for label in LABELS:
        table.add_row(label, *(str(labels.labels[label]) for labels in scores.labels))
    if any(labels.unlabelled for labels in scores.labels):
        unlabelled = (sum(labels.unlabelled.values()) for labels in scores.labels)
        table.add_row("can't tell: unjudged", *(str(count) for count in unlabelled))
    return table


def cost_table(scores: Scores) -> Table:
    """What each system cost, as means; an en dash where nothing was measured."""
    table = Table(title="Cost", title_justify="left")
    table.add_column("System")
    for title in (
        "Bytes stored\nper segment",
        "Seconds to ingest\na segment",
        "Seconds to\nanswer T1",
        "Tokens per segment\ningested",
        "Tokens per\ntrajectory",
        "Tokens\nin all",
    ):
        table.add_column(title, justify="right")
    for cost in scores.costs:
        spent = [tokens.total for tokens in (cost.ingest_tokens, cost.trajectory_tokens) if tokens]
        table.add_row(
            _system(scores, cost.system),
            _mean(cost.stored_bytes, ",.0f"),
            _mean(cost.ingest_seconds, ".4f"),
            _mean(cost.answer_seconds, ".4f"),
            _mean(cost.ingest_tokens, ",.0f"),
            _mean(cost.trajectory_tokens, ",.0f"),
            f"{sum(spent):,.0f}" if spent else "–",
        )
    return table


def ablation_table(scores: Scores) -> Table:
    """Follow-up reuse with and without the commit, over the same trajectories."""
    table = Table(title="What the commit made of it", title_justify="left")
    table.add_column("System")
    for title in ("Committed", "Uncommitted", "Difference", "Only committed", "Only uncommitted", "Unpaired"):
        table.add_column(title, justify="right")
    for arm in scores.ablation:
        table.add_row(
            _system(scores, arm.system),
            f"{arm.passed_committed}/{arm.pairs}",
            f"{arm.passed_uncommitted}/{arm.pairs}",
            "–" if arm.difference is None else f"{100 * arm.difference:+.1f} points",
            str(arm.only_committed),
            str(arm.only_uncommitted),
            str(arm.unpaired),
        )
    return table


def group_table(scores: Scores, title: str, rates: Sequence[GroupRate]) -> Table:
    """One group a row within each system."""
    table = Table(title=title, title_justify="left")
    table.add_column("System")
    table.add_column("Group")
    for metric in MAIN_METRICS:
        table.add_column(METRIC_TITLES[metric], justify="right")
    cells: dict[tuple[str, str], list[str]] = {}
    for rate in rates:
        cells.setdefault((rate.system, rate.group), []).append(_rate(rate))
    last = None
    for (system, group), row in cells.items():
        table.add_row(_system(scores, system) if system != last else "", Text(group), *row)
        last = system
    return table


def render(scores: Scores, *, details: bool = False) -> RenderableType:
    """Summary and tables for a terminal. `details`: also by third, evidence type and subject."""
    parts: list[RenderableType] = [Text("\n".join(summary_lines(scores))), score_table(scores)]
    if scores.ablation:
        parts.append(ablation_table(scores))
    parts += [label_table(scores), cost_table(scores)]
    if details:
        parts += [
            group_table(scores, "Early, middle and late thirds of each stream", scores.thirds),
            group_table(scores, "By evidence type", scores.by_evidence_type),
            group_table(scores, "By subject", scores.by_subject),
        ]
    return Group(*parts)


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
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
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
    "evidence_id",
    "evidence_type",
    "subject",
    "evidence",
)
_ENDED: Final = ("label", "unlabelled", "closed", "closed_reason")
_SPOKEN: Final = tuple(name for name in STEPS if name not in ("commit", "committed"))
_ANSWERED: Final = tuple(name for name in STEPS if name.startswith("R"))
_FALLIBLE: Final = (*_ANSWERED, "committed")

CSV_COLUMNS: Final = (
    *_TRACED,
    *(f"{metric}{part}" for metric in METRICS for part in ("", "_reason", "_scores", "_judge", "_verdict")),
    *_ENDED,
    *(f"{name}_text" for name in _SPOKEN),
    *(f"{name}_retrieved" for name in _ANSWERED),
    *(f"{name}_error" for name in _FALLIBLE),
    *(f"{name}_id" for name in STEPS),
)
"""Trace, metrics, label, texts, numbers of retrieved records, errors, event ids."""


def _csv_row(row: Row) -> dict[str, object]:
    cells: dict[str, object] = {name: getattr(row, name) for name in (*_TRACED, *_ENDED)}
    for metric, mark in row.marks.items():
        cells[metric] = mark.outcome
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


def _system(scores: Scores, system: str) -> Text:
    """As text and not markup: a label may hold brackets."""
    return Text(f"{system} {_DAGGER}" if system in scores.privileged else system)


def _rate(rate: MetricRate | GroupRate) -> str:
    shown = "–" if rate.rate is None else f"{rate.rate:.1%}"
    counted = f"{shown} ({rate.passed}/{rate.judged})"
    return f"{counted}, {rate.unjudged} unjudged" if rate.unjudged else counted


def _mean(amount: Amount | None, spec: str) -> str:
    return "–" if amount is None else format(amount.mean, spec)


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _reasons(reasons: Mapping[str, int]) -> str:
    shown = [f"{_short(reason)} ({count})" for reason, count in list(reasons.items())[:_REASONS_SHOWN]]
    if len(reasons) > _REASONS_SHOWN:
        rest = sum(list(reasons.values())[_REASONS_SHOWN:])
        shown.append(f"{_number(len(reasons) - _REASONS_SHOWN, 'other reason', 'other reasons')} ({rest})")
    return ", ".join(shown)


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _REASON_CHARACTERS else f"{line[: _REASON_CHARACTERS - 1]}…"
