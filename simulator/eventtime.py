"""Event time as people write it: `DAY1 11:05:00`, or an ISO date and time (UTC)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from simulator.errors import ConfigError

DAY_US = 86_400_000_000
DAY1_US = 1_755_302_400_000_000
"""2025-08-16 00:00 UTC: EgoLife's days have no date; LifeDialBench gives DAY1 this one, so all readers do."""

_DAY = re.compile(r"DAY(\d+)(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?", re.IGNORECASE)


def format_event_time(event_time_us: int) -> str:
    """`DAY1 11:05:00` within a year of DAY1, else ISO."""
    days, rest_us = divmod(event_time_us - DAY1_US, DAY_US)
    if 0 <= days < 366:
        seconds = rest_us // 1_000_000
        return f"DAY{days + 1} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return datetime.fromtimestamp(event_time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def parse_event_time(text: str) -> int:
    """Microseconds since 1970 of `DAY2`, `DAY2 11:05`, `DAY2 11:05:30` or an ISO date and time. Raises
    ConfigError for anything else."""
    match = _DAY.fullmatch(text.strip())
    if match:
        day, hour, minute, second = (int(part or 0) for part in match.groups())
        if day >= 1 and hour <= 24 and minute < 60 and second < 60:
            return DAY1_US + (day - 1) * DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000
    else:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            pass
        else:
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1e6)
    raise ConfigError(f"{text!r} is no event time: write DAY1, 'DAY1 11:05:00' or 2025-08-16T11:05:00")
