"""Several loads, one after the other, each a run in a folder of its own: a sweep, until a search knows what keeps an
objective; a comparison, in which two systems take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from adapters.registry import capabilities
from consumers.follow import Watcher
from consumers.latency import LatencyReport
from consumers.monitor import Progress
from producers.datasets import read_dataset
from producers.lifelog import Dataset
from simulator.counts import counted
from simulator.errors import ConfigError
from simulator.files import write_whole
from simulator.load.comparison import Comparison, Round, Side, compare, round_folder
from simulator.load.single import LoadOptions, execute_load, make_free, plan_load
from simulator.load.sweep import Axis, Found, Measured, Objective, Search, load_folder, values
from simulator.report.words import value_text
from simulator.runfolder import COMPARE_NAME, SWEEP_NAME

_STOPPED: Final = "it was stopped before its end"


async def execute_sweep(
    options: LoadOptions,
    axis: Axis,
    objective: Objective,
    *,
    tolerance: float = 0.05,
    again: int = 1,
    tell: Callable[[Measured], None] = lambda _: None,
    show: Callable[[Progress], None] | None = None,
    watchers: Iterable[Watcher] = (),
) -> Found:
    """Measure loads from the one in `options` on, each in a folder of its own below `options.out`; write and give what
    was found. `tell` hears of each load, `watchers` read along with each. What is known is written after each load, so
    that nothing is lost where the sweep is stopped. A value further on at which there can be no load (in which no
    segment ends, or that does not fit in memory), or at which none tells anything, ends it, which the result says.
    Raises what a load raises, and ConfigError where the folder holds a sweep or already the first load can't be."""
    load = options.load
    unit = "wearers" if axis == "wearers" else "× real time" if load.rate is not None else "observations/s"
    if axis == "wearers" and load.rate is None:
        raise ConfigError(
            "a sweep over wearers needs --rate: at --observations-per-second of all lanes together, more wearers are "
            "no more load"
        )
    first = load.wearers or 1 if axis == "wearers" else load.rate or load.observations_per_second
    if first is None:
        raise ConfigError("give either --rate or --observations-per-second: the sweep begins there")
    if objective.of_answers and options.questions is None:
        raise ConfigError(f"the objective {objective.text!r} needs --questions-per-second")
    if axis == "wearers" and options.agents is not None and options.agents > first:
        raise ConfigError(
            f"a sweep over wearers from {first:g} on has no lanes for {counted(options.agents, 'agent')}: "
            "give more --wearers"
        )
    search = Search(axis, first, tolerance=tolerance, again=again)
    await anyio.to_thread.run_sync(make_free, options)
    dataset = await _read(options)
    points: list[Measured] = []
    path, reason = options.out / SWEEP_NAME, ""
    for value in values(search):
        if axis == "wearers":
            at = replace(load, wearers=int(value))
        elif load.rate is not None:
            at = replace(load, rate=value)
        else:
            at = replace(load, observations_per_second=value)
        out = options.out / load_folder(len(points) + 1, value)
        agents = options.agents
        if agents is not None and axis == "wearers":
            agents = min(agents, int(value))  # one without a lane would do nothing
        try:
            report = await _one(replace(options, out=out, load=at, agents=agents), dataset, show, watchers)
            measured = Measured(value=value, kept=objective.kept(report), report=report)
        except ConfigError as error:
            if not points:
                raise
            reason = f"{value_text(value, unit)} can't be measured: {error}"
            break
        search.tell(value, measured.kept)
        points.append(measured)
        so_far = search.found(objective.text, unit, tuple(points), _STOPPED)
        await anyio.to_thread.run_sync(_write, path, so_far)
        tell(measured)
    found = search.found(objective.text, unit, tuple(points), reason)
    await anyio.to_thread.run_sync(_write, path, found)
    return found


async def execute_comparison(
    options: LoadOptions,
    systems: tuple[str, str],
    rounds: int,
    *,
    tell: Callable[[int, Side, LatencyReport], None] = lambda *_: None,
    show: Callable[[Progress], None] | None = None,
    watchers: Iterable[Watcher] = (),
) -> Comparison:
    """Offer the load in `options` to both systems `rounds` times, A first in the first round, B first in the second;
    write and give what came of it. Each round draws its arrivals by a seed of its own, the same for both. `tell` hears
    of each load with its round, `watchers` read along with each. What is known is written after each round, so that
    nothing is lost where the comparison is stopped. Raises what a load raises, and ConfigError where the folder holds a
    comparison."""
    if rounds < 1:
        raise ConfigError(f"rounds is {rounds}: it must be at least 1")
    for system in systems:  # else the second would be found wrong after the first was loaded
        await anyio.to_thread.run_sync(capabilities, system)
    await anyio.to_thread.run_sync(make_free, options)
    dataset = await _read(options)
    done: list[Round] = []
    for number in range(1, rounds + 1):
        load = replace(options.load, seed=options.load.seed + number - 1)
        order: tuple[Side, Side] = ("A", "B") if number % 2 else ("B", "A")
        reports: dict[Side, LatencyReport] = {}
        for side in order:
            asked = replace(
                options,
                system=systems[side == "B"],
                out=options.out / round_folder(number, side),
                load=load,
            )
            reports[side] = await _one(asked, dataset, show, watchers)
            tell(number, side, reports[side])
        done.append(Round(first=order[0], a=reports["A"], b=reports["B"]))
        comparison = compare(systems, done, "" if number == rounds else _STOPPED)
        await anyio.to_thread.run_sync(_write, options.out / COMPARE_NAME, comparison)
    return comparison


async def _read(options: LoadOptions) -> Dataset:
    read = partial(read_dataset, options.data, language=options.language, streams=options.streams)
    return await anyio.to_thread.run_sync(read)


async def _one(
    options: LoadOptions,
    dataset: Dataset,
    show: Callable[[Progress], None] | None,
    watchers: Iterable[Watcher],
) -> LatencyReport:
    plan = await anyio.to_thread.run_sync(plan_load, options, dataset)
    return await execute_load(plan, show, watchers)


def _write(path: Path, result: Found | Comparison) -> None:
    write_whole(path, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
