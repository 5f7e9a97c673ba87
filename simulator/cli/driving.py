"""What `egostream worker` and `egostream attach` share: options of a process that asks models, or drives a system."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from adapters.registry import SystemSpec, capabilities
from simulator.cli import common
from simulator.cli.sources import note_sources
from simulator.models import ModelOptions
from simulator.workers import agent_worker

T = TypeVar("T")

log_needed = click.option(
    "--log",
    "log_url",
    required=True,
    metavar="LOG",
    help="The run's log: kafka://HOST:PORT, or the path of a file.",
)
wait_option = click.option(
    "--wait",
    "wait_s",
    type=common.Number(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the run to begin.",
)
answers_option = click.option(
    "--answers", metavar="MODEL", help="The model that answers in this run, if one does."
)
out_option = click.option(
    "--out",
    type=common.FOLDER,
    metavar="RUN",
    help="Keep what the processes of a foreign system say: RUN/logs/LANE.log (docs/systems.md). [default: it goes with "
    "its memories]",
)


def with_models(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options that say where models are; the command gets them as `models`."""

    @functools.wraps(function)
    def with_options(*args: Any, models: Path | None, cache: Path | None, offline: bool, **asked: Any) -> T:
        return function(*args, models=ModelOptions(models=models, cache=cache, offline=offline), **asked)

    for option in (common.offline_option, common.cache_option, common.models_option):
        with_options = option(with_options)
    return with_options


def drive(spec: SystemSpec, log_url: str, run: str, settings: common.Settings, **driving: Any) -> None:
    """Drive one of a run's systems until the run ends. `driving`: the rest of what `agent_worker` takes, each by the
    name of its option. Raises what that raises."""
    capabilities(spec)  # what can't be used is said at once, and not when the run has begun
    note_sources([spec], settings)
    common.run_async(partial(agent_worker, log_url, run, spec, **driving))
    if settings.json:
        common.print_json({"role": f"agent.{spec.label}", "ended": True})
