from __future__ import annotations

import json
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.histogram import HIGHEST_US, Histogram, Percentiles

_LINE = re.compile(r"^\s*(\d+\.\d+) (\d\.\d+)\s+(\d+)(?:\s+(\d+\.\d+))?$")
_NUMBERS = re.compile(r"(\w+)\s*=\s*(\d+\.\d+)")

values = st.lists(st.integers(0, HIGHEST_US), min_size=1, max_size=60)


def parsed(hgrm: bytes) -> tuple[list[tuple[float, float, int]], dict[str, float]]:
    """The lines (value, percentile, count up to there) of a percentile text, and its footer."""
    head, *lines = hgrm.decode().splitlines()
    assert head.split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    body = [line for line in lines if line and line[0] != "#"]
    footer = [line for line in lines if line[:1] == "#"]
    found = [_LINE.match(line) for line in body]
    rows = [(float(m[1]), float(m[2]), int(m[3])) for m in found if m]
    assert len(rows) == len(body)
    return rows, {name: float(number) for line in footer for name, number in _NUMBERS.findall(line)}


def numbers(histogram: Histogram) -> Percentiles:
    found = histogram.percentiles()
    assert found is not None
    return found


@settings(deadline=None, max_examples=40)
@given(values)
def test_percentiles_are_those_of_the_values_within_a_thousandth(values_us: list[int]) -> None:
    found = numbers(Histogram(values_us))
    assert (found.n, found.clipped, found.max_us) == (len(values_us), 0, max(values_us))
    assert found.mean_us == pytest.approx(np.mean(values_us))
    ranked = sorted(values_us)
    for percent, got in ((50, found.p50_us), (90, found.p90_us), (99, found.p99_us), (99.9, found.p999_us)):
        rank = max(1, int(percent * len(ranked) / 100 + 0.5))
        assert got == pytest.approx(ranked[rank - 1], rel=0.001, abs=0)


@settings(deadline=None, max_examples=40)
@given(values, values)
def test_merging_is_as_good_as_counting_together_also_through_json(a: list[int], b: list[int]) -> None:
    together = numbers(Histogram(a + b))
    merged = Histogram(a)
    merged.add(Histogram(b))
    assert numbers(merged) == together
    text = msgspec.json.encode(numbers(Histogram(b)))
    assert json.loads(text)["n"] == len(b)
    sent = Histogram(a)
    sent.add(Histogram.of(msgspec.json.decode(text, type=Percentiles)))
    got = numbers(sent)
    assert (got.n, got.p50_us, got.p99_us) == (together.n, together.p50_us, together.p99_us)
    assert got.mean_us == pytest.approx(together.mean_us)
    assert got.max_us == together.max_us


@settings(deadline=None, max_examples=40)
@given(values)
def test_the_percentile_text_says_the_same_when_it_is_read_back(values_us: list[int]) -> None:
    histogram = Histogram(values_us)
    rows, footer = parsed(histogram.hgrm())
    ranked = sorted(values_us)
    assert footer["TotalCount"] == rows[-1][2] == len(values_us)
    assert footer["Max"] == pytest.approx(max(values_us), rel=0.001)
    assert rows[-1][1] == 1.0
    assert [row[:2] for row in rows] == sorted(row[:2] for row in rows)
    for value_us, percentile, count in rows:
        assert value_us == pytest.approx(ranked[count - 1], rel=0.001)  # so many are no greater
        assert count >= int(percentile * len(ranked) + 0.5) - 1


def test_what_is_out_of_range_is_counted_at_its_end_and_said_so() -> None:
    found = numbers(Histogram([-5, 7, HIGHEST_US + 1]))
    assert (found.n, found.clipped, found.max_us) == (3, 2, HIGHEST_US)


def test_without_a_value_there_are_no_numbers_and_no_text() -> None:
    assert Histogram().percentiles() is None
    assert Histogram().hgrm() == b""
