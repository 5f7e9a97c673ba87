"""`egostream replay`: only the stream, at a pace, without memory systems."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import click
import msgspec

from consumers.follow import watched
from producers.control import obey_control
from producers.datasets import read_dataset
from producers.lanes import ReplayOptions
from producers.lifelog import Lifelog
from producers.replayer import ReplayProgress, ReplayStats
from producers.replayer import replay as replay_lifelogs
from producers.timeline import Part
from simulator.cli import common
from simulator.cli.metrics import Tell, metrics_options, watching
from simulator.cli.progress import Update, files_progress, progress_bar
from simulator.cli.run import parse_rate
from simulator.clock import Clock
from simulator.errors import ConfigError
from simulator.events import RunStartedEvent, identity_digest
from simulator.eventtime import format_event_time, parse_event_time
from simulator.intake import read_to_end
from simulator.log import open_log
from simulator.run import begin
from simulator.runfolder import enter_folder, log_path, note_run
from simulator.timebase import monotonic_us, wall_us
from simulator.topics import Recorder


@click.command(
    epilog="""\b
Example, in two terminals:
  egostream replay --data synthetic:wearers=1 --rate 60 --out runs/live
  egostream tap runs/live observations --follow
""",
)
@click.option("--data", required=True, metavar="PATH", help="A dataset, as `egostream inspect` takes it.")
@click.option("--out", type=common.FOLDER, required=True, metavar="RUN", help="Folder for the log.")
@common.log_option
@click.option("--overwrite", is_flag=True, help="Replace a run that is already in the folder.")
@click.option(
    "--rate",
    type=parse_rate,
    metavar="RATE",
    default=1.0,
    show_default=True,
    help="Simulated seconds per real second: 1 as in life, 60 a minute each second, inf as fast as it goes.",
)
@click.option("--start", metavar="TIME", help="First event time, such as 'DAY1 11:00'; whole segments only.")
@click.option("--end", metavar="TIME", help="Event time before which to stop; whole segments only.")
@click.option(
    "--loop",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Repeat it all N times, each time on the days after.",
)
@click.option(
    "--for",
    "for_s",
    type=common.Number(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after so much real time.",
)
@common.stream_option
@common.language_option
@common.command_options
@metrics_options
def replay(
    data: str,
    out: Path,
    log_url: str | None,
    overwrite: bool,
    rate: float,
    start: str | None,
    end: str | None,
    loop: int,
    for_s: float | None,
    streams: tuple[str, ...],
    language: Literal["en", "zh", "both"],
    tell: Tell | None,
    settings: common.Settings,
) -> None:
    """Publish a dataset's observations by the clock, RATE times as fast as life.

    Whoever follows the log (`egostream tap --follow`, an agent of your own) sees each as it becomes due;
    hours without an observation pass at that rate too. There are no memory systems and no judges: for
    those see `egostream run`.

    Lateness is measured from the moment an observation was due, not from when it was sent.
    """
    asked_us = monotonic_us()
    start_us, end_us = (None if text is None else parse_event_time(text) for text in (start, end))
    if start_us is not None and end_us is not None and start_us >= end_us:
        raise ConfigError(f"--start {start!r} is not before --end {end!r}")
    with files_progress("reading", settings.quiet) as files:
        dataset = read_dataset(data, language=language, streams=streams or None, progress=files)
    lifelogs = list(dataset.lifelogs.values())
    parts = {
        log.stream: [log.segments[i] for i in Part.of(log, start_us, end_us).segments] for log in lifelogs
    }
    spans = [span for part in parts.values() for span in part]
    if not spans:
        days = [f"{log.stream} from {_ends(log)}" for log in lifelogs if log.segments]
        raise ConfigError(f"no whole segment lies between --start and --end; there is {', '.join(days)}")
    first_us, last_us = min(span.start_time_us for span in spans), max(span.end_time_us for span in spans)
    identity = {"dataset": dataset.digest, "start": str(start_us), "end": str(end_us), "loop": str(loop)}
    started = RunStartedEvent(
        id="run/started",
        run=f"replay-{identity_digest(identity)[:12]}",
        event_time_us=first_us,
        identity=identity,
        streams=tuple(dataset.lifelogs),
        segments={stream: loop * len(part) for stream, part in parts.items()},
        systems=(),
        privileged=(),
        anchors=0,
        partitions=1,
        isolation="branch",
    )
    # at a finite rate time passes evenly, and observations don't; without one it is the other way round
    span_us = (first_us, last_us) if loop == 1 and math.isfinite(rate) else None

    async def publish() -> ReplayStats | int:
        """What it did, or, stopped by --for, how many observations are published."""
        where = enter_folder(out, log_url, started.run, overwrite=overwrite)
        async with open_log(where) as log:
            recorder = Recorder.for_run(started)
            if await begin(log, started, [started], out if log_url is None else None):
                async for record in read_to_end(log, [recorder.topics.control]):
                    if ("kind", b"replay_ended") in record.headers:
                        raise ConfigError(
                            f"{out} already holds all of this replay: pass --overwrite to do it again"
                        )
            note_run(out, log_url, started.run)
            options = ReplayOptions(start_us=start_us, end_us=end_us, loop=loop)
            clock = Clock(started.event_time_us, rate)
            show = partial(_show, update, span_us)
            stats = None
            async with watched(log, started, watching(tell)), anyio.create_task_group() as tasks:
                await tasks.start(obey_control, log, started, clock, wall_us(asked_us))
                with anyio.move_on_after(math.inf if for_s is None else for_s):
                    stats = await replay_lifelogs(log, recorder, lifelogs, clock, options, progress=show)
                tasks.cancel_scope.cancel()
            if stats is not None:
                return stats
            records = read_to_end(log, [recorder.topics.observations])
            return len([record async for record in records if ("kind", b"observation") in record.headers])

    try:
        with progress_bar("replaying", settings.quiet) as update:
            stats = common.run_async(publish)
    except KeyboardInterrupt as error:
        raise common.StoppedError(f"stopped; what was published is in {log_url or log_path(out)}") from error
    if settings.json:
        common.print_json(
            {"ended": False, "observations": stats}
            if isinstance(stats, int)
            else {"ended": True, **msgspec.to_builtins(stats), "achieved_rate": stats.achieved_rate}
        )
        return
    if isinstance(stats, int):
        common.say(f"stopped after {for_s:g} s as asked; {stats:,} observations were published")
    else:
        common.say(
            f"{stats.observations:,} observations in {stats.segments:,} segments: {stats.simulated_s:,.0f} s "
            f"of life in {stats.wall_s:.2f} s ({stats.achieved_rate:,.1f} × real time)"
        )
        if (late := stats.lateness) is not None:
            common.say(
                f"late by (n={late.n:,}): p50 {_ms(late.p50_us)}, p90 {_ms(late.p90_us)}, "
                f"p99 {_ms(late.p99_us)}, max {_ms(late.max_us)}"
            )
    common.say(f"The log is {log_url or log_path(out)}. Next:")
    common.say(f"    {common.command('tap', out, 'observations', '-n', 5)}")


def _ms(value_us: float) -> str:
    return f"{value_us / 1000:.1f} ms"


def _show(update: Update, span_us: tuple[int, int] | None, progress: ReplayProgress) -> None:
    note = f"{format_event_time(progress.event_time_us)}, {progress.observations:,}/{progress.total:,}"
    if progress.lateness_us is not None:
        note += f", {_ms(progress.lateness_us)} late"
    if span_us is None:
        update(progress.observations, progress.total, note)
    else:
        first_us, last_us = span_us
        update((progress.event_time_us - first_us) / 1e6, (last_us - first_us) / 1e6, note)


def _ends(lifelog: Lifelog) -> str:
    first, last = lifelog.segments[0].start_time_us, lifelog.segments[-1].end_time_us
    return f"{format_event_time(first)} to {format_event_time(last)}"
