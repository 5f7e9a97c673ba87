"""`egostream inspect`: what is in a dataset, and what is odd in it."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from producers.inspection import inspect_path
from simulator.cli import common
from simulator.cli.progress import files_progress


@click.command(epilog="Example: egostream inspect EgoLifeCap/Sync")
@click.argument("path")
@click.option(
    "--language",
    type=click.Choice(["en", "zh", "both"]),
    default="en",
    show_default=True,
    help="Which language of two-language cues and releases to read.",
)
@common.command_options
def inspect(path: str, language: str, settings: common.Settings) -> None:
    """Count streams, segments, observations and anchors of a dataset, and list its oddities.

    PATH is a StreamMemBench release, an EgoLife tree (Transcript, DenseCaption or Sync, or the folder above them),
    or `synthetic:seed=1,wearers=2`. Nothing is dropped without a line under oddities.
    """
    with files_progress("reading", settings.quiet) as progress:
        found = inspect_path(path, language=language, progress=progress)
    if settings.json:
        common.print_json(found)
        return
    _show(found)


def _show(found: dict[str, Any]) -> None:
    common.out.print(found)
    table = Table(title="streams")
    common.out.print(table)
