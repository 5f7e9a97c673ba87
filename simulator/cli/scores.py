"""`egostream scores`: what a run scored, read off its log."""

from __future__ import annotations

from pathlib import Path

import click

from consumers.score_tables import group_table, render, write_scores
from consumers.scores import Scores
from simulator.cli import common
from simulator.run import fold_scores
from simulator.runfolder import open_run

_GROUPS = ("third", "type", "subject")


@click.command(epilog="Example: egostream scores runs/first --by third --by subject")
@click.argument("folder", type=common.FOLDER, metavar="RUN")
@click.option(
    "--by",
    "groups",
    type=click.Choice(_GROUPS),
    multiple=True,
    help="Also split by early/middle/late third of the stream, by evidence type, or by subject.",
)
@click.option("--write", is_flag=True, help="Write scores.json and trajectories.csv into the run's folder.")
@common.command_options
def scores(folder: Path, groups: tuple[str, ...], write: bool, settings: common.Settings) -> int:
    """Print the scores of a finished, stopped or running RUN (its folder), with denominators.

    With --json: one object; `scores` has one entry for each system and metric (fidelity, ieu, fi, fur) with passed,
    judged, unjudged and rate, and `rows` one for each trajectory.
    """

    async def read() -> Scores:
        async with open_run(folder) as (log, started):
            return await fold_scores(log, started)

    found = common.run_async(read)
    if write:
        write_scores(folder, found)
    if settings.json:
        common.print_json(found)
    else:
        common.out.print(render(found))
        by = {
            "third": ("Early, middle and late thirds of each stream", found.thirds),
            "type": ("By evidence type", found.by_evidence_type),
            "subject": ("By subject", found.by_subject),
        }
        for group in groups:
            common.out.print(group_table(found, *by[group]))
        if write:
            common.out.print(f"\nWritten: {folder / 'scores.json'}, {folder / 'trajectories.csv'}")
    return 0 if found.complete else common.EXIT_UNJUDGED
