from __future__ import annotations

import pytest

from adapters.memory import Request
from adapters.responder import extract, query_of, within
from simulator.events import RetrievedRecord, Turn


def found(*texts: str) -> list[RetrievedRecord]:
    return [RetrievedRecord(id=str(i), text=text, event_time_us=i) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("one two three", 3, ("one two three", 3)),
        ("one  two\nthree", 2, ("one  two", 2)),
        ("我喝了 green 茶", 4, ("我喝了 green", 4)),
        ("tea茶tea", 2, ("tea茶", 2)),
        ("", 5, ("", 0)),
        ("one", 0, ("", 0)),
    ],
)
def test_words(text: str, words: int, expected: tuple[str, int]) -> None:
    assert within(text, words) == expected


def test_the_first_record_that_does_not_fit_is_cut_and_the_last() -> None:
    answer = extract(Request(text="?", phase="R1"), found("a b", "c d e", "f"), word_budget=4)
    assert answer.text == "a b\nc d"
    assert [r.id for r in answer.retrieved] == ["0", "1"]


def test_a_full_budget_uses_no_further_record() -> None:
    answer = extract(Request(text="?", phase="R1"), found("a b", "c"), word_budget=2)
    assert [r.id for r in answer.retrieved] == ["0"]


def test_answering_again_quotes_the_feedback_first_and_searches_with_it() -> None:
    history = (
        Turn(role="user", text="tea?"),
        Turn(role="assistant", text="no idea"),
        Turn(role="user", text="green please"),
    )
    request = Request(text="tea?", phase="R_F", history=history)
    assert extract(request, found("one", "two"), word_budget=3).text == "green please\none"
    assert query_of(request) == "tea?\ngreen please"
    first = Request(text="tea?", phase="R1", history=history)
    assert query_of(first) == "tea?"
    assert extract(first, found("one"), word_budget=3).text == "one"
