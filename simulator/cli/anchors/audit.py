"""`egostream anchors audit` and `agreement`: what people make of anchors, and whether they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from consumers.tables import new_table
from producers.anchors.agreement import Agreement, Compared, compare
from producers.anchors.sampling import CONTEXT_LINES, Row, draw
from producers.anchors.sheets import SheetFormat, read_sheet, write_sheets
from producers.anchors.stated import read_stated
from producers.datasets import Language, one_layout
from simulator.cli import common
from simulator.cli.progress import files_progress
from simulator.errors import ConfigError


@click.command(
    short_help="Draw a sample for two annotators.",
    epilog="""\b
Examples:
  egostream anchors audit streammembench_v1_en --sample 40 --out sheets
  egostream anchors agreement sheets/annotator_a.csv sheets/annotator_b.csv
""",
)
@click.argument("path", metavar="PATH")
@click.option("--sample", "count", type=int, required=True, metavar="N", help="How many anchors to draw.")
@click.option("--out", type=common.FOLDER, required=True, metavar="FOLDER", help="Where the sheets go.")
@click.option("--seed", default=0, show_default=True, help="Draws another sample.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl"]),
    default="csv",
    show_default=True,
    help="Of the sheets.",
)
@click.option(
    "--context",
    "context_lines",
    type=click.IntRange(min=0),
    default=CONTEXT_LINES,
    show_default=True,
    metavar="LINES",
    help="Lines of the segment to show before and after each quoted one.",
)
@click.option("--overwrite", is_flag=True, help="Replace sheets that are there.")
@common.language_option
@common.stream_option
@common.command_options
def audit(
    path: str,
    count: int,
    out: Path,
    seed: int,
    form: SheetFormat,
    context_lines: int,
    overwrite: bool,
    language: Language,
    streams: tuple[str, ...],
    settings: common.Settings,
) -> None:
    """Draw a sample of the anchors of a release (PATH) for two annotators.

    Each stream, evidence type and day has its share of the sample. Both sheets hold the same rows: the
    evidence, the lines of its segment, both tasks, and nine questions to answer with yes or no, which
    README.md beside them explains. The same release, N and seed give the same sample.
    """
    layout, named = one_layout(path, language, "streammembench")
    if named is not None and not streams:
        streams = (named,)
    with files_progress("reading", settings.quiet) as progress:
        release = read_stated(layout, streams or None, progress)
    rows = draw(release, count, seed, context_lines)
    paths = write_sheets(rows, out, form, overwrite=overwrite)
    strata = _strata(rows)
    if settings.json:
        drawn = [{"stream": s, "evidence_type": t, "day": d, "drawn": n} for (s, t, d), n in strata.items()]
        common.print_json(
            {
                "sample": rows[0].sample,
                "sheets": [str(p) for p in paths],
                "drawn": drawn,
                "of": len(release.anchors),
            }
        )
        return
    table = new_table("", "Stream", "Type", "Day", "Drawn", numbers=("Drawn",))
    for (stream, kind, day), number in strata.items():
        table.add_row(Text(stream), Text(kind), day, f"{number:,}")
    common.show(table)
    common.say(
        f"\n{len(rows):,} of {len(release.anchors):,} anchors, in two sheets: {paths[0]} and {paths[1]}"
    )
    common.say(f"once both are filled in: {common.command('anchors', 'agreement', *paths)}")


def _strata(rows: Sequence[Row]) -> dict[tuple[str, str, str], int]:
    return dict(sorted(Counter((row.stream, row.evidence_type, row.day) for row in rows).items()))


@click.command(
    short_help="Compute how far two annotators agree.",
    epilog="""\b
Example:
  egostream anchors agreement sheets/annotator_a.csv sheets/annotator_b.csv
""",
)
@click.argument("sheet_a", type=common.FOLDER)
@click.argument("sheet_b", type=common.FOLDER)
@common.command_options
def agreement(sheet_a: Path, sheet_b: Path, settings: common.Settings) -> None:
    """Compute how far two annotators agree, from the sheets of `egostream anchors audit`.

    For each question: the share of items on which both say the same, and Cohen's kappa, which takes off what
    chance alone would give. Both stand on the n items that both answered. Kappa has no value where both gave
    one and the same answer throughout.
    """
    a, b = read_sheet(sheet_a), read_sheet(sheet_b)
    if a.sample != b.sample:
        raise ConfigError(
            f"{sheet_a} is of sample {a.sample}, {sheet_b} of {b.sample}: compare sheets of one sample"
        )
    compared = compare(a.answers, b.answers)
    if settings.json:
        common.print_json(compared)
    else:
        _show(compared, sheet_a, sheet_b)


def _show(compared: Compared, sheet_a: Path, sheet_b: Path) -> None:
    counted = ("n", "Agree", "Kappa", "Both yes", "Both no", "A alone", "B alone", "Open")
    table = new_table("", "Question", *counted, numbers=counted)
    for criterion, found in compared.criteria.items():
        table.add_row(criterion, *_cells(found))
    table.add_row("all nine", *_cells(compared.all_criteria))
    common.say(f"{compared.items:,} items. A: {sheet_a}, B: {sheet_b}\n")
    common.show(table)
    for name, items in (("A", compared.only_in_a), ("B", compared.only_in_b)):
        if items:
            common.say(f"\nonly in {name}, and left out: {', '.join(map(str, items))}")
    reasons: dict[str, list[str]] = {}
    for name, found in (*compared.criteria.items(), ("all nine", compared.all_criteria)):
        if found.undefined:
            reasons.setdefault(found.undefined, []).append(name)
    for reason, names in reasons.items():
        common.say(f"\nno kappa for {', '.join(names)}: {reason}")


def _cells(found: Agreement) -> tuple[str, ...]:
    share = "–" if found.agreement is None else f"{found.agreement:.0%}"
    kappa = "–" if found.kappa is None else f"{found.kappa:.2f}"
    counts = (found.both_yes, found.both_no, found.only_a, found.only_b, found.unanswered)
    return f"{found.n:,}", share, kappa, *(f"{count:,}" for count in counts)
