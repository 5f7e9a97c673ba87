"""APM-Bench's measures on a table of decisions and ratings worked out by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.apm import (
    Decision,
    Judged,
    balanced_accuracy,
    gated_score,
    mean,
    peak_bytes_per_hour,
    read_decision,
    replay_real_time_factor,
    response_quality,
    scaled_rating,
)

HOUR = 3_600_000_000


def probe(
    task: str,
    expected: Decision,
    decision: Decision | None,
    rating: int | None = None,
    option: bool | None = None,
) -> Judged:
    return Judged(task=task, expected=expected, decision=decision, rating=rating, option_right=option)


TABLE = [
    # probe, its gated score
    (probe("ERA", "INTERVENE", "INTERVENE", 5, True), 100.0),
    (probe("ERA", "INTERVENE", "INTERVENE", None, False), 0.0),  # right to speak, wrong option
    (probe("ERA", "INTERVENE", "SILENT"), 0.0),
    (probe("ERA", "SILENT", "SILENT"), 100.0),
    (probe("PRM", "INTERVENE", "INTERVENE", 4), 75.0),
    (probe("PRM", "INTERVENE", "INTERVENE", 1), 0.0),  # the gate passed, the worst rating
    (probe("PRM", "INTERVENE", None), 0.0),  # decided nothing
    (probe("PRM", "SILENT", "INTERVENE"), 0.0),
    (probe("TPG", "SILENT", "SILENT"), 100.0),
    (probe("TPG", "SILENT", "SILENT"), 100.0),
    (probe("TPG", "SILENT", None), 0.0),
]
PROBES = [judged for judged, _ in TABLE]


@pytest.mark.parametrize(("judged", "score"), TABLE)
def test_gated_scores_of_the_table(judged: Judged, score: float) -> None:
    assert gated_score(judged) == score


def test_the_tables_sums() -> None:
    scores = mean(map(gated_score, PROBES))
    assert (scores.value, scores.n) == (475 / 11, 11)  # 100 + 100 + 75 + 100 + 100
    # Right decisions to speak: 100 and 0 (ERA), 75 and 0 (PRM).
    assert (response_quality(PROBES).value, response_quality(PROBES).n) == (43.75, 4)
    found = balanced_accuracy(PROBES)
    assert (found.intervene.value, found.intervene.n) == (4 / 6, 6)
    assert (found.silent.value, found.silent.n) == (3 / 5, 5)
    assert found.value == (4 / 6 + 3 / 5) / 2
    tasks = {
        task: balanced_accuracy(probe for probe in PROBES if probe.task == task).value
        for task in ("ERA", "PRM", "TPG")
    }
    assert tasks == {"ERA": (2 / 3 + 1) / 2, "PRM": (2 / 3 + 0) / 2, "TPG": None}
    # Pooled first: not the mean of the tasks' values.
    assert found.value != mean(value for value in tasks.values() if value is not None).value


def test_ratings() -> None:
    assert [scaled_rating(rating) for rating in (1, 2, 3, 4, 5)] == [0, 25, 50, 75, 100]
    with pytest.raises(ValueError, match="a rating of 0"):
        scaled_rating(0)
    with pytest.raises(ValueError, match="has no rating"):  # unjudged, never 0
        gated_score(probe("PRM", "INTERVENE", "INTERVENE"))


@given(st.lists(st.sampled_from(PROBES)), st.randoms())
def test_order_changes_nothing_and_always_speaking_is_worth_a_half(
    probes: list[Judged], shuffle: random.Random
) -> None:
    shuffled = list(probes)
    shuffle.shuffle(shuffled)
    assert response_quality(shuffled) == response_quality(probes)
    assert balanced_accuracy(shuffled) == balanced_accuracy(probes)
    for always in ("INTERVENE", "SILENT"):
        same = balanced_accuracy([Judged(task=p.task, expected=p.expected, decision=always) for p in probes])
        assert same.value in (None, 0.5)
    assert mean([]).value is None


@pytest.mark.parametrize(
    ("reply", "decision", "said"),
    [
        ("INTERVENE: take your keys", "INTERVENE", "take your keys"),
        ("silent", "SILENT", ""),
        ("**SILENT**", "SILENT", ""),
        ("Decision: INTERVENE\nIt is five.", "INTERVENE", "It is five."),
        ("[INTERVENE] B. because", "INTERVENE", "B. because"),
        ("I would stay SILENT", None, "I would stay SILENT"),
        ("SILENTLY waiting", None, "SILENTLY waiting"),
        ("", None, ""),
    ],
)
def test_decisions_are_read(reply: str, decision: str | None, said: str) -> None:
    found = read_decision(reply)
    assert (found.decision, found.said) == (decision, said)


def test_peak_bytes_are_those_kept_when_sessions_ended() -> None:
    # 100 after the first hour, 350 within the second, 150 at its end; two hours of stream with a gap between.
    changes = [(HOUR // 2, 100), (10 * HOUR, 250), (11 * HOUR - 1, -200), (12 * HOUR, 900)]
    assert peak_bytes_per_hour(changes, [HOUR, 11 * HOUR], 2 * HOUR) == 75.0
    assert peak_bytes_per_hour(changes[::-1], [11 * HOUR, HOUR], HOUR // 2) == 300.0
    with pytest.raises(ValueError, match="no completed session"):
        peak_bytes_per_hour(changes, [], HOUR)


def test_real_time_factor() -> None:
    assert replay_real_time_factor(90 * 60_000_000, HOUR) == 1.5
    with pytest.raises(ValueError, match="no duration"):
        replay_real_time_factor(1, 0)
