from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.ranking import Hit, best, fuse


@given(st.lists(st.integers(-3, 3)), st.integers(-1, 12))
def test_best_is_a_full_stable_sort_cut_at_k(scores: list[int], k: int) -> None:
    expected = sorted(((-score, row) for row, score in enumerate(scores) if score > -2))[: max(k, 0)]
    found = best(np.array(scores, np.float64), k, above=-2)
    assert found == [Hit(row, -score) for score, row in expected]


def test_fusion_sums_reciprocal_ranks() -> None:
    fused = fuse([[Hit(7, 0.9), Hit(3, 0.8)], [Hit(3, 12.0), Hit(5, 2.0)]], k=10)
    assert [hit.row for hit in fused] == [3, 7, 5]
    assert [hit.score for hit in fused] == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62])


def test_fusion_breaks_ties_by_record_order() -> None:
    assert [hit.row for hit in fuse([[Hit(9, 1.0)], [Hit(2, 1.0)], [Hit(4, 1.0)]], k=2)] == [2, 4]
