"""Fair turns: limits are kept, nothing is lost, and nothing waits for ever."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ConfigError
from simulator.fair import OLDEST_EVERY, FairQueue

LANES = ("a", "b", "c")

Put = tuple[str, int]
"""Lane and rank of an item that comes."""


@given(
    st.lists(st.one_of(st.tuples(st.sampled_from(LANES), st.integers(0, 2)), st.integers(0, 9)), max_size=80),
    st.integers(1, 4),
    st.none() | st.integers(1, 2),
)
def test_limits_are_kept_and_everything_gets_its_turn(
    moves: list[Put | int], limit: int, per_lane: int | None
) -> None:
    queue: FairQueue[int] = FairQueue(limit, per_lane)
    came: list[int] = []
    went: list[int] = []
    under_way: list[str] = []

    def let_in() -> None:
        while (taken := queue.take()) is not None:
            lane, item = taken
            under_way.append(lane)
            went.append(item)
            assert len(under_way) == queue.under_way <= limit
            assert per_lane is None or max(Counter(under_way).values()) <= per_lane

    def end(which: int) -> None:
        queue.done(under_way.pop(which % len(under_way)))
        let_in()

    for move in moves:
        if isinstance(move, tuple):
            queue.put(move[0], len(came), move[1])
            came.append(len(came))
            let_in()
        elif under_way:
            end(move)
        # nothing waits beside a free place
        assert not queue.waiting or len(under_way) == limit or per_lane is not None
    while under_way:
        end(0)
    assert sorted(went) == came
    assert queue.waiting == queue.under_way == 0


@given(st.lists(st.integers(0, 2), max_size=20), st.integers(0, 2), st.lists(st.integers(0, 2), max_size=200))
def test_an_item_is_overtaken_a_bounded_number_of_times(
    ahead: list[int], rank: int, later: list[int]
) -> None:
    queue: FairQueue[str] = FairQueue(1)
    for other in ahead:
        queue.put("a", "ahead", other)
    queue.put("a", "it", rank)
    for turn, other in enumerate([*later, *[0] * (len(ahead) + 1) * OLDEST_EVERY]):
        queue.put("a", "later", other)  # one comes for each that goes: the queue never gets shorter
        taken = queue.take()
        assert taken is not None
        if taken[1] == "it":
            assert turn < (len(ahead) + 1) * OLDEST_EVERY
            return
        queue.done("a")
    pytest.fail("it never had its turn")


@given(st.integers(1, 8), st.integers(0, 300))
def test_a_lane_whose_items_never_end_leaves_the_others_their_share(limit: int, slow: int) -> None:
    queue: FairQueue[str] = FairQueue(limit + 1)
    for _ in range(slow):
        queue.put("slow", "slow")
    queue.put("fast", "fast")
    taken = [queue.take() for _ in range(limit + 1)]
    assert ("fast", "fast") in taken[:2]
    # from now on every place that the fast lane gives up is its own as long as it has fewer
    for _ in range(50):
        queue.done("fast")
        queue.put("fast", "fast")
        assert queue.take() == ("fast", "fast")


def test_of_a_lane_that_is_dropped_nothing_waits_any_more() -> None:
    queue: FairQueue[int] = FairQueue(1)
    for item, rank in enumerate((2, 0, 1)):
        queue.put("a", item, rank)
    queue.put("b", 3)
    assert list(queue.drop("a")) == [0, 1, 2]
    assert queue.take() == ("b", 3)
    queue.done("b")
    assert queue.take() is None


def test_what_is_under_way_already_counts() -> None:
    queue: FairQueue[int] = FairQueue(1)
    queue.enter("a")
    queue.enter("a")
    queue.put("a", 1)
    queue.done("a")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == ("a", 1)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        FairQueue(0)
