"""Which option a reply names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.choice import LETTERS, Reading, answered, read_letter
from producers.probes import split_option

OPTIONS = ("In the drawer", "On the shelf", "By the door", "In the car")


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(b)", "B"),
        ("**B**", "B"),
        ("B.", "B"),
        ("Ｂ", "B"),
        ("Answer: B. because she said so", "B"),
        ("The answer is B", "B"),
        ("The correct answer is (B), since A was Monday.", "B"),
        ("the answer is b.", "B"),
        ("Option B", "B"),
        ("I choose option C.", "C"),
        ("B. On the shelf", "B"),
        ("B) On the shelf", "B"),
        ("B - On the shelf", "B"),
        ("B\nShe put it there.", "B"),
        ("On the shelf", "B"),
        ("on the shelf.", "B"),
        ("She keeps it on the shelf, I think.", "B"),
        ("It must be (D).", "D"),
        ("答案是B", "B"),
        ("选 C", "C"),
        ("Answer: A", "A"),
        ("A", "A"),
        ("A. In the drawer", "A"),
        ("Answer: A because she said so", "A"),
        ("I think it's B.", "B"),
        ("I'd say C, since Ada was there", "C"),
        ("I, for one, looked by the door.", "C"),
        ("It must be A.", "A"),
    ],
)
def test_a_letter_is_read(reply: str, letter: str) -> None:
    assert read_letter(reply, OPTIONS) == Reading(letter)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("I don't know.", "names no option"),
        ("A thing on a table", "names no option"),
        ("The answer is a mystery", "names no option"),
        ("E", "no option"),
        ("Answer: F", "no option"),
        ("A and B", "several"),
        ("A, C", "several"),
        ("Answer: A or B", "several"),
        ("Answer: A. No, the answer is B.", "several"),
        ("(A) and also (C)", "several"),
        ("In the drawer or in the car", "several"),
        ("It is B or C", "several"),
    ],
)
def test_what_names_none_or_several_is_invalid(reply: str, reason: str) -> None:
    found = read_letter(reply, OPTIONS)
    assert found.letter is None
    assert reason in found.reason


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("Answer: A wooden kite", "C"),
        ("The answer is a chess set", "B"),
        ("A wooden kite", "C"),
        ("She got a wooden kite, large and red", "C"),
        ("A kite", "A"),
    ],
)
def test_articles_are_no_letters(reply: str, letter: str) -> None:
    assert read_letter(reply, ("kite", "A chess set", "a wooden kite")).letter == letter


def test_invalid_is_not_wrong() -> None:
    assert answered(read_letter("B", OPTIONS), "b") == "right"
    assert answered(read_letter("C", OPTIONS), "B") == "wrong"
    assert answered(read_letter("A or B", OPTIONS), "B") == "invalid"


def test_options_are_split() -> None:
    assert split_option("B. on the shelf", 1) == ("B", "on the shelf", True)
    assert split_option("(c) by the door", 2) == ("C", "by the door", True)
    assert split_option("A moment later", 3) == ("D", "A moment later", False)


@given(st.text(), st.lists(st.text(), min_size=1, max_size=6))
def test_any_reply_is_read_as_an_option_or_as_invalid(reply: str, options: list[str]) -> None:
    found = read_letter(reply, options)
    assert found.letter in (None, *LETTERS[: len(options)])
    assert bool(found.reason) == (found.letter is None)


@given(
    st.sampled_from(range(4)),
    st.sampled_from(["{}", "({})", "Answer: {}", "{}. because", "The answer is {}."]),
)
def test_every_form_of_every_letter(place: int, form: str) -> None:
    assert read_letter(form.format(LETTERS[place]), OPTIONS).letter == LETTERS[place]
