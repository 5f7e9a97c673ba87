"""Evaluation runs, read off their logs for the page that they share.

Needs no extra; `simulator.report.runs_page` makes the page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from simulator.errors import ConfigError, LogError
from simulator.events import Benchmark, RunStartedEvent
from simulator.log.protocol import Log
from simulator.plan import is_load
from simulator.report.overview import Overview, RunShown, names_of, overview, run_shown
from simulator.results import read_certificate, read_results
from simulator.runfolder import has_load, open_run


async def read_overview(runs: Sequence[str]) -> Overview:
    """Runs side by side, with the retries and the certificate in the folder of each. `runs`: as `open_run` takes them.
    Raises ConfigError for a load, a replay, a run that is there twice, and for what is no run."""
    benchmarks = await _benchmarks(runs)
    shown = [await _read(run, name) for run, name in zip(runs, names_of(benchmarks), strict=True)]
    return overview(shown)


async def of_load(run: str) -> bool:
    """Whether this is a load, or the folder of several. Raises ConfigError for what is no run."""
    if await anyio.to_thread.run_sync(has_load, Path(run)):
        return True
    async with _opened(run) as (_, started):
        return is_load(started)


async def _benchmarks(runs: Sequence[str]) -> list[Benchmark]:
    """Of each run. All are looked at before any is read to its end."""
    for run in runs:
        if await of_load(run):
            raise ConfigError(f"{run} is a load: give loads by themselves, `egostream report {run}`")
    found: list[Benchmark] = []
    seen: dict[str, str] = {}
    for run in runs:
        place = run.rstrip("/") if "://" in run else str(await anyio.Path(run).resolve())
        if place in seen:
            raise ConfigError(f"{run} is there twice: name each run once")
        seen[place] = run
        async with _opened(run) as (_, started):
            if not started.systems:
                raise ConfigError(f"{run} is a replay without memory systems: there is nothing to report")
            found.append(started.protocol)
    return found


async def _read(run: str, name: str) -> RunShown:
    folder = Path(run) if await anyio.Path(run).is_dir() else None
    async with _opened(run) as (log, started):
        results = await read_results(log, started, folder)
    certificate = await anyio.to_thread.run_sync(read_certificate, folder) if folder else None
    return run_shown(run, name, results.scores, started.identity, certificate)


@asynccontextmanager
async def _opened(run: str) -> AsyncIterator[tuple[Log, RunStartedEvent]]:
    """As `open_run`, but a log that is damaged or none at all raises ConfigError."""
    try:
        async with open_run(run) as opened:
            yield opened
    except LogError as error:
        raise ConfigError(str(error)) from error
