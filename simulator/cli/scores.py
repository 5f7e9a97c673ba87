"""`egostream scores`: what a run scored, read off its log."""

from __future__ import annotations

from pathlib import Path

import click

from consumers.score_tables import render, to_csv
from simulator.cli import common
from simulator.cli.given import given_run, run_argument
from simulator.errors import ConfigError
from simulator.plan import is_load
from simulator.results import Results, read_results, write_results


@click.command(
    epilog="""\b
Examples:
  egostream scores runs/first --by third --by subject
  egostream scores runs/first --csv - | head
""",
)
@run_argument
@click.option(
    "--by",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Also split by third (early, middle, late), type (of evidence) or subject; of other benchmarks by what their "
    "probes have: quarter, category, topic, task ... May be given several times.",
)
@click.option(
    "--csv",
    "csv_path",
    type=click.Path(allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write one row for each trajectory to FILE; with - print that and nothing else.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Write scores.json, trajectories.csv and verdicts.jsonl into the run's folder.",
)
@common.command_options
def scores(
    run: str, groups: tuple[str, ...], csv_path: Path | None, write: bool, settings: common.Settings
) -> int:
    """Print the scores of a finished, stopped or running RUN (its folder, or kafka://HOST:PORT/RUN-ID).

    Every rate stands beside passed / judged. What could not be judged never counts as failed: it is counted
    apart, and makes exit code 4; `egostream retry RUN` runs those trajectories again.

    With --json: one object, in which `scores` has one entry for each system and metric (fidelity, ieu, fi,
    fur) with passed, judged, unjudged and rate, and `rows` has one for each trajectory. A metric that is a mean
    (recall_any@10, ndcg@20, qa ...) has value and n in place of passed, judged and rate.
    """
    csv_only = csv_path is not None and str(csv_path) == "-"
    if csv_only and settings.json:
        raise ConfigError("--csv - and --json both want standard output: give one, or a file to --csv")

    folder = Path(run)
    if write and not folder.exists():
        raise ConfigError(
            f"--write needs the run's folder, and {run} is none: write with --csv FILE, or --json"
        )

    has_folder = folder.is_dir()

    async def read() -> tuple[Results, bool]:
        async with given_run(run) as (log, started):
            return await read_results(log, started, folder if has_folder else None), is_load(started)

    results, of_load = common.run_async(read)
    found = results.scores
    written = write_results(folder if has_folder else folder.parent, results) if write else []
    if csv_path is not None and not csv_only:
        try:
            csv_path.write_text(to_csv(found), encoding="utf-8", newline="")
        except OSError as error:
            raise ConfigError(f"{csv_path} can't be written: {error.strerror}") from error
        written.append(csv_path)
    if settings.json:
        common.print_json(found)
    elif csv_only:
        common.say(to_csv(found).removesuffix("\n").encode())
    elif not found.systems:
        common.say(f"{run} is a replay without memory systems: there is nothing to score.")
    else:
        common.show(render(found, groups))
        if of_load:
            reader = common.command("report", run)
            common.say(f"{run} is a load: `{reader}` tells how late it remembered and answered.")
    if written and not settings.quiet:
        common.note(f"written: {', '.join(map(str, written))}")
    return 0 if found.complete else common.EXIT_UNJUDGED
