"""`egostream worker`: one role of a run as a process of its own, on a shared log."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from adapters.registry import parse_spec
from consumers.follow import follow
from consumers.score_tables import render
from consumers.scores import Scores
from simulator.cli import common
from simulator.cli.driving import answers_option, drive, log_needed, out_option, wait_option, with_models
from simulator.cli.metrics import linger_option, lingering, open_server
from simulator.cli.progress import files_progress, progress_bar
from simulator.cli.run import judge_option, run_arguments, shown, votes_option
from simulator.errors import ConfigError
from simulator.models import ModelOptions
from simulator.plan import RunOptions, plan_run
from simulator.processes import until_input_ends
from simulator.workers import (
    conductor_worker,
    judge_worker,
    replayer_worker,
    run_on,
    scoreboard_worker,
)

_run_needed = click.option(
    "--run",
    required=True,
    metavar="ID",
    help="Which run of that log, as `worker replayer` says; `any` takes the one that goes on.",
)


@click.group(
    epilog="""\b
A run in six processes, here on one machine:
  egostream worker replayer --data synthetic:wearers=2 --system rag_raw --log kafka://127.0.0.1:9092 --out runs/k &
  egostream worker conductor --log kafka://127.0.0.1:9092 --run any &
  egostream worker judge --log kafka://127.0.0.1:9092 --run any &
  egostream worker agent --system rag_raw --log kafka://127.0.0.1:9092 --run any &
  egostream worker metrics --listen 127.0.0.1:9100 --log kafka://127.0.0.1:9092 --run any &
  egostream worker scoreboard --log kafka://127.0.0.1:9092 --run any
"""
)
def worker() -> None:
    """Run one role of a run as a process of its own.

    Roles find each other through the log alone. Several agents of one system, and several judges, share the work by
    partition; one that is killed is replaced by the others, or by starting it again: whoever takes over rebuilds what
    it needs from the log and goes on.
    """


@worker.command(name="replayer", short_help="Set the run up, and replay.")
@common.command_options
@run_arguments
def replayer(options: RunOptions, settings: common.Settings) -> None:
    """Set the run up in the log, wait until every role is ready, and replay.

    Started again, it goes on where the log ends.
    """
    if options.log is None:
        raise ConfigError("--log is needed: the log that the other processes share")
    with files_progress("reading", settings.quiet) as files:
        plan = plan_run(options, files)
    if not settings.json:
        common.say(f"run {plan.started.run}; it waits for {', '.join(plan.started.required)}")
    with progress_bar("running", settings.quiet) as update:
        common.run_async(partial(replayer_worker, plan, shown(plan.started, update)))
    if settings.json:
        common.print_json({"run": plan.started.run, "replayed": True})


@worker.command(name="agent", short_help="Drive one memory system.")
@click.option(
    "--system", required=True, metavar="SYSTEM", help="The memory system, as `egostream run` takes it."
)
@log_needed
@_run_needed
@wait_option
@answers_option
@out_option
@common.call_timeout_option
@with_models
@common.command_options
def agent(system: str, log_url: str, run: str, settings: common.Settings, **driving: Any) -> None:
    """Drive one memory system, or share its lanes with other agents of the same system."""
    drive(parse_spec(system), log_url, run, settings, **driving)


@worker.command(name="judge", short_help="Judge deltas and responses.")
@log_needed
@_run_needed
@wait_option
@judge_option
@votes_option
@with_models
@common.command_options
def judge(
    log_url: str,
    run: str,
    wait_s: float,
    judges: tuple[str, ...],
    votes: int,
    models: ModelOptions,
    settings: common.Settings,
) -> None:
    """Judge deltas and responses, or share them with other judges. The run must have been announced with the same
    judges."""
    common.run_async(
        partial(judge_worker, log_url, run, wait_s=wait_s, judges=judges, votes=votes, models=models)
    )
    if settings.json:
        common.print_json({"role": "judge", "ended": True})


@worker.command(name="conductor", short_help="Inject tasks, feedback and commits.")
@log_needed
@_run_needed
@wait_option
@click.option(
    "--stall-timeout",
    "stall_timeout_s",
    type=common.Number(min=0, min_open=True),
    metavar="SECONDS",
    help="End with an error that names what is missing, after so long without anything of a role that owes something. "
    "If given, the replayer counts as well: choose more than the longest pause of the lifelog at its rate. "
    "[default: 30 minutes, and the replayer does not count]",
)
@common.command_options
def conductor(
    log_url: str, run: str, wait_s: float, stall_timeout_s: float | None, settings: common.Settings
) -> None:
    """Inject tasks, feedback and commits as the protocol says, and watch that nobody stalls. One conducts; a second
    stands by."""
    ended = common.run_async(
        partial(conductor_worker, log_url, run, wait_s=wait_s, stall_timeout_s=stall_timeout_s)
    )
    if settings.json:
        common.print_json(ended)


@worker.command(name="metrics", short_help="Serve the run's numbers in Prometheus's format.")
@click.option(
    "--listen",
    required=True,
    metavar="HOST:PORT",
    help="Where to serve them, such as 127.0.0.1:9100; port 0 takes a free one. Whoever can reach it can read it.",
)
@linger_option
@log_needed
@_run_needed
@wait_option
@common.command_options
def metrics(
    listen: str, linger_s: float, log_url: str, run: str, wait_s: float, settings: common.Settings
) -> None:
    """Follow a run from its first event until it ends, and serve its numbers (docs/prometheus.md).

    It reads only, and may be started and stopped at any time, also on a run that has ended. Beside a run it takes
    nothing from the processes that are measured, as --metrics of `run`, `load` and `replay` does a little.
    """

    async def read() -> str:
        async with run_on(log_url, run, wait_s) as (log, started):
            await follow(log, started, anyio.Event(), server.set)
            return started.run

    with open_server(listen) as server:
        with lingering(server, linger_s, settings.quiet):
            followed = common.run_async(read)
        if settings.json:
            common.print_json({"role": "metrics", "run": followed, "url": server.url, "ended": True})


@worker.command(name="scoreboard", short_help="Print what the run scored, once it has ended.")
@click.option(
    "--out", type=common.FOLDER, metavar="RUN", help="Also write the results and where the log is there."
)
@log_needed
@_run_needed
@wait_option
@common.command_options
def scoreboard(out: Path | None, log_url: str, run: str, wait_s: float, settings: common.Settings) -> int:
    """Wait for the end of the run and print what it scored."""

    async def read() -> Scores:
        with progress_bar("running", settings.quiet) as update:
            return await scoreboard_worker(
                log_url, run, lambda started: shown(started, update), wait_s=wait_s, out=out
            )

    scores = common.run_async(read)
    if settings.json:
        common.print_json(scores)
    else:
        common.show(render(scores))
    return 0 if scores.complete else common.EXIT_UNJUDGED


@worker.command(name="load", hidden=True)
@common.command_options
def load(settings: common.Settings) -> None:
    """One process of `egostream load --agents`, which starts it, says on standard input what to do, and keeps that
    open for as long as it is wanted."""
    from simulator.load.roles import play
    from simulator.load.single import LoadPart  # both need egostream[load]

    part = LoadPart.decoded(sys.stdin.buffer.readline())
    if not common.run_async(partial(until_input_ends, partial(play, part))):
        raise common.StoppedError(f"{part.name}: nobody wants this any more")
