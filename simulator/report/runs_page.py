"""The page of evaluation runs: one table across benchmarks, then a section a run.

Needs the extra `egostream[report]`: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import rich.table
from rich.text import Text

from consumers.amounts import Amount
from consumers.probe_tables import FINDING_TITLES, pace_table
from consumers.score_tables import (
    ablation_table,
    agreement_table,
    cost_table,
    spending_notes,
    spending_table,
)
from consumers.scores import Finding, Scores
from consumers.tables import DAGGER
from simulator.report.overview import Overview, RunShown, SummaryRow
from simulator.report.parts import Cell, Page, Picture, Section, Table, count_cell, number_cell
from simulator.report.run_charts import Systems, bars_picture, interval_picture, labels_picture, share_text
from simulator.report.shares import MAIN, Shown, title_of
from simulator.report.words import NOTHING

FINDINGS: Final[Mapping[str, str]] = {
    "contamination_auroc": "Contamination: how well having retrieved a record newer than the question tells right "
    "answers from wrong ones at the end of the stream; near 0.5 nothing hangs on the future, well above it the offline "
    "result is better than the memory was, and it is undefined where all are right or all wrong.",
    "overwriting": "Overwriting: the share of the questions answered right when they were due that were answered wrong "
    "at the end of the stream, as by a memory that keeps the newest alone.",
    "decision_balanced_accuracy": "Decision balanced accuracy: the mean of how often the system spoke up where it "
    "should, and kept silent where it should; always the same word gives 50%, and neither word is wrong on both.",
    "response_quality": "Response quality: how good a response is (0 to 100%) once it was right to speak up, whatever "
    "was missed.",
}
"""How the name of a finding begins → what it means."""
_MOST_ROWS: Final = 12
"""Groups in a picture; more are a table."""
_PLAIN: Final = "contamination_auroc"
_INTERVALS: Final = (
    "Pictures show 95% intervals: of rates exact ones (Clopper-Pearson); of means the normal one, ± 1.96 standard "
    "errors, which is too narrow of few probes and has no width where all came out alike. Both take what lies in one "
    "stream as independent."
)
_FOOTER: Final = (
    "from the runs' logs, retries taken in. What is unjudged is counted beside rates and means, in none."
)


def runs_page(shown: Overview) -> Page:
    """One page of several runs, or of one."""
    privileged = {row.system for row in shown.summary if row.privileged}
    systems = Systems(
        {
            row.system: f"{row.system} {DAGGER}" if row.system in privileged else row.system
            for row in shown.summary
        }
    )
    trajectories = sum(run.scores.trajectories for run in shown.runs)
    unjudged = sum(run.scores.unjudged.trajectories for run in shown.runs)
    sound = sum(run.audit.sound is True for run in shown.runs)
    names = [run.name for run in shown.runs]
    return Page(
        title=f"{', '.join(names)}: {len(shown.summary)} memory system{'s'[: len(shown.summary) - 1]}",
        answer=[f"{run.name}: {run.lines[0]}" for run in shown.runs],
        warnings=shown.warnings,
        tiles={
            "runs": str(len(names)),
            "memory systems": str(len(systems)),
            "trajectories": f"{trajectories:,}",
            "of these unjudged": f"{unjudged:,}",
            "logs audited and sound": f"{sound} of {len(names)}",
        },
        facts={},
        sections=[
            _summary(shown, systems),
            *(_run(number, run, systems) for number, run in enumerate(shown.runs, 1)),
        ],
        footer=_FOOTER,
    )


def _summary(shown: Overview, systems: Systems) -> Section:
    text = (
        "Rates stand beside passed / judged, means beside the number of judged probes (n). An en dash: the system was "
        "not in that run, or the metric does not apply to it. Different benchmarks measure different things: their "
        "columns are not to be averaged."
    )
    lines = [text, _INTERVALS]
    if any(row.privileged for row in shown.summary):
        lines.append(f"{DAGGER} is handed the evidence: an upper bound, not a competitor.")
    spans = [("", 1)] + [
        (name, [column.run for column in shown.columns].count(name))
        for name in dict.fromkeys(column.run for column in shown.columns)
    ]
    rows = [_summary_row(row, systems) for row in shown.summary]
    head = ("System", *(column.title for column in shown.columns))
    table = Table("All systems, each benchmark's main metrics", head, rows, id="summary", spans=spans)
    return Section("All systems", lines=lines, tables=[table])


def _summary_row(row: SummaryRow, systems: Systems) -> list[Cell]:
    return [Cell(systems.name(row.system)), *(_share_cell(each) for each in row.cells)]


def _share_cell(each: Shown | None) -> Cell:
    return Cell(share_text(each), None if each is None else each.value, at_right=True)


def _run(number: int, run: RunShown, systems: Systems) -> Section:
    scores, name = run.scores, f"run-{number}"
    parts = [_scores(name, run, systems), *_groups(name, run, systems)]
    if picture := labels_picture(f"{name}-labels", systems, scores.labels):
        parts.append(Section("Failures", pictures=[picture]))
    if scores.findings:
        parts.append(_findings(name, scores.findings, systems))
    beside = []
    if scores.ablation:
        beside.append(page_table(ablation_table(scores)))
    if scores.agreement:
        beside.append(page_table(agreement_table(scores)))
    if beside:
        parts.append(Section("Commit and votes", tables=beside))
    parts.append(_costs(name, scores, systems))
    notes = spending_notes(scores)
    if scores.spending or notes:
        tables = [page_table(spending_table(scores))] if scores.spending else []
        parts.append(Section("Models", " ".join(notes), tables))
    return Section(run.name, lines=run.lines, facts=run.facts, sections=parts, id=name)


def _scores(name: str, run: RunShown, systems: Systems) -> Section:
    metrics = list(dict.fromkeys(score.metric for score in run.scores.scores))
    of = run.of()
    rows = [
        [Cell(systems.name(system)), *(_share_cell(of.get((system, "", metric))) for metric in metrics)]
        for system in run.scores.systems
    ]
    table = Table(
        "Scores: passed / judged of rates, judged probes (n) of means",
        ("System", *map(title_of, metrics)),
        rows,
        id=f"{name}-scores",
    )
    by_metric = {title_of(metric): _row(run, of, "", metric) for metric in metrics}
    picture = interval_picture(
        f"{name}-all", f"{run.name}: all metrics", ("Passed, or mean score", ""), systems, by_metric
    )
    return Section("Scores", " ".join(run.notes), [table], [] if picture is None else [picture])


def _groups(name: str, run: RunShown, systems: Systems) -> Iterator[Section]:
    """A picture for each grouping and main metric that tell anything apart; a table where groups are many."""
    pictures: list[Picture] = []
    tables: list[Table] = []
    for by in run.groupings:
        of = run.of(by)
        groups = list(dict.fromkeys(group for _, group, _ in of))
        metrics = [metric for metric in MAIN[run.benchmark] if any(m == metric for _, _, m in of)]
        if len(groups) > _MOST_ROWS:
            tables.append(_group_table(run, by, groups, metrics, systems))
            continue
        for metric in metrics:
            rows = {group: _row(run, of, group, metric) for group in groups}
            rows = {group: row for group, row in rows.items() if any(each.n for each in row)}
            if len(rows) < 2:
                continue
            picture = interval_picture(
                f"{name}-{_slug(by)}-{_slug(metric)}",
                f"{title_of(metric)} by {by}",
                (title_of(metric), by.capitalize()),
                systems,
                rows,
            )
            pictures += [] if picture is None else [picture]
    if pictures or tables:
        yield Section("By group", tables=tables, pictures=pictures)


def _group_table(
    run: RunShown, by: str, groups: Sequence[str], metrics: Sequence[str], systems: Systems
) -> Table:
    of = run.of(by)
    rows = [
        [
            Cell(group),
            Cell(systems.name(system)),
            *(_share_cell(of.get((system, group, metric))) for metric in metrics),
        ]
        for group in groups
        for system in run.scores.systems
    ]
    return Table(f"By {by}", (by.capitalize(), "System", *map(title_of, metrics)), rows)


def _row(run: RunShown, of: Mapping[tuple[str, str, str], Shown], group: str, metric: str) -> list[Shown]:
    known = (of.get((system, group, metric)) for system in run.scores.systems)
    return [each for each in known if each is not None]


def _findings(name: str, findings: Sequence[Finding], systems: Systems) -> Section:
    rows = [
        [
            Cell(FINDING_TITLES[found.name]),
            Cell(systems.name(found.system)),
            number_cell(found.value, ".3f" if found.name.startswith(_PLAIN) else ".1%"),
            count_cell(found.n),
            Cell(", ".join(f"{what.replace('_', ' ')} {n:g}" for what, n in found.counts.items()) or NOTHING),
        ]
        for found in findings
    ]
    head = ("What", "System", "Value", "Over", "From")
    table = Table(
        "What follows from several metrics, or from asking twice", head, rows, id=f"{name}-findings"
    )
    meanings = [
        meaning
        for begin, meaning in FINDINGS.items()
        if any(found.name.startswith(begin) for found in findings)
    ]
    return Section("What follows", lines=meanings, tables=[table])


def _costs(name: str, scores: Scores, systems: Systems) -> Section:
    costs = {cost.system: cost for cost in scores.costs}

    def means(of: Mapping[str, Amount | None]) -> dict[str, float | None]:
        return {system: None if amount is None else amount.mean for system, amount in of.items()}

    stored = means({system: cost.stored_bytes for system, cost in costs.items()})
    ingest = means({system: cost.ingest_seconds for system, cost in costs.items()})
    answer = means({system: cost.answer_seconds for system, cost in costs.items()})
    ingested = means({system: cost.ingest_tokens for system, cost in costs.items()})
    asked = means({system: cost.trajectory_tokens for system, cost in costs.items()})
    drawn: Iterable[tuple[str, str, str, dict[str, float | None], str]] = (
        ("stored", "Stored per segment", "Stored (B)", stored, "Bytes that a segment added, on average."),
        ("ingest", "Ingest per segment", "Ingest", ingest, "Wall time of an ingest, on average."),
        ("answer", "Answer to T1", "Answer", answer, "Wall time of a first answer, on average."),
        ("tokens", "Tokens per segment", "Tokens (number)", ingested, "Prompt and completion, on average."),
        (
            "trajectory",
            "Tokens per trajectory",
            "Tokens (number)",
            asked,
            "Prompt and completion of all answers and commits of a trajectory, on average.",
        ),
    )
    pictures = []
    for what, title, label, values, caption in drawn:
        shown = values
        if what in ("ingest", "answer"):
            seconds = max((value for value in values.values() if value is not None), default=0) >= 1
            label += " (s)" if seconds else " (ms)"
            shown = {s: None if v is None else v * (1 if seconds else 1000) for s, v in values.items()}
        picture = bars_picture(f"{name}-{what}", title, label, systems, shown, caption)
        pictures += [] if picture is None else [picture]
    tables = [page_table(cost_table(scores))]
    tables += [page_table(pace_table(scores))] if scores.pace else []
    return Section("Cost", tables=tables, pictures=pictures)


def page_table(table: rich.table.Table) -> Table:
    """A table of the terminal as one of the page, with the same texts."""
    columns = [[_text(cell) for cell in column.cells] for column in table.columns]
    at_right = [column.justify == "right" for column in table.columns]
    rows = [
        [Cell(text, at_right=right) for text, right in zip(row, at_right, strict=True)]
        for row in zip(*columns, strict=True)
    ]
    head = [_text(column.header) for column in table.columns]
    return Table(_text(table.title or ""), head, rows)


def _text(shown: object) -> str:
    plain = shown.plain if isinstance(shown, Text) else str(shown)
    return " ".join(plain.split())


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())
