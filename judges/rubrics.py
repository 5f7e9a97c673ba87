"""Judges by a language model for probes: what each metric shows the model, asks of it, and makes of its answer.

The criteria stand in `judges/prompts/`; scales and definitions: docs/realmem.md, docs/lifedialbench.md, docs/apm.md.
Pure: nothing here asks a model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, NamedTuple, cast

import msgspec

from adapters.prompt import PromptLanguage
from judges.apm import RATINGS, scaled_rating
from judges.choice import LETTERS
from judges.retrieval import HELPFUL_SCALE, QA_SCALE, helpfulness, memory_recall, qa_score
from simulator.events import RetrievedRecord
from simulator.eventtime import format_event_time

RatedMetric = Literal["qa", "memory_recall", "helpful", "open_answer", "rating"]

_NOTHING: Final = {"en": "(none)", "zh": "（无）"}


class RatingCase(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge of probes sees. `answer`: the response's text; `retrieved`: the records that it names, best first;
    `reference`, `memories`: the gold; `options`: of a choice, without letters, A first."""

    question: str
    options: tuple[str, ...] = ()
    answer: str
    reference: str = ""
    memories: tuple[str, ...] = ()
    retrieved: tuple[RetrievedRecord, ...] = ()
    asked_time_us: int = 0


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What a vote says of one case: `mark` on the metric's own scale, `value` the same in [0, 1]."""

    mark: int
    value: float
    reason: str


class _Qa(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    rating: Annotated[int, msgspec.Meta(ge=0, le=QA_SCALE)]


class _Helpful(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    rating: Annotated[int, msgspec.Meta(ge=0, le=HELPFUL_SCALE)]


class _Quality(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    rating: Annotated[int, msgspec.Meta(ge=RATINGS[0], le=RATINGS[1])]


class _Equal(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    equal: bool


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    reason: str
    covered: bool


class _Items(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict for each item, in order."""

    items: list[_Item]

    def __post_init__(self) -> None:
        found = [item.index for item in self.items]
        if found != list(range(1, len(found) + 1)):
            raise ValueError(f"the items' indexes are {found}, and not 1, 2, 3 ... in order")


@functools.cache
def _items_of(count: int) -> type[_Items]:
    """Verdicts of so many items, no more and no fewer."""
    counted = Annotated[list[_Item], msgspec.Meta(min_length=count, max_length=count)]
    made = msgspec.defstruct("Items", [("items", counted)], bases=(_Items,), frozen=True, kw_only=True)
    return cast(type[_Items], made)


class Rubric(NamedTuple):
    """How one metric is judged. `lowest`: the mark of an answer, or of a retrieval, that is empty: of that no model is
    asked. `needs`: the gold without which there is nothing to judge; `looks_at`: what is judged."""

    prompt: str
    needs: Literal["reference", "memories"]
    looks_at: Literal["answer", "retrieved"]
    lowest: int
    shown: Callable[[RatingCase, PromptLanguage], dict[str, str]]
    kind: Callable[[RatingCase], type[msgspec.Struct]]
    opinion: Callable[[msgspec.Struct], Opinion]


def unanswerable(rubric: Rubric, case: RatingCase) -> str:
    """Why nothing can be judged; empty if it can."""
    if not case.question.strip():
        return "the probe has no question"
    if rubric.needs == "memories" and not case.memories:
        return "the probe has no gold memory to judge by"
    if rubric.needs == "reference" and not case.reference.strip():
        return "the probe has no reference answer to judge by"
    return ""


def empty(rubric: Rubric, case: RatingCase) -> str:
    """Why the case has the lowest mark without a model being asked; empty where one is to be."""
    if rubric.looks_at == "retrieved" and not case.retrieved:
        return "nothing was retrieved"
    if rubric.looks_at == "answer" and not case.answer.strip():
        return "the answer is empty"
    return ""


def _question(case: RatingCase) -> str:
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, case.options, strict=False)]
    return "\n".join([case.question, *lines])


def _numbered(texts: tuple[str, ...], language: PromptLanguage) -> str:
    """One item a line; further lines of an item are indented, so that none looks like an item of its own."""
    items = (f"{number}. {text}".replace("\n", "\n   ") for number, text in enumerate(texts, 1))
    return "\n".join(items) or _NOTHING[language]


def _retrieved(case: RatingCase, language: PromptLanguage) -> str:
    records = tuple(f"[{format_event_time(r.event_time_us)}] {r.text}" for r in case.retrieved)
    return _numbered(records, language)


def _now(case: RatingCase) -> str:
    return format_event_time(case.asked_time_us)


def _shown_qa(case: RatingCase, language: PromptLanguage) -> dict[str, str]:
    return {
        "question": _question(case),
        "memories": _numbered(case.memories, language),
        "reference": case.reference.strip() or _NOTHING[language],
        "answer": case.answer,
    }


def _shown_recall(case: RatingCase, language: PromptLanguage) -> dict[str, str]:
    return {"retrieved": _retrieved(case, language), "items": _numbered(case.memories, language)}


def _shown_helpful(case: RatingCase, language: PromptLanguage) -> dict[str, str]:
    return {
        "question": _question(case),
        "now": _now(case),
        "reference": case.reference,
        "retrieved": _retrieved(case, language),
    }


def _shown_answer(case: RatingCase, language: PromptLanguage) -> dict[str, str]:
    return {
        "question": _question(case),
        "now": _now(case),
        "reference": case.reference,
        "answer": case.answer,
    }


def _qa(said: msgspec.Struct) -> Opinion:
    assert isinstance(said, _Qa)
    return Opinion(mark=said.rating, value=qa_score(said.rating), reason=said.reason)


def _helpful(said: msgspec.Struct) -> Opinion:
    assert isinstance(said, _Helpful)
    return Opinion(mark=said.rating, value=helpfulness(said.rating), reason=said.reason)


def _rated(said: msgspec.Struct) -> Opinion:
    assert isinstance(said, _Quality)
    return Opinion(mark=said.rating, value=scaled_rating(said.rating) / 100.0, reason=said.reason)


def _equal(said: msgspec.Struct) -> Opinion:
    assert isinstance(said, _Equal)
    return Opinion(mark=int(said.equal), value=float(said.equal), reason=said.reason)


def _covered(said: msgspec.Struct) -> Opinion:
    assert isinstance(said, _Items)
    covered = sum(item.covered for item in said.items)
    reason = "; ".join(
        f"{item.index} {'covered' if item.covered else 'missing'}: {item.reason}" for item in said.items
    )
    return Opinion(mark=covered, value=memory_recall(covered, len(said.items)), reason=reason)


RUBRICS: Final[Mapping[RatedMetric, Rubric]] = MappingProxyType(
    {
        "qa": Rubric("qa_v1", "memories", "answer", 0, _shown_qa, lambda _: _Qa, _qa),
        "memory_recall": Rubric(
            "memory_recall_v1",
            "memories",
            "retrieved",
            0,
            _shown_recall,
            lambda case: _items_of(len(case.memories)),
            _covered,
        ),
        "helpful": Rubric(
            "helpful_v1", "reference", "retrieved", 0, _shown_helpful, lambda _: _Helpful, _helpful
        ),
        "open_answer": Rubric(
            "open_answer_v1", "reference", "answer", 0, _shown_answer, lambda _: _Equal, _equal
        ),
        "rating": Rubric(
            "rating_v1", "reference", "answer", RATINGS[0], _shown_answer, lambda _: _Quality, _rated
        ),
    }
)
