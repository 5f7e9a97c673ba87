"""`egostream anchors check`: what can be found wrong with a release's anchors without a model."""

from __future__ import annotations

import click

from consumers.tables import new_table
from producers.anchors.checks import CHECKS
from producers.anchors.release_checks import Checked, check_release
from producers.anchors.stated import read_stated
from producers.datasets import Language, one_layout
from simulator.cli import common
from simulator.cli.progress import files_progress, progress_bar

EXIT_FINDINGS = 1


@click.command(
    short_help="Check a release's anchors without a model.",
    epilog="""\b
Examples:
  egostream anchors check streammembench_v1_en
  egostream anchors check streammembench_v1_en --json | jq .by_check
""",
)
@click.argument("path", metavar="PATH")
@common.language_option
@common.stream_option
@click.option("--first", default=20, show_default=True, metavar="N", help="How many findings to list.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@common.command_options
def check(
    path: str,
    language: Language,
    streams: tuple[str, ...],
    first: int,
    strict: bool,
    settings: common.Settings,
) -> int:
    """Check the anchors of a release (PATH: the folder with segments/ and evidence_tasks/) without a model.

    Quotes stand literally where they are said to, indices and times are right, no request gives its evidence
    away, the two requests of an anchor are of different scenarios, nothing is empty, ids are unique.
    docs/anchors.md says what each check does, and why its thresholds are what they are.

    The exit code is 1 if there is an error. --json has all findings, each with its file, the place inside it
    and what to do.
    """
    layout, named = one_layout(path, language, "streammembench")
    if named is not None and not streams:
        streams = (named,)
    with files_progress("reading", settings.quiet) as progress:
        release = read_stated(layout, streams or None, progress)
    with progress_bar("checking", settings.quiet) as update:
        checked = check_release(
            release, lambda done, total: update(done, total, f"{done:,} of {total:,} anchors")
        )
    if settings.json:
        common.print_json(checked)
    else:
        _show(checked, first)
    return EXIT_FINDINGS if checked.errors or (strict and checked.warnings) else 0


def _show(checked: Checked, first: int) -> None:
    wrong = f"{checked.anchors_with_errors:,} with errors" if checked.errors else "no errors"
    common.say(
        f"{checked.anchors:,} anchors of {checked.streams:,} streams: {wrong} "
        f"({checked.errors:,} errors, {checked.warnings:,} warnings)"
    )
    there = f"{checked.matched:,} of {checked.supporting_observations:,} supporting observations"
    line = f"{there} found in the stream"
    if checked.without_match:
        line += f"; {checked.without_match:,} anchors have none that was found"
    common.say(f"{line}\n")
    table = new_table("", "Found", "Check", "", "What holds where nothing is found", numbers=("Found",))
    for check_name, count in checked.by_check.items():
        severity, words = CHECKS[check_name]
        table.add_row(f"{count:,}", check_name, severity if count else "", words)
    common.show(table)
    for finding in checked.findings[:first]:
        name = f"{finding.stream} {finding.day} {finding.evidence_id or '(no id)'}"
        common.say(f"\n{finding.severity}: {finding.check}: {name}")
        common.say(f"  {finding.file} {finding.path}\n  {finding.message}")
    if len(checked.findings) > first:
        common.say(f"\n{len(checked.findings) - first:,} more findings: --first N, or --json for all")
