"""Each mechanical check finds its own mistake, and nothing in what is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from producers.anchors.checks import CHECKS, QUOTE_TOKENS, check_anchor
from producers.anchors.release_checks import check_release
from producers.anchors.stated import Release, Stated, read_stated
from producers.anchors.streams import StreamIndex
from producers.anchors.words import COMMON_SHARE, Frequencies, similarity, units
from producers.datasets import one_layout, read_dataset, write_release
from simulator.text import tokens
from tests.anchors.mutations import MUTATIONS, QUOTED, Mutation, moved_to_segment, mutate, set_index


def found_in(stated: Stated, stream: StreamIndex | None) -> set[str]:
    return {finding.check for finding in check_anchor(stated, stream)}


def stated_at(path: Path) -> Release:
    layout, _ = one_layout(path, kind="streammembench")
    return read_stated(layout)


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Release:
    path = tmp_path_factory.mktemp("anchors") / "made_up"
    write_release(read_dataset("synthetic:seed=5,wearers=2,days=2"), path)
    return stated_at(path)


def indexed(release: Release) -> dict[str, StreamIndex]:
    return {name: StreamIndex(lifelog) for name, lifelog in release.lifelogs.items()}


def with_mutations(anchors: Sequence[Stated]) -> list[tuple[Stated, Mutation]]:
    pairs = [(stated, mutation) for stated in anchors for mutation in MUTATIONS]
    quotes = {
        id(s): max(len(tokens(o.quote or "")) for o in s.anchor.supporting_observations or ())
        for s in anchors
    }
    return pairs + [(stated, QUOTED) for stated in anchors if quotes[id(stated)] >= QUOTE_TOKENS]


def only_its_check(release: Release) -> int:
    """Mutate every anchor in every way; gives how many were tried."""
    streams = indexed(release)
    tried = with_mutations(release.anchors)
    for stated, mutation in tried:
        stream = streams[stated.place.stream]
        mutated = mutate(stated, mutation, stream)
        before, after = found_in(stated, stream), found_in(mutated, stream)
        # a request that is replaced takes along what was found in it; a name that is the subject's no more is a word
        before |= {"leak", "shared_word"} if mutated.anchor.subject != stated.anchor.subject else set()
        assert after - before == {mutation.check} - before, (stated.anchor.evidence_id, mutation.name)
        assert mutation.check in after
    return len(tried)


def test_every_mutation_of_made_up_anchors_is_found_by_its_check_alone(made_up: Release) -> None:
    assert check_release(made_up).errors == 0
    assert only_its_check(made_up) > 32 * len(MUTATIONS)


def test_an_anchor_in_another_segment_has_its_evidence_outside_it(made_up: Release) -> None:
    streams = indexed(made_up)
    for stated in made_up.anchors:
        stream = streams[stated.place.stream]
        other = (stated.place.segment_id + 1) % 24
        before = found_in(stated, stream)
        assert found_in(moved_to_segment(stated, other), stream) - before == {"outside_segment"}
        gone = found_in(moved_to_segment(stated, 99), stream)
        assert "no_such_segment" in gone
        assert gone <= {"no_such_segment"} | before
        assert "no_such_segment" in found_in(stated, None)


def test_an_index_of_another_segment_is_outside(made_up: Release) -> None:
    stream = indexed(made_up)["W01_ADA"]
    stated = made_up.anchors[0]
    span = stream.span(stated.place.day, stated.place.segment_id)
    other = stream.span(stated.place.day, 23)
    assert span is not None
    assert other is not None
    assert other != span
    index = stream.observation(other.first_seq).stream_index
    assert index is not None
    wrong = Mutation("", "outside_segment", lambda anchor, *_: set_index(anchor, index))
    assert found_in(mutate(stated, wrong, stream), stream) - found_in(stated, stream) == {"outside_segment"}


def test_ids_are_unique_to_a_wearer_and_both_places_are_named(made_up: Release) -> None:
    first, second, *rest = made_up.anchors
    other_wearer = next(s for s in rest if s.place.stream != first.place.stream)
    for stated in (second, other_wearer):
        stated = mutate(
            stated,
            Mutation("", "", lambda anchor, *_: setattr(anchor, "evidence_id", first.anchor.evidence_id)),
            indexed(made_up)[stated.place.stream],
        )
        checked = check_release(replace(made_up, anchors=[first, stated]))
        assert checked.by_check["repeated_id"] == (stated.place.stream == first.place.stream)
        for finding in checked.findings:
            if finding.check == "repeated_id":
                assert (finding.file, finding.path) == (second.place.file, second.place.path)
                assert first.place.path in finding.message


def test_the_wearer_must_be_marked_as_self(made_up: Release) -> None:
    stated = made_up.anchors[0]
    stream = indexed(made_up)[stated.place.stream]
    for subject, check in (("Ada", {"wrong_self"}), ("ada (self)", set()), ("Ada (self)", set())):
        edit = Mutation("", "", lambda anchor, *_, subject=subject: setattr(anchor, "subject", subject))
        assert {c for c in found_in(mutate(stated, edit, stream), stream) if c == "wrong_self"} == check


def test_a_summary_counts_what_matches_and_says_which_anchors_have_nothing(made_up: Release) -> None:
    streams = indexed(made_up)
    lost = MUTATIONS[4]
    assert lost.check == "no_such_observation"
    right, wrong = made_up.anchors[0], made_up.anchors[1]
    for _ in wrong.anchor.supporting_observations or ():
        wrong = mutate(wrong, lost, streams[wrong.place.stream])
        assert wrong.anchor.supporting_observations
        wrong.anchor.supporting_observations.append(wrong.anchor.supporting_observations.pop(0))
    checked = check_release(replace(made_up, anchors=[right, wrong]))
    there = len(right.anchor.supporting_observations or ())
    assert checked.matched == there > 0
    assert checked.supporting_observations > there
    assert (checked.anchors, checked.without_match, checked.anchors_with_errors) == (2, 1, 1)
    assert checked.by_check.keys() == CHECKS.keys()


@pytest.mark.data
def test_the_44_real_anchors_pass_and_every_mutation_of_each_is_found(data_dir: Path) -> None:
    release = stated_at(data_dir)
    checked = check_release(release)
    assert (checked.anchors, checked.errors, checked.warnings) == (44, 0, 0)
    assert (checked.matched, checked.supporting_observations, checked.without_match) == (190, 190, 0)
    assert only_its_check(release) > 44 * len(MUTATIONS)


# --- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [("records", "recorded"), ("recording", "record"), ("running", "runs"), ("parties", "party")],
)
def test_endings_do_not_make_another_word(one: str, other: str) -> None:
    assert units(one) == units(other) != frozenset()


def test_function_words_are_no_units_in_either_language() -> None:
    assert units("What would you say if they don't?") == frozenset()
    assert units("她的咖啡是热的") == {"咖啡"}
    assert units("Jake 喜欢咖啡") == units("jake") | {"喜欢", "欢咖", "咖啡"}


def test_a_word_is_distinctive_until_a_tenth_of_the_other_segments_has_it() -> None:
    others = [f"kite {'oar' if i < 3 else ''} {'tide' if i < 2 else ''}" for i in range(20)]
    own = "kite oar tide pulley"
    words = Frequencies.of([own, *others])
    assert words.segments == 21
    assert COMMON_SHARE * 20 == 2
    found = words.distinctive(units("The kite, the oar, the tide, and a pulley"), units(own))
    assert found == units("tide pulley")
    assert words.others("oar", units(own)) == 3


def test_in_a_single_segment_every_content_word_is_distinctive() -> None:
    words = Frequencies.of(["kites and oars"])
    assert words.distinctive(units("an oar"), units("kites and oars")) == units("oars")


@given(st.text(), st.text())
def test_similarity_is_a_symmetric_share(one: str, other: str) -> None:
    assert similarity(one, other) == similarity(other, one)
    assert 0 <= similarity(one, other) <= 1
    assert similarity(one, one) == (1 if units(one) else 0)


@given(
    st.lists(st.text(alphabet="abcd 中文茶", max_size=12), min_size=1, max_size=8),
    st.text(alphabet="abcd 中文茶"),
)
def test_distinctive_words_are_the_statements_and_in_few_other_segments(
    texts: list[str], statement: str
) -> None:
    words, own = Frequencies.of(texts), units(texts[0])
    found = words.distinctive(units(statement), own)
    assert found <= units(statement)
    for unit in units(statement):
        holds = sum(unit in units(text) for text in texts[1:])
        assert words.others(unit, own) == holds
        assert (unit in found) == (holds <= COMMON_SHARE * (len(texts) - 1))
