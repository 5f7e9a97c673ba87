"""Contamination and overwriting against tables worked out by hand and plain oracles."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.diagnoses import auroc, contamination, overwriting

SCORES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0, 1.5, -2.0]) | st.floats(-3, 3), st.booleans()), max_size=30
)


@given(SCORES)
def test_auroc_is_the_share_of_pairs_won(scored: list[tuple[float, bool]]) -> None:
    found = auroc([score for score, _ in scored], [positive for _, positive in scored])
    above = [score for score, positive in scored if positive]
    below = [score for score, positive in scored if not positive]
    assert (found.positives, found.negatives) == (len(above), len(below))
    if not above or not below:
        assert found.value is None
        return
    won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(above, below))
    assert found.value is not None
    assert abs(found.value - won / (len(above) * len(below))) < 1e-9


@pytest.mark.parametrize(
    ("scores", "positive", "value"),
    [
        ([0, 1], [False, True], 1.0),
        ([1, 0], [False, True], 0.0),
        ([1, 1], [False, True], 0.5),
        ([0, 1, 1, 2], [False, True, False, True], 0.875),
        ([], [], None),
        ([1, 2], [True, True], None),
    ],
)
def test_auroc_by_hand(scores: list[float], positive: list[bool], value: float | None) -> None:
    assert auroc(scores, positive).value == value


def test_auroc_refuses_what_it_cant_rank() -> None:
    with pytest.raises(ValueError, match="no number"):
        auroc([float("nan"), 1.0], [True, False])
    with pytest.raises(ValueError, match="zip"):
        auroc([1.0], [True, False])


def test_contamination_by_hand() -> None:
    # Right ones: 3 of 4 rest on something newer; wrong ones: 1 of 2. Pairs won: 3*1 + ties (3*1 + 1*1) / 2 = 5 of 8.
    answers = [(True, True), (True, True), (True, True), (False, True), (True, False), (False, False)]
    assert contamination(answers).value == 5 / 8


def test_who_never_sees_the_future_has_nothing_to_tell_by() -> None:
    found = contamination([(False, right) for right in (True, False, True, True)])
    assert (found.value, found.positives, found.negatives) == (0.5, 3, 1)


def test_overwriting_by_hand() -> None:
    pairs = [
        (True, True),
        (True, False),
        (True, False),
        (False, True),
        (False, False),
        (None, True),
        (True, None),
    ]
    found = overwriting(pairs)
    assert (found.pairs, found.unpaired) == (5, 2)
    assert (found.right_both, found.overwritten, found.gained, found.wrong_both) == (1, 2, 1, 1)
    assert found.share == 2 / 3
    assert overwriting([(False, True)]).share is None
