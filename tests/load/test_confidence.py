from __future__ import annotations

import itertools
import math
from decimal import Decimal
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.load.confidence import LEAST_LEVEL, Interval, chance, of_median

counts = st.integers(1, 40).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of)))
ratios = st.lists(st.floats(0.01, 100), min_size=1, max_size=30)


@given(counts)
def test_a_chance_lies_around_its_share_and_mirrors_that_of_the_rest(count: tuple[int, int]) -> None:
    times, of = count
    found, rest = chance(times, of), chance(of - times, of)
    assert 0 <= found.low <= times / of <= found.high <= 1
    assert found.low == pytest.approx(1 - rest.high, abs=1e-12)
    if times == of:
        assert found.low == pytest.approx(
            0.025 ** (1 / of)
        )  # by hand: all of n, with a chance of this to the n-th


@pytest.mark.parametrize("of", [1, 3, 5, 12])
def test_an_interval_of_a_chance_holds_it_as_often_as_it_says(of: int) -> None:
    intervals = [chance(times, of) for times in range(of + 1)]
    for hundredth in range(1, 100):
        p = hundredth / 100
        holds = math.fsum(
            math.comb(of, k) * p**k * (1 - p) ** (of - k)
            for k, found in enumerate(intervals)
            if found.low <= p <= found.high
        )
        assert holds >= 0.95 - 1e-9, p


def test_many_are_counted_as_exactly_as_few() -> None:
    """Around the size at which logarithms take over, and where the number of ways fits no float."""
    for of in (500, 501, 1500):
        for times in (0, 1, of // 3, of - 1, of):
            found = chance(times, of)
            for end, tail in ((found.low, range(times, of + 1)), (found.high, range(times + 1))):
                if 0 < end < 1:
                    at = Decimal(end)  # 28 digits, and exponents without end
                    found_at = sum(Decimal(math.comb(of, k)) * at**k * (1 - at) ** (of - k) for k in tail)
                    assert float(found_at) == pytest.approx(0.025, rel=1e-6), (times, of)


def test_counts_that_cannot_be_have_no_chance() -> None:
    for times, of in ((0, 0), (2, 1), (-1, 1)):
        with pytest.raises(ValueError, match=f"{times} of {of}"):
            chance(times, of)


@given(ratios, st.randoms())
def test_an_interval_of_a_median_lies_around_it_among_the_values(values: list[float], random: object) -> None:
    found = of_median(values)
    if len(values) < 5:
        assert found is None
        return
    assert found is not None
    assert found.low in values
    assert found.high in values
    assert found.low <= median(values) <= found.high
    assert LEAST_LEVEL <= found.level < 1
    random.shuffle(values)  # type: ignore[attr-defined]  # hypothesis gives a Random
    assert of_median(values) == found


@given(st.lists(st.floats(0.01, 100), min_size=5, max_size=20), st.floats(0.1, 10))
def test_it_scales_with_the_values_and_turns_with_their_inverse(values: list[float], factor: float) -> None:
    found, scaled = of_median(values), of_median([value * factor for value in values])
    turned = of_median([1 / value for value in values])
    assert found is not None
    assert scaled is not None
    assert turned is not None
    assert (scaled.low, scaled.high) == (found.low * factor, found.high * factor)
    assert (turned.low, turned.high) == (1 / found.high, 1 / found.low)


@pytest.mark.parametrize("n", [5, 6, 8, 11])
def test_its_level_is_how_often_it_holds_the_median(n: int) -> None:
    """Each value lies below or above the true median, 0, with equal chance: all 2^n ways, counted."""
    held = 0
    for signs in itertools.product((-1, 1), repeat=n):
        found = of_median([sign * (place + 1) for place, sign in enumerate(signs)])
        assert found is not None
        held += found.low <= 0 <= found.high
    assert held / 2**n == pytest.approx(found.level)


def test_levels_known_from_tables() -> None:
    assert of_median([1.0] * 5) == Interval(low=1.0, high=1.0, level=0.9375)
    assert of_median(list(map(float, range(8)))) == Interval(low=1.0, high=6.0, level=0.9296875)
    assert of_median([1.0] * 4) is None
