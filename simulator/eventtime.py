"""Event time as people write it (`DAY1 11:05:00`, or an ISO date and time, UTC), and the segment in which it lies."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from simulator.errors import ConfigError

DAY_US = 86_400_000_000
DAY1_US = 1_755_302_400_000_000
"""2025-08-16 00:00 UTC: EgoLife's days have no date; LifeDialBench gives DAY1 this one, so all readers do."""

_DAY = re.compile(r"DAY(\d+)(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?", re.IGNORECASE)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _US


def format_event_time(event_time_us: int) -> str:
    """`DAY1 11:05:00` within a year of DAY1, else ISO. Whole seconds, rounded down."""
    days, rest_us = divmod(event_time_us - DAY1_US, DAY_US)
    seconds = rest_us // 1_000_000
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if 0 <= days < 366:
        return f"DAY{days + 1} {clock}"
    try:
        date = (_EPOCH + timedelta(microseconds=event_time_us)).date()
    except OverflowError:  # no calendar goes there
        return f"{event_time_us} us"
    return f"{date.isoformat()} {clock}"


def parse_event_time(text: str) -> int:
    """Microseconds since 1970 of `DAY2`, `DAY2 11:05`, `DAY2 11:05:30` (up to `DAY2 24:00:00`) or an ISO date
    and time. Raises ConfigError for anything else."""
    match = _DAY.fullmatch(text.strip())
    if match:
        day, hour, minute, second = (int(part or 0) for part in match.groups())
        seconds = (hour * 60 + minute) * 60 + second
        event_time_us = DAY1_US + (day - 1) * DAY_US + seconds * 1_000_000
        if day >= 1 and minute < 60 and second < 60 and seconds <= 86_400 and event_time_us <= _LAST_US:
            return event_time_us
    else:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            pass
        else:
            return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _US
    raise ConfigError(f"{text!r} is no event time: write DAY1, 'DAY1 11:05:00' or 2025-08-16T11:05:00")


def segment_of(event_time_us: int, segment_ends_us: Sequence[int]) -> int:
    """The segment of a stream in which a moment lies; of one after the last end, as many as there are. What happens
    at the end of one is of the next, since a segment begins where the one before it ends."""
    return bisect_right(segment_ends_us, event_time_us)
