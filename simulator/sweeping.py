"""A sweep: one load after the other, each a run of its own, until a search knows what keeps an objective."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from consumers.monitor import Progress
from producers.datasets import read_dataset
from simulator.errors import ConfigError
from simulator.files import write_whole
from simulator.load import LoadOptions, execute_load, plan_load
from simulator.runfolder import SWEEP_NAME
from simulator.sweep import Axis, Found, Measured, Objective, Search, values


async def execute_sweep(
    options: LoadOptions,
    axis: Axis,
    objective: Objective,
    *,
    tolerance: float = 0.05,
    again: int = 1,
    tell: Callable[[Measured], None] = lambda _: None,
    show: Callable[[Progress], None] | None = None,
) -> Found:
    """Measure loads from the one in `options` on, each in a folder of its own below `options.out`; write and give what
    was found. `tell` hears of each load. Raises what a load raises, and ConfigError where the folder holds a sweep."""
    load, path = options.load, options.out / SWEEP_NAME
    if axis == "wearers" and load.rate is None:
        raise ConfigError(
            "a sweep over wearers needs --rate: at --observations-per-second of all lanes together, more wearers are "
            "no more load"
        )
    if objective.of_answers and options.questions is None:
        raise ConfigError(f"the objective {objective.text!r} needs --questions-per-second")
    if await anyio.Path(path).exists() and not options.overwrite:
        raise ConfigError(f"{options.out} already holds a sweep: choose another --out, or pass --overwrite")
    first = load.wearers or 1 if axis == "wearers" else load.rate or load.observations_per_second
    if first is None:
        raise ConfigError("give either --rate or --observations-per-second: the sweep begins there")
    search = Search(axis, first, tolerance=tolerance, again=again)
    read = partial(read_dataset, options.data, language=options.language, streams=options.streams)
    dataset = await anyio.to_thread.run_sync(read)
    points: list[Measured] = []
    for value in values(search):
        if axis == "wearers":
            at = replace(load, wearers=int(value))
        elif load.rate is not None:
            at = replace(load, rate=value)
        else:
            at = replace(load, observations_per_second=value)
        out = options.out / f"{len(points) + 1:02d}-{value:.6g}"
        plan = await anyio.to_thread.run_sync(plan_load, replace(options, out=out, load=at), dataset)
        report = await execute_load(plan, show)
        measured = Measured(value=value, kept=objective.kept(report), report=report)
        search.tell(value, measured.kept)
        points.append(measured)
        tell(measured)
    found = search.found(objective.text, tuple(points))
    await anyio.to_thread.run_sync(_write, path, found)
    return found


def _write(path: Path, found: Found) -> None:
    write_whole(path, msgspec.json.format(msgspec.json.encode(found)) + b"\n")
