"""`egostream tap`: look at a topic."""

from __future__ import annotations

import base64
from contextlib import aclosing
from typing import Any

import click
import msgspec
from rich.text import Text

from consumers.tap import TapCount, Tapped, compile_pattern, parse_condition, parse_place
from consumers.tap import tap as tap_topic
from simulator.cli import common
from simulator.cli.given import given_run, run_argument
from simulator.errors import ConfigError
from simulator.eventtime import format_event_time
from simulator.topics import Topics

_IN_HEADING = ("kind", "id", "event_time_us")
_HIDDEN = ("run", "v", "stream")
_EMPTY: tuple[object, ...] = (None, "", [], {})
_TEXT_CHARACTERS = 500
_ITEM_CHARACTERS = 160
_ITEMS = 5


@click.command(
    epilog="""\b
Examples:
  egostream tap demo-run responses -n 3
  egostream tap demo-run observations --from 'DAY1 09:05' --to 'DAY1 09:06'
  egostream tap demo-run verdicts --where metric=fur --where outcome=fail
  egostream tap demo-run verdicts --where 'scores.evidence<0.4' --json
  egostream tap demo-run observations --grep '(?i)coffee' --last 5
  egostream tap runs/live observations --follow
""",
)
@run_argument
@click.argument("topic", type=click.Choice(Topics._fields), metavar="TOPIC")
@click.option("--from", "start", metavar="PLACE", help="First place to read: an offset, or an event time.")
@click.option("--to", "end", metavar="PLACE", help="First place not to read: an offset, or an event time.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N that match.")
@click.option("-n", "limit", type=click.IntRange(min=1), metavar="N", help="Stop after N that match.")
@click.option("--follow", "-f", is_flag=True, help="At the end wait for more, until Ctrl-C.")
@click.option("--grep", metavar="REGEX", help="Only events whose JSON matches this regular expression.")
@click.option(
    "--where",
    "filters",
    multiple=True,
    metavar="FILTER",
    help="Only events with FIELD=VALUE, or != < <= > >= or ~ (matches a regular expression) for =. Dots "
    "reach into objects. May be given several times: all must hold.",
)
@click.option("--meta", is_flag=True, help="Also partition, offset, key, stamp and headers of each record.")
@common.command_options
def tap(
    run: str,
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
    """Print the events of one TOPIC of a RUN, finished, stopped or running. Reading changes nothing.

    RUN is its folder or, from a machine that has only the log, kafka://HOST:PORT/RUN-ID (options as in --log;
    without /RUN-ID where the log holds one run).

    \b
    TOPIC is one of
      observations  what was seen and said, and where segments end
      deltas        what memory systems stored
      tasks         what they were asked
      responses     what they answered
      feedback      what they were told
      commits       what they were to remember of it
      verdicts      what the judges decided
      anchors       the evidence, tasks and gold, for judges only
      control       run start and end, readiness, trajectories closed
      dead          what could not be decoded

    A PLACE is an offset (a whole number, in each partition), or an event time: DAY1, 'DAY1 09:05',
    'DAY1 09:05:30' or 2025-08-16T09:05:30.

    Order is that of the log within each partition. A run of several streams has several partitions, and there
    is no order between those.

    Long texts and lists are cut short; with --json one whole event a line, as it is in the log. How far each role is
    behind: `egostream lag RUN`.
    """
    places = [None if place is None else parse_place(place) for place in (start, end)]
    conditions = [parse_condition(text) for text in filters]
    pattern = None if grep is None else compile_pattern(grep)
    if last is not None and limit is not None and limit > last:
        raise ConfigError(f"-n {limit} is more than --last {last}")
    count = TapCount()

    def waits() -> None:
        if not settings.quiet:
            common.note(f"egostream: that is all of {topic} so far; waiting for more (Ctrl-C stops)")

    async def read() -> None:
        async with given_run(run) as (log, started):
            matching = tap_topic(
                log,
                f"{started.run}.{topic}",
                count,
                start=places[0],
                end=places[1],
                last=last,
                limit=limit,
                follow=follow,
                in_time_order=topic == "observations",
                grep=pattern,
                conditions=conditions,
                at_end=waits,
            )
            async with aclosing(matching):
                async for tapped in matching:
                    if settings.json:
                        common.say(_json_line(tapped, meta), alone=True)
                    else:
                        common.show(_pretty(tapped, meta), wrap=common.out.is_terminal, alone=True)

    try:
        common.run_async(read)
    except KeyboardInterrupt as error:
        why = "" if count.matched else f"; nothing to print from {topic}: {_reason(count)}"
        raise common.StoppedError(f"stopped{why}") from error
    if not count.matched and not settings.quiet:
        common.note(f"egostream: nothing to print from {topic}: {_reason(count)}")


def _reason(count: TapCount) -> str:
    if not count.read:
        return "there is no record there"
    if count.read == count.outside:
        return f"all {count.read:,} records read lie outside --from and --to"
    return f"none of the {count.read - count.outside:,} records read matches"


def _json_line(tapped: Tapped, meta: bool) -> bytes:
    record = tapped.record
    if tapped.event is not None and not meta and b"\n" not in record.value:
        return record.value
    event: Any = tapped.event if tapped.event is not None else {"undecodable": record.value}
    return msgspec.json.encode({"event": event, "record": _place(tapped)} if meta else event)


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
        text.append(f"{record.value!r}")
    else:
        text.append(f"{event.get('kind', '?')} ", style="bold cyan")
        text.append(_clean(str(event.get("id", ""))), style="green")
        if event.get("kind") == "observation" and not meta:  # there are many, and they are short
            return text.append(f" {event.get('source')} ", style="dim").append(_item(event.get("text", "")))
        for name, value in event.items():
            if name in _IN_HEADING or name in _HIDDEN or value in _EMPTY:
                continue
            text.append(f"\n    {name}: ", style="dim")
            text.append(_shown(event, name, value))
    if meta:
        for name, value in _place(tapped).items():
            text.append(f"\n    [{name}] ", style="dim")
            text.append(_clean(str(value)))
    return text


def _shown(event: dict[str, Any], name: str, value: Any) -> str:
    if event.get("kind") == "dead_letter" and name in ("value", "key"):
        return repr(base64.b64decode(value))
    if isinstance(value, list):
        items = [_cut(_item(item), _ITEM_CHARACTERS) for item in value[:_ITEMS]]
        if len(value) > _ITEMS:
            items.append(f"… {len(value) - _ITEMS:,} more")
        if all(isinstance(item, str | int | float) for item in value):
            return ", ".join(items)
        return f"{len(value):,}" + "".join(f"\n        {item}" for item in items)
    if isinstance(value, dict):
        return _cut(_item(value), _TEXT_CHARACTERS)
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return _cut(_clean(shown), _TEXT_CHARACTERS).replace("\n", "\n        ")


def _item(value: Any) -> str:
    """A part of an event on one line; an object as `name value · name value`."""
    if isinstance(value, dict):
        return " · ".join(
            format_event_time(part) if name == "event_time_us" else f"{name} {_item(part)}"
            for name, part in value.items()
            if part not in _EMPTY
        )
    if isinstance(value, float):
        return f"{value:.3f}"
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(_clean(shown).split())


def _cut(text: str, characters: int) -> str:
    return (
        text
        if len(text) <= characters
        else f"{text[:characters]}… ({len(text) - characters:,} characters more)"
    )


def _clean(text: str) -> str:
    """Without what would move the cursor or change colours: texts come from other people's files."""
    return "".join(c if c.isprintable() or c == "\n" else " " if c == "\t" else "�" for c in text)
