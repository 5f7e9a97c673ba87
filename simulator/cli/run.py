"""`egostream run`: evaluate memory systems on a dataset."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Literal

import click

from consumers.monitor import Progress
from consumers.score_tables import render, write_scores
from consumers.scores import Scores
from simulator.cli import common
from simulator.cli.progress import Update, files_progress, progress_bar
from simulator.eventtime import format_event_time
from simulator.run import RunOptions, execute, plan_run


class _Rate(click.ParamType):
    """Simulated seconds per real second: a positive number or `inf`."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The rate as a number; usage error otherwise."""
        try:
            rate = float(str(value).removesuffix("x"))
        except ValueError:
            self.fail(f"{value!r} is no rate: write a number such as 60, or inf", param, ctx)
        if not rate > 0:
            self.fail(f"{value!r} is no rate: it must be above 0", param, ctx)
        return rate


RATE = _Rate()


@click.command(
    epilog="Example: egostream run --data streammembench_v1_en --system rag_raw --system bm25=rag_raw:retrieval=bm25 "
    "--system null --out runs/first"
)
@click.option("--data", required=True, help="A dataset, as `egostream inspect` takes it.")
@click.option(
    "--system",
    "systems",
    multiple=True,
    required=True,
    help="[LABEL=]NAME[:OPTION=VALUE,...] or your own module:Class. May be given several times.",
)
@click.option("--out", type=common.FOLDER, required=True, help="Folder for the log and the scores.")
@click.option("--overwrite", is_flag=True, help="Replace a run that is already in the folder.")
@click.option("--stream", "streams", multiple=True, help="Only these streams. May be given several times.")
@click.option("--segments", type=click.IntRange(min=1), help="Only the first N segments of each stream.")
@click.option("--language", type=click.Choice(["en", "zh", "both"]), default="en", show_default=True)
@click.option(
    "--isolation",
    type=click.Choice(["branch", "shared"]),
    default="branch",
    show_default=True,
    help="branch: each trajectory on a fork, many at once. shared: on the one memory, one after the other.",
)
@click.option(
    "--ablate-commit", is_flag=True, help="Ask each follow-up twice: with and without the interaction committed."
)
@click.option(
    "--rate", type=RATE, default=math.inf, help="Simulated seconds per real second. [default: inf]"
)
@click.option(
    "--policy",
    type=click.Choice(["hold", "run"]),
    default="hold",
    show_default=True,
    help="When a lane falls behind: hold lets time wait, run lets time go on.",
)
@click.option("--top-k", type=click.IntRange(min=1), default=10, show_default=True, help="Records an answer may use.")
@click.option(
    "--word-budget", type=click.IntRange(min=1), default=500, show_default=True, help="Words an answer may have."
)
@click.option("--seed", type=int, default=0, show_default=True)
@common.command_options
def run(
    data: str,
    systems: tuple[str, ...],
    out: Path,
    overwrite: bool,
    streams: tuple[str, ...],
    segments: int | None,
    language: Literal["en", "zh", "both"],
    isolation: Literal["branch", "shared"],
    ablate_commit: bool,
    rate: float,
    policy: Literal["hold", "run"],
    top_k: int,
    word_budget: int,
    seed: int,
    settings: common.Settings,
) -> int:
    """Replay a dataset into memory systems, run every trajectory, judge, and score.

    The folder gets log.db (the run itself), verdicts.jsonl, scores.json and trajectories.csv (all read off the log).
    Stopped with Ctrl-C, what was done can still be read with `egostream scores` and `egostream tap`.
    """
    options = RunOptions(
        data=data,
        systems=systems,
        out=out,
        overwrite=overwrite,
        streams=streams or None,
        segments=segments,
        language=language,
        isolation=isolation,
        ablate_commit=ablate_commit,
        rate=rate,
        policy=policy,
        top_k=top_k,
        word_budget=word_budget,
        seed=seed,
    )
    scores = run_options(options, settings)
    if settings.json:
        common.print_json(scores)
    else:
        common.out.print(render(scores))
        common.out.print(f"\nEvery number is read off {out}/log.db. Next: `egostream scores {out} --by subject`, or")
        common.out.print(f"`egostream tap {out} responses -n 3` to see what was answered.")
    return 0 if scores.complete else common.EXIT_UNJUDGED


def run_options(options: RunOptions, settings: common.Settings) -> Scores:
    """Plan and execute with progress; write the results beside the log."""
    with files_progress("reading", settings.quiet) as files:
        plan = plan_run(options, files)
    with progress_bar("running", settings.quiet) as update:
        scores = common.run_async(partial(execute, plan, partial(_show, update)))
    write_scores(options.out, scores)
    return scores


def _show(update: Update, progress: Progress) -> None:
    unjudged = f", {progress.unjudged} verdicts unjudged" if progress.unjudged else ""
    note = (
        f"{format_event_time(progress.event_time_us)} · {progress.trajectories} of {progress.trajectories_total} "
        f"trajectories{unjudged}"
    )
    total = progress.segments_total + progress.trajectories_total
    update(progress.segments + progress.trajectories, total, note)
