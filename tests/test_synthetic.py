"""Synthetic lifelogs: the same for the same options, as asked, and equal after writing and reading the
release."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.datasets import read_dataset, write_release
from producers.lifelog import Dataset
from producers.seeded import parse_numbers
from producers.synthetic import SyntheticOptions, stream_name, synthesise
from simulator.errors import ConfigError, DatasetError
from simulator.text import tokens

PINNED = [
    "Caspar: Careful with the broken trolley, Lotte.",
    "Lotte: That one isn't mine, ask Caspar.",
    "Caspar: Okay, okay, I'm coming.",
]

small = st.builds(
    SyntheticOptions,
    seed=st.integers(0, 1000),
    wearers=st.integers(1, 3),
    days=st.integers(1, 3),
    segments_per_day=st.integers(2, 5),
    observations_per_segment=st.integers(9, 25),
    anchors_per_day=st.integers(0, 6),
)


@given(small)
@settings(deadline=None, max_examples=25)
def test_what_is_written_is_read_again(options: SyntheticOptions) -> None:
    made = synthesise(options)
    with tempfile.TemporaryDirectory() as folder:
        write_release(made, folder)
        read = read_dataset(folder)
    assert read.lifelogs == made.lifelogs
    assert read.anchors == made.anchors
    assert read.report.oddities == {}
    for name, count in made.report.counts.items():
        assert read.report.counts[name] == count


@given(small)
@settings(deadline=None, max_examples=25)
def test_there_is_what_was_asked_for(options: SyntheticOptions) -> None:
    made = synthesise(options)
    assert made == synthesise(options)
    assert len(made.lifelogs) == options.wearers
    assert len(made.anchors) == options.wearers * options.days * options.anchors_per_day
    for log in made.lifelogs.values():
        assert len(log.segments) == options.days * options.segments_per_day
        assert {s.last_seq - s.first_seq + 1 for s in log.segments} == {options.observations_per_segment}
        times = [o.event_time_us for o in log.observations]
        assert times == sorted(times)
        assert all(o.text and "{" not in o.text for o in log.observations)
        assert all((o.source == "dialog") == (": " in o.text) for o in log.observations)
    for anchor in made.anchors:
        log = made.lifelogs[anchor.stream]
        span = log.segments[anchor.segment]
        assert anchor.supporting_seqs
        assert all(span.first_seq <= seq <= span.last_seq for seq in anchor.supporting_seqs)
        assert anchor.supporting_seqs == tuple(sorted(anchor.supporting_seqs))
        assert "{" not in f"{anchor.evidence_statement}{anchor.initial_task}{anchor.followup_task}"
    assert len({a.id for a in made.anchors}) == len(made.anchors)


def test_a_wearer_is_the_same_in_any_company_and_another_seed_is_another_life() -> None:
    alone = synthesise(SyntheticOptions(seed=3, wearers=1))
    together = synthesise(SyntheticOptions(seed=3, wearers=2))
    assert alone.lifelogs["W01_ADA"] == together.lifelogs["W01_ADA"]
    other = synthesise(SyntheticOptions(seed=4, wearers=1))
    assert other.lifelogs["W01_ADA"] != alone.lifelogs["W01_ADA"]
    assert len({alone.digest, together.digest, other.digest}) == 3


def test_the_sequence_is_the_one_of_this_version() -> None:
    """The same options must give the same lifelog everywhere: these lines were made by Python 3.11."""
    log = synthesise(SyntheticOptions(seed=7, wearers=1)).lifelogs["W01_ADA"]
    assert [o.text for o in log.observations[:3]] == PINNED


def test_names_are_distinct_for_any_number_of_wearers() -> None:
    assert stream_name(0) == "W01_ADA"
    assert len({stream_name(wearer) for wearer in range(500)}) == 500


def overlap(query: str, text: str) -> float:
    asked = set(tokens(query))
    return len(asked & set(tokens(text))) / len(asked)


def test_the_official_thresholds_tell_memories_apart() -> None:
    made = synthesise(SyntheticOptions(wearers=1, days=5, segments_per_day=60, anchors_per_day=50))
    assert len(made.anchors) == 250

    def share(passes: list[bool]) -> float:
        return sum(passes) / len(passes)

    def used(made: Dataset, task: str) -> float:
        return share(
            [overlap(getattr(a, task).expected_behavior, a.evidence_statement) >= 0.3 for a in made.anchors]
        )

    assert 0.6 < used(made, "initial_task") < 0.95
    assert 0.6 < used(made, "followup_task") < 0.95
    log = made.lifelogs["W01_ADA"]
    told = ["\n".join(log.observations[seq].text for seq in a.supporting_seqs) for a in made.anchors]
    pairs = list(zip(made.anchors, told, strict=True))
    assert share([overlap(a.evidence_statement, text) >= 0.5 for a, text in pairs]) > 0.8
    asked = [overlap(a.initial_task.user_request, a.evidence_statement) for a in made.anchors]
    assert 0.05 < sum(asked) / len(asked) < 0.3


def test_one_hundred_thousand_observations_look_varied() -> None:
    options = SyntheticOptions(wearers=1, days=3, segments_per_day=200, observations_per_segment=170)
    log = synthesise(options).lifelogs["W01_ADA"]
    assert len(log.observations) > 100_000
    assert len({o.text for o in log.observations}) > 60_000


def test_the_path_form() -> None:
    assert parse_numbers("synthetic:", SyntheticOptions) == SyntheticOptions()
    assert parse_numbers("synthetic:seed=7, wearers=3", SyntheticOptions) == SyntheticOptions(
        seed=7, wearers=3
    )
    dataset = read_dataset("synthetic:seed=7,wearers=2,days=1", streams=["W02_BORIS"])
    assert list(dataset.lifelogs) == ["W02_BORIS"]
    assert {a.stream for a in dataset.anchors} == {"W02_BORIS"}
    with pytest.raises(DatasetError, match="no stream X"):
        read_dataset("synthetic:", streams=["X"])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("synthetic:wearer=2", "no option 'wearer'; the options are seed, wearers, days"),
        ("synthetic:days=two", "days must be a whole number, not 'two'"),
        ("synthetic:days", "days must be a whole number, not ''"),
        ("synthetic:days=1,days=2", "given twice"),
        ("synthetic:days=0", "days must be at least 1"),
        ("synthetic:segments_per_day=289", "at most 288"),
        ("synthetic:anchors_per_day=-1", "anchors_per_day must be between 0 and"),
        ("synthetic:segments_per_day=1,observations_per_segment=3,anchors_per_day=2", "between 0 and 1"),
    ],
)
def test_a_wrong_path_says_what_is_possible(path: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_dataset(path)
