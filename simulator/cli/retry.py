"""`egostream retry`: run again what stayed unjudged."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio.to_thread
import click

from consumers.score_tables import render
from consumers.scores import Scores
from simulator.cli import common
from simulator.cli.given import given_run
from simulator.cli.progress import files_progress, progress_bar
from simulator.cli.run import Outcome, note_attached, shown
from simulator.cli.sources import note_sources
from simulator.results import audit_run, read_results
from simulator.retry import RetryOptions, plan_retry, run_retry


@click.command(epilog="Example: egostream retry runs/first")
@click.argument("folder", type=common.FOLDER, metavar="RUN")
@click.option("--data", metavar="PATH", help="Where the dataset is now. [default: where it was]")
@common.models_option
@common.cache_option
@common.offline_option
@common.command_options
def retry(
    folder: Path,
    data: str | None,
    models: Path | None,
    cache: Path | None,
    offline: bool,
    settings: common.Settings,
) -> int:
    """Run again the trajectories of a finished RUN that an outage spoilt, and only those: what stayed unjudged, since
    an agent, a memory system or a judge failed for good, and what ran on a memory that lacks a segment.

    Their memories are made anew and ingest the stream again up to where they are asked. That is a run of its own in
    RUN/retry-1 (then retry-2 and so on); RUN's own log stays as it is. `egostream scores RUN` counts a retried
    trajectory as its newest attempt left it, costs too, and says how many there are. The retry is audited as a run is.

    Dataset, options, models, judges and version must be those of the run; --models and --cache say where they are now,
    if not where they were. What a model answered the first time comes from the cache: only what failed is paid for.
    Stopped, the same command goes on.
    """

    async def run() -> tuple[Scores, Outcome | None]:
        async with given_run(folder) as (log, started):
            results = await read_results(log, started, folder)
            now = RetryOptions(data=data, models=models, cache=cache, offline=offline)
            with files_progress("reading", settings.quiet) as files:
                plan = await anyio.to_thread.run_sync(partial(plan_retry, folder, results, now, files))
            if plan is None:
                if not settings.quiet:
                    common.note(f"every metric of {folder} is judged: there is nothing to retry")
                return results.scores, None
            if not settings.quiet:
                common.note(
                    f"{len(plan.started.only)} trajectories again, in {plan.options.out}; systems: "
                    f"{', '.join(plan.started.systems)}"
                )
            note_attached(plan)
            await anyio.to_thread.run_sync(note_sources, plan.systems, settings)
            with progress_bar("running", settings.quiet) as update:
                scores = await run_retry(folder, log, plan, started, shown(plan.started, update))
            return scores, Outcome.of(plan.started, scores, await audit_run(plan.options.out))

    try:
        scores, outcome = common.run_async(run)
    except KeyboardInterrupt as error:
        again = common.command("retry", folder)
        raise common.StoppedError(f"stopped; what was done stays: `{again}` goes on") from error
    if outcome is not None:
        outcome.print_json() if settings.json else outcome.show(settings)
        return outcome.exit_code
    if settings.json:
        common.print_json(scores)
    else:
        common.show(render(scores))
    return 0 if scores.complete else common.EXIT_UNJUDGED
