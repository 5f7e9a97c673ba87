"""The tap: reads one topic between two places, filters, and gives the events that match. Read only."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from simulator.errors import ConfigError
from simulator.eventtime import parse_event_time
from simulator.log.protocol import Log, StoredRecord, TopicPartition

_CONDITION = re.compile(r"([A-Za-z_][\w.]*)\s*(!=|<=|>=|=|<|>|~)(.*)", re.DOTALL)


class Tapped(msgspec.Struct):
    """One record that matched. `event` is the decoded JSON, or None where the value is no JSON object."""

    record: StoredRecord
    event: dict[str, Any] | None


class TapCount(msgspec.Struct):
    """What the tap saw, to say why nothing was printed."""

    read: int = 0
    matched: int = 0


def parse_place(text: str) -> tuple[str, int]:
    """`("offset", n)` or `("time", event time in us)`. Raises ConfigError for anything else."""
    return ("offset", int(text)) if text.isdigit() else ("time", parse_event_time(text))


def parse_condition(text: str) -> Callable[[dict[str, Any]], bool]:
    """A test on one field: `stream=A1_JAKE`, `seq>=100`, `text~coffee` (regular expression), `error!=null`.
    Dots reach into objects (`scores.overlap>0.5`). A field that an event lacks is null. Raises ConfigError."""
    match = _CONDITION.fullmatch(text.strip())
    if not match:
        raise ConfigError(f"{text!r} is no filter: write FIELD=VALUE, or one of != < <= > >= ~ for =")
    field, operator, wanted = match.groups()
    path = field.split(".")
    if operator == "~":
        pattern = compile_pattern(wanted)
        return lambda event: bool(pattern.search(_as_text(_dig(event, path))))
    if operator in ("=", "!="):
        return lambda event: (_as_text(_dig(event, path)) == wanted) == (operator == "=")
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
        value = _dig(event, path)
        return isinstance(value, int | float) and not isinstance(value, bool) and compare[operator](value)

    return holds


def compile_pattern(text: str) -> re.Pattern[str]:
    """A regular expression; ConfigError where it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{text!r} is no regular expression: {error}") from error


def _dig(event: dict[str, Any], path: Sequence[str]) -> object:
    value: object = event
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def tap(
    log: Log,
    topic: str,
    count: TapCount,
    *,
    start: tuple[str, int] | None = None,
    end: tuple[str, int] | None = None,
    last: int | None = None,
    limit: int | None = None,
    follow: bool = False,
    grep: re.Pattern[str] | None = None,
    conditions: Sequence[Callable[[dict[str, Any]], bool]] = (),
) -> AsyncIterator[Tapped]:
    """Records of `topic` that match, in log order within each partition.

    Args:
        log: the log to read.
        topic: the full topic name.
        count: filled with how many records were read and how many matched.
        start: `("offset", n)` or `("time", us)`: the first place to read, in each partition.
        end: likewise the first place not to read.
        last: begin this many records before the end of each partition (instead of `start`).
        limit: stop after this many matches.
        follow: at the end of the topic wait for more instead of stopping.
        grep: a pattern that the value's text must contain.
        conditions: tests that all must hold; undecodable records match none.
    """
    ends = await log.end_offsets([topic])
    if last is not None:
        begin = {tp: max(0, end_offset - last) for tp, end_offset in ends.items()}
    else:
        begin = {tp: await _offset(log, tp, start, 0, end_offset) for tp, end_offset in ends.items()}
    stops: dict[TopicPartition, float] = dict.fromkeys(ends, math.inf)
    if not follow:
        stops = {tp: await _offset(log, tp, end, end_offset, end_offset) for tp, end_offset in ends.items()}
    left = {tp for tp in ends if begin[tp] < stops[tp]}
    if not left:
        return
    async with log.subscribe([topic], start=begin) as subscription:
        while left:
            for record in await subscription.poll(max_records=1000, timeout_s=1.0):
                tp = TopicPartition(record.topic, record.partition)
                if record.offset >= stops[tp]:
                    continue
                if follow and end is not None and _at_or_after(record, end):
                    stops[tp] = record.offset
                    continue
                count.read += 1
                tapped = Tapped(record=record, event=_object(record.value))
                if not _matches(tapped, grep, conditions):
                    continue
                count.matched += 1
                yield tapped
                if limit is not None and count.matched >= limit:
                    return
            left = {tp for tp in left if await subscription.position(tp) < stops[tp]}


def _at_or_after(record: StoredRecord, place: tuple[str, int]) -> bool:
    unit, value = place
    return record.offset >= value if unit == "offset" else record.timestamp_ms >= value // 1000


async def _offset(log: Log, tp: TopicPartition, place: tuple[str, int] | None, default: int, end: int) -> int:
    if place is None:
        return default
    unit, value = place
    if unit == "offset":
        return min(value, end)
    found = await log.offset_for_time(tp, value // 1000)
    return end if found is None else found


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
