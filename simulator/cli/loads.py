"""What `egostream load` does with several loads: `--sweep` and `--compare`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from simulator.cli import common
from simulator.cli.extras import REPORT_MODULES, need_modules
from simulator.cli.load_tables import show_comparison, show_found
from simulator.cli.metrics import Tell
from simulator.cli.progress import Update
from simulator.eventtime import format_event_time
from simulator.report.words import remembered_text, time_text
from simulator.runfolder import COMPARE_NAME, REPORT_NAME, SWEEP_NAME

if TYPE_CHECKING:
    from consumers.latency import LatencyReport
    from consumers.monitor import Progress
    from simulator.cli.live import Shown
    from simulator.load.comparison import Side
    from simulator.load.single import LoadOptions
    from simulator.load.sweep import Axis, Measured

T = TypeVar("T")


def check_extra() -> None:
    """Raise ConfigError for what is missing of `egostream[load]`, before a load and not when it has ended. Nothing is
    imported: a load's own process should not be larger for the pictures that are made afterwards."""
    need_modules("a load", ("hdrh", "psutil", *REPORT_MODULES), "load")


async def with_report(measure: Callable[[], Awaitable[T]], out: Path) -> T:
    """Measure, and write the page of what then is in the folder."""
    from simulator.report.page import write_report

    result = await measure()
    await anyio.to_thread.run_sync(write_report, out)
    return result


def sweep(
    options: LoadOptions,
    axis: Axis,
    objective: str,
    tolerance: float,
    again: int,
    tell: Tell | None,
    settings: common.Settings,
) -> int:
    """Exit code 4 says that there is no answer within reach, or that an end said now this and now that."""
    from simulator.load.several import execute_sweep
    from simulator.load.sweep import Objective

    aim = Objective.parse(objective)

    def say(measured: Measured) -> None:
        if not settings.quiet:
            common.note(f"{measured.value:,.6g}: {'kept' if measured.kept else 'broken'}")

    with _several(options, "sweeping", tell, settings) as (show, watchers):
        measure = partial(
            execute_sweep,
            options,
            axis,
            aim,
            tolerance=tolerance,
            again=again,
            tell=say,
            show=show,
            watchers=watchers,
        )
        found = common.run_async(partial(with_report, measure, options.out))
    if settings.json:
        common.print_json(found)
    else:
        show_found(found)
        common.say(f"\n{SWEEP_NAME}, {REPORT_NAME} and each load's folder are in {options.out}.")
    return 0 if found.sure else common.EXIT_UNJUDGED


def compare(
    options: LoadOptions,
    systems: tuple[str, str],
    rounds: int,
    tell: Tell | None,
    settings: common.Settings,
) -> int:
    """Exit code 4 says that a figure could not be told: too few rounds, or segments that were not remembered."""
    from simulator.load.several import execute_comparison

    def say(number: int, side: Side, report: LatencyReport) -> None:
        if not settings.quiet:
            numbers = report.stages["remembered"]
            p99 = time_text(None if numbers is None else numbers.p99_us)
            common.note(f"round {number} of {rounds}, {side}: p99 {p99}; {remembered_text(report)}")

    with _several(options, "comparing", tell, settings) as (show, watchers):
        measure = partial(
            execute_comparison, options, systems, rounds, tell=say, show=show, watchers=watchers
        )
        comparison = common.run_async(partial(with_report, measure, options.out))
    if settings.json:
        common.print_json(comparison)
    else:
        show_comparison(comparison)
        common.say(f"\n{COMPARE_NAME}, {REPORT_NAME} and each load's folder are in {options.out}.")
    return 0 if comparison.told else common.EXIT_UNJUDGED


@contextmanager
def _several(
    options: LoadOptions, what: str, tell: Tell | None, settings: common.Settings
) -> Iterator[Shown]:
    from simulator.cli.live import load_shown

    duration_s, drain_s = options.load.duration_s, options.drain_s
    try:
        with load_shown(what, duration_s, drain_s, settings.quiet, show_progress, tell) as shown:
            yield shown
    except KeyboardInterrupt as error:
        said = f"stopped; the loads that were measured are in {options.out}"
        if any((options.out / name).is_file() for name in (SWEEP_NAME, COMPARE_NAME)):
            said += f": `{common.command('report', options.out)}` shows what they tell"
        raise common.StoppedError(said) from error


def show_progress(update: Update, progress: Progress) -> None:
    """How far a load has come."""
    remembered = f"{progress.segments:,}/{progress.segments_total:,} segments remembered"
    if progress.segments:
        remembered = f"{format_event_time(progress.event_time_us)}, {remembered}"
    update(progress.segments, progress.segments_total, remembered)
