"""Event time as people write it, and the segment in which it lies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ConfigError
from simulator.eventtime import DAY1_US, DAY_US, format_event_time, parse_event_time, segment_of

HOUR_US = 3_600_000_000
SECOND_US = 1_000_000
YEAR_1_US = -62_135_596_800_000_000
YEAR_9999_US = 253_402_300_799_999_999


@given(st.integers(YEAR_1_US, YEAR_9999_US))
def test_what_is_written_reads_back_to_the_second(event_time_us: int) -> None:
    assert parse_event_time(format_event_time(event_time_us)) == event_time_us // SECOND_US * SECOND_US


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_event_time_can_be_written(event_time_us: int) -> None:
    assert format_event_time(event_time_us)


@pytest.mark.parametrize(
    ("text", "event_time_us"),
    [
        ("DAY1", DAY1_US),
        ("day2 11:05", DAY1_US + DAY_US + 11 * HOUR_US + 300 * SECOND_US),
        ("DAY2 11:05:30", DAY1_US + DAY_US + 11 * HOUR_US + 330 * SECOND_US),
        ("DAY2T9:05:30", DAY1_US + DAY_US + 9 * HOUR_US + 330 * SECOND_US),
        ("DAY1 24:00", DAY1_US + DAY_US),
        (" DAY400 ", DAY1_US + 399 * DAY_US),
        ("2025-08-16", DAY1_US),
        ("2025-08-16T11:05:00", DAY1_US + 11 * HOUR_US + 300 * SECOND_US),
        ("2025-08-16 11:05:00Z", DAY1_US + 11 * HOUR_US + 300 * SECOND_US),
        ("2025-08-16T13:05:00+02:00", DAY1_US + 11 * HOUR_US + 300 * SECOND_US),
        ("9999-12-31T23:59:59.999999", YEAR_9999_US),
        ("1970-01-01T00:00:00.000001", 1),
    ],
)
def test_times_are_read(text: str, event_time_us: int) -> None:
    assert parse_event_time(text) == event_time_us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "DAY",
        "DAY0",
        "DAY1 24:00:01",
        "DAY1 24:30",
        "DAY1 11:60",
        "DAY1 11:05:60",
        "DAY1 11",
        "DAY999999999999",
        "yesterday",
        "2025-13-01",
        "11:05:00",
    ],
)
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="DAY1 11:05:00"):
        parse_event_time(text)


def test_the_first_year_is_counted_in_days_and_others_have_dates() -> None:
    assert format_event_time(DAY1_US + 11 * HOUR_US) == "DAY1 11:00:00"
    assert format_event_time(DAY1_US + 365 * DAY_US) == "DAY366 00:00:00"
    assert format_event_time(DAY1_US + 366 * DAY_US) == "2026-08-17 00:00:00"
    assert format_event_time(DAY1_US - SECOND_US) == "2025-08-15 23:59:59"
    assert format_event_time(2**62) == f"{2**62} us"


def test_a_record_on_the_edge_is_of_the_segment_that_begins_there() -> None:
    ends_us = (100, 200, 300)
    assert [segment_of(time_us, ends_us) for time_us in (0, 99, 100, 101, 299, 300)] == [0, 0, 1, 1, 2, 3]
    assert segment_of(0, ()) == 0
