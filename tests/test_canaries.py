"""Planting canaries: where they are, that they are unique, and that nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.canaries import plant_canaries
from producers.datasets import read_dataset
from simulator.errors import ConfigError
from simulator.marks import mark_of, marks_in

DATASET = read_dataset(
    "synthetic:seed=1,wearers=3,segments_per_day=4,observations_per_segment=9,anchors_per_day=2"
)
TOTAL = 3 * 4 * 9


@settings(deadline=None)
@given(st.integers(0, TOTAL), st.integers(-5, 2**70))
def test_as_many_as_asked_each_in_its_place_and_nothing_else_changed(count: int, seed: int) -> None:
    planted = plant_canaries(DATASET.lifelogs, count, seed)
    marks = []
    for stream, lifelog in DATASET.lifelogs.items():
        assert planted[stream].segments == lifelog.segments
        for seq, (before, after) in enumerate(
            zip(lifelog.observations, planted[stream].observations, strict=True)
        ):
            if after != before:
                mark = mark_of(seed, stream, seq)
                assert after.text == f"{before.text} {mark}"
                marks.append(mark)
    assert len(set(marks)) == count
    assert plant_canaries(DATASET.lifelogs, count, seed) == planted


def test_they_are_spread_over_the_streams() -> None:
    planted = plant_canaries(DATASET.lifelogs, 12, 0)
    for lifelog in planted.values():
        assert sum(bool(marks_in(o.text)) for o in lifelog.observations) == 4


def test_more_than_there_are_observations_are_refused() -> None:
    with pytest.raises(ConfigError, match="can't be planted in 108"):
        plant_canaries(DATASET.lifelogs, TOTAL + 1, 0)


def test_a_mark_is_known_by_its_form() -> None:
    mark = mark_of(7, "A1_JAKE", 12)
    assert marks_in(f"so he said {mark}, and {mark_of(7, 'A1_JAKE', 13)}.")[0] == mark
    assert marks_in("a canary in a coal mine, canary123") == []
