"""`egostream tap`: look at a topic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from consumers.tap import TapCount, Tapped, compile_pattern, parse_condition, parse_place
from consumers.tap import tap as tap_topic
from simulator.cli import common
from simulator.errors import ConfigError
from simulator.eventtime import format_event_time
from simulator.runfolder import open_run
from simulator.topics import Topics

_HIDDEN = ("kind", "id", "run", "v", "event_time_us", "stream", "causes")


@click.command(
    epilog="Examples: egostream tap runs/first observations --from 'DAY1 11:05' --to 'DAY1 11:06' · "
    "egostream tap runs/first verdicts --where metric=fur --where outcome=fail · "
    "egostream tap runs/first deltas --follow"
)
@click.argument("folder", type=common.FOLDER, metavar="RUN")
@click.argument("topic", type=click.Choice(Topics._fields), metavar="TOPIC")
@click.option("--from", "start", help="First offset, or event time ('DAY1 11:05'), to read.")
@click.option("--to", "end", help="First offset, or event time, not to read.")
@click.option("--last", type=click.IntRange(min=1), help="Begin N records before the end.")
@click.option("-n", "limit", type=click.IntRange(min=1), help="Stop after N matches.")
@click.option("--follow", "-f", is_flag=True, help="At the end wait for more.")
@click.option("--grep", help="Regular expression that the event's JSON must contain.")
@click.option(
    "--where",
    "filters",
    multiple=True,
    help="FIELD=VALUE, also != < <= > >= and ~ (regular expression). Dots reach into objects. All must hold.",
)
@click.option("--meta", is_flag=True, help="Show topic, partition, offset, key, stamp and headers too.")
@common.command_options
def tap(
    folder: Path,
    topic: str,
    start: str | None,
    end: str | None,
    last: int | None,
    limit: int | None,
    follow: bool,
    grep: str | None,
    filters: tuple[str, ...],
    meta: bool,
    settings: common.Settings,
) -> None:
    """Print the events of one TOPIC of a RUN: observations, deltas, tasks, responses, feedback, commits, verdicts,
    anchors, control or dead.

    With --json: one event a line, as it is in the log. Reading changes nothing, also on a running run.
    """
    if start is not None and last is not None:
        raise ConfigError("--from and --last both say where to begin: give one")
    places = [None if place is None else parse_place(place) for place in (start, end)]
    conditions = [parse_condition(text) for text in filters]
    pattern = None if grep is None else compile_pattern(grep)
    count = TapCount()

    async def read() -> None:
        async with open_run(folder) as (log, started):
            found = tap_topic(
                log,
                f"{started.run}.{topic}",
                count,
                start=places[0],
                end=places[1],
                last=last,
                limit=limit,
                follow=follow,
                grep=pattern,
                conditions=conditions,
            )
            async for tapped in found:
                if settings.json:
                    click.echo(_json_line(tapped, meta))
                else:
                    common.out.print(_pretty(tapped, meta))
                if follow:
                    sys.stdout.flush()

    common.run_async(read)
    if not count.matched:
        reason = f"none of the {count.read} records read matches" if count.read else "there is no record there"
        click.echo(f"egostream: nothing to print from {topic}: {reason}", err=True)


def _json_line(tapped: Tapped, meta: bool) -> bytes:
    record = tapped.record
    if tapped.event is not None and not meta:
        return record.value
    event: Any = tapped.event if tapped.event is not None else {"undecodable": record.value}
    if meta:
        event = {"event": event, "record": _place(tapped)}
    return msgspec.json.encode(event)


def _place(tapped: Tapped) -> dict[str, Any]:
    record = tapped.record
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key.decode("utf-8", errors="replace"),
        "timestamp_ms": record.timestamp_ms,
        "headers": {name: value.decode("utf-8", errors="replace") for name, value in record.headers},
    }


def _pretty(tapped: Tapped, meta: bool) -> Text:
    record, event = tapped.record, tapped.event
    text = Text()
    text.append(f"{format_event_time(record.timestamp_ms * 1000)} ", style="dim")
    if event is None:
        text.append("undecodable ", style="red")
        text.append(repr(record.value))
    else:
        text.append(f"{event.get('kind', '?')} ", style="bold cyan")
        text.append(str(event.get("id", "")), style="green")
        for name, value in event.items():
            if name in _HIDDEN:
                continue
            shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            text.append(f"\n    {name}: ", style="dim")
            text.append(shown)
        if event.get("causes"):
            text.append("\n    causes: ", style="dim")
            text.append(", ".join(map(str, event["causes"])))
    if meta:
        for name, value in _place(tapped).items():
            text.append(f"\n    [{name}] ", style="dim")
            text.append(str(value))
    return text
