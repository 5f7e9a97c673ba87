"""`egostream replay`: only the stream, at a pace, without memory systems."""

from __future__ import annotations

import hashlib
import math
from functools import partial
from pathlib import Path
from typing import Literal

import click
import msgspec

from producers.datasets import read_dataset
from producers.replayer import ReplayOptions, ReplayProgress, ReplayStats, replay as replay_lifelogs
from simulator.cli import common
from simulator.cli.progress import Update, files_progress, progress_bar
from simulator.cli.run import RATE
from simulator.clock import Clock
from simulator.errors import ConfigError
from simulator.events import RunStartedEvent
from simulator.eventtime import format_event_time, parse_event_time
from simulator.log import open_log
from simulator.runfolder import log_path, prepare_folder
from simulator.topics import Recorder, Topics


@click.command(
    epilog="Example: egostream replay --data EgoLifeCap/Sync --rate 60 --start 'DAY1 11:00' --out runs/live, and in "
    "another terminal: egostream tap runs/live observations --follow"
)
@click.option("--data", required=True, help="A dataset, as `egostream inspect` takes it.")
@click.option("--out", type=common.FOLDER, required=True, help="Folder for the log.")
@click.option("--overwrite", is_flag=True, help="Replace a run that is already in the folder.")
@click.option("--rate", type=RATE, default=1.0, show_default=True, help="Simulated seconds per real second, or inf.")
@click.option("--start", help="First event time ('DAY1 11:00'); whole segments only.")
@click.option("--end", help="Event time before which to stop.")
@click.option("--loop", type=click.IntRange(min=1), default=1, show_default=True, help="Repeat N times.")
@click.option("--stream", "streams", multiple=True, help="Only these streams. May be given several times.")
@click.option("--language", type=click.Choice(["en", "zh", "both"]), default="en", show_default=True)
@common.command_options
def replay(
    data: str,
    out: Path,
    overwrite: bool,
    rate: float,
    start: str | None,
    end: str | None,
    loop: int,
    streams: tuple[str, ...],
    language: Literal["en", "zh", "both"],
    settings: common.Settings,
) -> None:
    """Publish a dataset's observations by the clock, RATE times as fast as life.

    Whoever follows the log (a tap, an agent of your own) sees them as they become due. Lateness is measured from the
    moment an observation was due, not from when it was sent.
    """
    start_us, end_us = (None if text is None else parse_event_time(text) for text in (start, end))
    if start_us is not None and end_us is not None and start_us >= end_us:
        raise ConfigError(f"--start {start!r} is not before --end {end!r}")
    with files_progress("reading", settings.quiet) as files:
        dataset = read_dataset(data, language=language, streams=streams or None, progress=files)
    lifelogs = list(dataset.lifelogs.values())
    identity = {"dataset": dataset.digest, "start": str(start_us), "end": str(end_us), "loop": str(loop)}
    digest = hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()
    started = RunStartedEvent(
        id="run/started",
        run=f"replay-{digest[:12]}",
        event_time_us=min((log.segments[0].start_time_us for log in lifelogs if log.segments), default=0),
        identity=identity,
        streams=tuple(dataset.lifelogs),
        segments={log.stream: len(log.segments) for log in lifelogs},
        systems=(),
        privileged=(),
        anchors=0,
        partitions=1,
        isolation="branch",
    )

    async def publish() -> ReplayStats:
        prepare_folder(out, overwrite=overwrite)
        async with open_log(str(log_path(out))) as log:
            await log.create_topics(Topics.of(started.run).partitions(started.partitions))
            recorder = Recorder.for_run(started)
            await log.append([recorder.record(started)])
            options = ReplayOptions(start_us=start_us, end_us=end_us, loop=loop)
            clock = Clock(started.event_time_us, rate)
            return await replay_lifelogs(log, recorder, lifelogs, clock, options, progress=partial(_show, update))

    with progress_bar("replaying", settings.quiet) as update:
        stats = common.run_async(publish)
    if settings.json:
        common.print_json({**msgspec.to_builtins(stats), "achieved_rate": _finite(stats.achieved_rate)})
        return
    common.out.print(
        f"{stats.observations:,} observations in {stats.segments:,} segments: {stats.simulated_s:,.0f} s of life in "
        f"{stats.wall_s:.2f} s ({stats.achieved_rate:,.1f} × real time)"
    )
    if stats.lateness is not None:
        late = stats.lateness
        common.out.print(
            f"late by (n={late.n:,}): p50 {_ms(late.p50_us)}, p90 {_ms(late.p90_us)}, p99 {_ms(late.p99_us)}, "
            f"max {_ms(late.max_us)}"
        )
    common.out.print(f"Next: egostream tap {out} observations -n 5")


def _ms(value_us: float) -> str:
    return f"{value_us / 1000:.1f} ms"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _show(update: Update, progress: ReplayProgress) -> None:
    late = "" if progress.lateness_us is None else f" · {_ms(progress.lateness_us)} late"
    update(progress.observations, progress.total, f"{format_event_time(progress.event_time_us)}{late}")
