"""The tap: reads one topic between two places, filters, and gives the events that match. Read only."""

from __future__ import annotations

import math
import re
import typing
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from simulator.errors import ConfigError
from simulator.events import AnyEvent
from simulator.eventtime import parse_event_time
from simulator.log.protocol import Log, StoredRecord, TopicPartition

_CONDITION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(!=|<=|>=|=|<|>|~)(.*)", re.DOTALL)
_MISSING: Final = object()


class Tapped(msgspec.Struct):
    """One record that matched. `event` is the decoded JSON, or None where the value is no JSON object."""

    record: StoredRecord
    event: dict[str, Any] | None


class TapCount(msgspec.Struct):
    """What the tap saw, to say why nothing was printed. `outside`: read, but not between `start` and
    `end`."""

    read: int = 0
    outside: int = 0
    matched: int = 0


class Place(msgspec.Struct, frozen=True):
    """A place in a topic: an offset in each partition, or an event time."""

    offset: int | None = None
    time_us: int | None = None


def parse_place(text: str) -> Place:
    """A whole number is an offset, anything else an event time. Raises ConfigError for neither."""
    if text.isascii() and text.isdecimal():
        return Place(offset=int(text))
    return Place(time_us=parse_event_time(text))


def parse_condition(text: str) -> Callable[[dict[str, Any]], bool]:
    """A test on one field: `stream=A1_JAKE`, `seq>=100`, `text~coffee` (regular expression), `error!=null`.
    Dots reach into objects (`scores.overlap>0.5`). A field that an event leaves out has its default, or is
    null. Raises ConfigError."""
    match = _CONDITION.fullmatch(text)
    if not match:
        raise ConfigError(f"{text!r} is no filter: write FIELD=VALUE, or one of != < <= > >= ~ for =")
    path = match[1].split(".")
    operator, wanted = match[2], match[3].strip()
    if operator == "~":
        pattern = compile_pattern(wanted)
        return lambda event: bool(pattern.search(_as_text(_field(event, path))))
    if operator in ("=", "!="):
        return lambda event: (_as_text(_field(event, path)) == wanted) == (operator == "=")
    try:
        bound = float(wanted)
    except ValueError:
        raise ConfigError(f"{text!r}: {operator} compares with a number") from None
    compare: dict[str, Callable[[float], bool]] = {
        "<": lambda value: value < bound,
        "<=": lambda value: value <= bound,
        ">": lambda value: value > bound,
        ">=": lambda value: value >= bound,
    }

    def holds(event: dict[str, Any]) -> bool:
        value = _field(event, path)
        return isinstance(value, int | float) and not isinstance(value, bool) and compare[operator](value)

    return holds


def compile_pattern(text: str) -> re.Pattern[str]:
    """A regular expression; ConfigError where it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is no regular expression: {error}") from error


def _defaults() -> Mapping[str, Mapping[str, Any]]:
    """Kind → the fields that are left out where they have their default, with it."""
    return {
        str(kind.__struct_config__.tag): {
            field.name: msgspec.to_builtins(field.default)
            for field in msgspec.structs.fields(kind)
            if field.default is not msgspec.NODEFAULT
        }
        for kind in typing.get_args(AnyEvent)
    }


_DEFAULTS: Final = _defaults()


def _field(event: dict[str, Any], path: Sequence[str]) -> object:
    value: object = event.get(path[0], _MISSING)
    if value is _MISSING:
        value = _DEFAULTS.get(str(event.get("kind")), {}).get(path[0])
    for name in path[1:]:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def tap(
    log: Log,
    topic: str,
    count: TapCount,
    *,
    start: Place | None = None,
    end: Place | None = None,
    last: int | None = None,
    limit: int | None = None,
    follow: bool = False,
    in_time_order: bool = False,
    grep: re.Pattern[str] | None = None,
    conditions: Sequence[Callable[[dict[str, Any]], bool]] = (),
    at_end: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Tapped, None]:
    """Records of `topic` that match, in log order within each partition. Where it isn't read to its end,
    close it (`contextlib.aclosing`).

    Args:
        log: the log to read.
        topic: the full topic name.
        count: filled with how many records were read and how many matched.
        start: the first place to read.
        end: the first place not to read.
        last: of what the topic holds now, only the last so many that match.
        limit: stop after this many matches.
        follow: at the end of the topic wait for more instead of stopping.
        in_time_order: event time never goes back within a partition, so that reading can stop at an `end` in
            time. Otherwise all is read, and records are chosen by their own time.
        grep: a pattern that the value's text must contain.
        conditions: tests that all must hold; undecodable records match none.
        at_end: called once when all that the topic held was read and `follow` waits for more.
    """
    ends = await log.end_offsets([topic])
    begin = {tp: await _first_offset(log, tp, start, last_offset) for tp, last_offset in ends.items()}
    if last is not None and start is None and end is None and grep is None and not conditions:
        begin = {tp: max(0, last_offset - last) for tp, last_offset in ends.items()}
    stops: dict[TopicPartition, float] = dict.fromkeys(ends, math.inf) if follow else {**ends}
    if end is not None and end.offset is not None:
        stops = {tp: min(stop, end.offset) for tp, stop in stops.items()}
    held: deque[Tapped] | None = None if last is None else deque(maxlen=last)
    waiting = False
    left = {tp for tp in ends if begin[tp] < stops[tp]}
    async with log.subscribe([topic], start=begin) as subscription:
        positions = dict(begin)
        while left:
            ready: list[Tapped] = []
            for record in await subscription.poll(max_records=1000, timeout_s=1.0):
                tp = TopicPartition(record.topic, record.partition)
                if record.offset >= stops[tp]:
                    continue
                count.read += 1
                if not _within(record, start, end):
                    count.outside += 1
                    if in_time_order and end is not None and not _within(record, None, end):
                        stops[tp] = record.offset
                    continue
                tapped = Tapped(record=record, event=_object(record.value))
                if _matches(tapped, grep, conditions):
                    ready.append(tapped)
            positions = {tp: await subscription.position(tp) for tp in ends}
            left = {tp for tp in left if positions[tp] < stops[tp]}
            caught_up = all(positions[tp] >= min(ends[tp], stops[tp]) for tp in ends)
            if held is not None:
                held.extend(ready)
                ready = []
                if caught_up:
                    ready, held = list(held), None
            for tapped in ready:
                count.matched += 1
                yield tapped
                if limit is not None and count.matched >= limit:
                    return
            if caught_up and left and not waiting:
                waiting = True
                at_end()


async def _first_offset(log: Log, tp: TopicPartition, start: Place | None, end: int) -> int:
    """Beyond the end it is waited for."""
    if start is None or start.time_us is None:
        return 0 if start is None or start.offset is None else start.offset
    found = await log.offset_for_time(tp, -(-start.time_us // 1000))
    return end if found is None else found


def _within(record: StoredRecord, start: Place | None, end: Place | None) -> bool:
    """Whether a record's own time lies between the two, where they are times."""
    if start is not None and start.time_us is not None and record.timestamp_ms * 1000 < start.time_us:
        return False
    return end is None or end.time_us is None or record.timestamp_ms * 1000 < end.time_us


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return decoded if isinstance(decoded, dict) else None


def _matches(
    tapped: Tapped, grep: re.Pattern[str] | None, conditions: Sequence[Callable[[dict[str, Any]], bool]]
) -> bool:
    if grep is not None and not grep.search(tapped.record.value.decode("utf-8", errors="replace")):
        return False
    return not conditions or (tapped.event is not None and all(holds(tapped.event) for holds in conditions))
