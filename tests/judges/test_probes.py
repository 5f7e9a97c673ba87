"""Judges of probes by a model: what they ask, how votes become a value, and what they refuse to judge."""

from __future__ import annotations

import json
from statistics import median_low
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.metering import metered
from adapters.prompt import PromptLanguage, load_prompt
from judges.by_model import JUDGE_PROMPTS
from judges.rating import RATED_METRICS, ProbeJudge, Rated, UnratedError
from judges.rubrics import RUBRICS, RatedMetric, RatingCase
from simulator.errors import ModelError
from simulator.events import RetrievedRecord, Usage, Vote
from tests.models.fakes import FakeModel, Says, down
from tests.models.helpers import endpoint
from tests.models.server import Script, Server, Step, running_server

CASE = RatingCase(
    question="Which tea do I like by now?",
    options=("oolong", "sencha"),
    answer="You moved on to sencha.",
    reference="You like sencha better since March, and oolong no more.",
    memories=("likes sencha since March", "no longer drinks oolong at all"),
    retrieved=(
        RetrievedRecord(id="s4", text="I only drink sencha now", event_time_us=86_400_000_000, score=2.0),
        RetrievedRecord(id="s1", text="oolong is the best", event_time_us=0, score=1.0),
    ),
    asked_time_us=172_800_000_000,
)
SCALES: dict[RatedMetric, list[tuple[Any, float]]] = {  # what is said → the value
    "qa": [(0, 0.0), (1, 1 / 3), (2, 2 / 3), (3, 1.0)],
    "helpful": [(0, 0.0), (1, 0.5), (2, 1.0)],
    "rating": [(1, 0.0), (2, 0.25), (3, 0.5), (4, 0.75), (5, 1.0)],
    "open_answer": [(False, 0.0), (True, 1.0)],
    "memory_recall": [((False, False), 0.0), ((True, False), 0.5), ((True, True), 1.0)],
}


def said(metric: RatedMetric, what: Any, reason: str = "because") -> str:
    if metric == "memory_recall":
        items = [{"index": i, "reason": reason, "covered": c} for i, c in enumerate(what, 1)]
        return json.dumps({"items": items})
    return json.dumps({"reason": reason, "equal" if metric == "open_answer" else "rating": what})


def votes_of(*answers: str | ModelError) -> Says:
    return lambda ask: answers[ask.vote]


async def rated(says: Says, metric: RatedMetric, case: RatingCase = CASE, votes: int = 3) -> Rated:
    return await ProbeJudge(FakeModel(says=says), "m", votes=votes).rate(metric, case)


@pytest.mark.parametrize(
    ("metric", "what", "value"), [(metric, *pair) for metric, pairs in SCALES.items() for pair in pairs]
)
async def test_every_mark_of_every_scale(metric: RatedMetric, what: Any, value: float) -> None:
    found = await rated(lambda ask: said(metric, what), metric)
    assert found.value == value
    assert found.mark == (sum(what) if metric == "memory_recall" else int(what))
    assert found.agreement == 1.0
    assert found.usage == Usage(prompt_tokens=30, completion_tokens=6, calls=3)
    assert [(vote.value, vote.outcome, vote.judge) for vote in found.votes] == [
        (value, "pass" if value == 1.0 else "fail", "m")
    ] * 3


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7))
async def test_the_median_of_the_votes_is_the_value(marks: list[int]) -> None:
    answers = [said("qa", mark, f"vote {number}") for number, mark in enumerate(marks)]
    found = await rated(votes_of(*answers), "qa", votes=len(marks))
    assert found.mark == median_low(marks)
    assert found.value == found.mark / 3
    assert found.agreement == marks.count(found.mark) / len(marks)
    assert found.reason == f"vote {marks.index(found.mark)}"
    assert [vote.value for vote in found.votes] == [mark / 3 for mark in marks]


async def test_what_each_item_was_found_to_be_stands_in_the_reason() -> None:
    found = await rated(lambda ask: said("memory_recall", (True, False), "so"), "memory_recall")
    assert found.reason == "1 covered: so; 2 missing: so"


async def test_a_failed_vote_is_no_mark_and_leaves_the_value_to_the_others() -> None:
    found = await rated(votes_of(said("qa", 3), down(), said("qa", 2)), "qa")
    assert (found.mark, found.agreement) == (2, pytest.approx(1 / 3))
    assert found.votes[1] == Vote(outcome="unjudged", reason="unavailable: fake: can't connect", judge="m")
    assert found.usage.calls == 2


@pytest.mark.parametrize("metric", RATED_METRICS)
async def test_an_outage_is_unrated_and_says_why(metric: RatedMetric) -> None:
    with pytest.raises(UnratedError) as failed:
        await rated(lambda ask: down(), metric)
    assert failed.value.reason == "m gave no vote (unavailable: can't connect)"
    assert failed.value.failure == "unavailable"
    assert [vote.outcome for vote in failed.value.votes] == ["unjudged"] * 3


async def test_too_few_votes_are_unrated_and_kept() -> None:
    with pytest.raises(UnratedError, match="m gave 1 of 3 votes") as failed:
        await rated(votes_of(down(), said("qa", 3), down()), "qa")
    assert [vote.value for vote in failed.value.votes] == [None, 1.0, None]


@pytest.mark.parametrize(
    ("votes", "value"),
    [
        ((True, False, True), 1.0),
        ((False, True, False), 0.0),
        ((True, False), None),
        ((True, False, None), None),
    ],
)
async def test_yes_and_no_need_more_than_half_of_all_votes(
    votes: tuple[bool | None, ...], value: float | None
) -> None:
    answers = [down() if vote is None else said("open_answer", vote) for vote in votes]
    if value is None:
        with pytest.raises(UnratedError, match="no majority"):
            await rated(votes_of(*answers), "open_answer", votes=len(votes))
    else:
        assert (await rated(votes_of(*answers), "open_answer")).value == value


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("qa", said("qa", 4)),
        ("qa", said("qa", -1)),
        ("qa", said("qa", 2.5)),
        ("qa", "3"),
        ("helpful", said("helpful", 3)),
        ("rating", said("rating", 0)),
        ("rating", said("rating", 6)),
        ("open_answer", said("open_answer", "yes")),
        ("memory_recall", said("memory_recall", (True,))),
        ("memory_recall", said("memory_recall", (True, True, False))),
        ("memory_recall", said("memory_recall", (True, True)).replace('"index": 2', '"index": 1')),
    ],
)
async def test_what_is_off_the_scale_is_nonsense_and_no_mark(metric: RatedMetric, words: str) -> None:
    with pytest.raises(UnratedError) as failed:
        await rated(lambda ask: words, metric)
    assert failed.value.failure == "nonsense"
    assert failed.value.reason == "m gave no vote (nonsense: its answers don't fit what was asked for)"
    assert words in failed.value.votes[0].reason


@pytest.fixture(scope="module")
def server() -> Any:
    with running_server() as running:
        yield running


@pytest.mark.parametrize(
    ("metric", "wrong", "right"),
    [("qa", 7, 2), ("rating", 0, 4), ("memory_recall", (True,), (True, False))],
)
async def test_what_is_off_the_scale_is_asked_for_again(
    server: Server, metric: RatedMetric, wrong: Any, right: Any
) -> None:
    steps = (Step(say=said(metric, wrong)), Step(say=said(metric, right)))
    async with endpoint(server, Script(steps=steps)) as (model, _):
        found = await ProbeJudge(model, "m", votes=1).rate(metric, CASE)
    assert found.value == dict(SCALES[metric])[right]
    first, again = await server.asked()
    assert first.body["response_format"]["type"] == "json_schema"
    assert "That can't be used" in again.body["messages"][-1]["content"]


async def test_a_server_that_never_says_what_fits_leaves_it_unrated(server: Server) -> None:
    steps = (Step(say=said("qa", 7)),) * 3
    async with endpoint(server, Script(steps=steps)) as (model, _):
        with pytest.raises(UnratedError) as failed:
            await ProbeJudge(model, "m", votes=1).rate("qa", CASE)
    assert failed.value.failure == "nonsense"
    assert len(await server.asked()) == 3


@pytest.mark.parametrize(
    "told", [CASE.reference.upper(), f"...{CASE.memories[1][4:]}", f"{CASE.reference[:40]}..."]
)
async def test_a_reason_never_tells_agents_the_gold(told: str) -> None:
    refused = ModelError("fake", "refused", f"400 Bad Request: can't read {told}")
    with pytest.raises(UnratedError) as failed:
        await rated(lambda ask: refused, "qa")
    assert failed.value.reason == "m gave no vote (refused)"
    assert told in failed.value.votes[0].reason


SHOWN: dict[RatedMetric, set[str]] = {
    "qa": {"question", "options", "answer", "reference", "memories"},
    "memory_recall": {"memories", "retrieved"},
    "helpful": {"question", "options", "reference", "retrieved", "asked"},
    "open_answer": {"question", "options", "answer", "reference", "asked"},
    "rating": {"question", "options", "answer", "reference", "asked"},
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("metric", RATED_METRICS)
async def test_a_judge_sees_what_it_judges_on_and_nothing_else(
    metric: RatedMetric, language: PromptLanguage
) -> None:
    model = FakeModel(says=lambda ask: said(metric, SCALES[metric][-1][0]))
    await ProbeJudge(model, "m", votes=1, language=language).rate(metric, CASE)
    (text,) = model.prompts()
    marks = {
        "question": CASE.question,
        "options": "B. sencha",
        "answer": CASE.answer,
        "reference": CASE.reference,
        "memories": "2. no longer drinks oolong at all",
        "retrieved": "I only drink sencha now",
        "asked": "1970-01-03",
    }
    assert {name for name, mark in marks.items() if mark in text} == SHOWN[metric]
    assert "{{" not in text
    assert "s4" not in text  # ids say which session it is, and gold is by sessions


@pytest.mark.parametrize(
    ("metric", "lacking", "says"),
    [
        ("qa", {"memories": ()}, "no gold memory"),
        ("memory_recall", {"memories": ()}, "no gold memory"),
        ("helpful", {"reference": " "}, "no reference answer"),
        ("open_answer", {"reference": ""}, "no reference answer"),
        ("rating", {"reference": ""}, "no reference answer"),
        ("qa", {"question": ""}, "no question"),
    ],
)
async def test_without_gold_there_is_nothing_to_judge(
    metric: RatedMetric, lacking: dict[str, Any], says: str
) -> None:
    model = FakeModel()
    with pytest.raises(ValueError, match=f"{metric}: the probe has {says}"):
        await ProbeJudge(model, "m").rate(metric, replace(CASE, **lacking))
    assert not model.asks


@pytest.mark.parametrize("metric", RATED_METRICS)
async def test_what_is_empty_has_the_lowest_mark_and_costs_nothing(metric: RatedMetric) -> None:
    nothing = RUBRICS[metric].looks_at == "retrieved"
    case = replace(CASE, retrieved=()) if nothing else replace(CASE, answer=" \n")
    model = FakeModel()
    found = await ProbeJudge(model, "m").rate(metric, case)
    reason = "nothing was retrieved" if nothing else "the answer is empty"
    assert found == Rated(value=0.0, mark=1 if metric == "rating" else 0, reason=reason)
    assert not model.asks


async def test_votes_are_asked_apart_alike_in_every_run_and_metered() -> None:
    asked = []
    for _ in range(2):
        model = FakeModel(says=lambda ask: said("qa", 1))
        with metered() as meter:
            await ProbeJudge(model, "m").rate("qa", CASE)
        assert meter.headers() == {"model_us": 1_500_000, "model_cached": 0}
        asked.append(sorted(model.asks, key=lambda ask: ask.vote))
    assert asked[0] == asked[1]
    assert [(ask.vote, ask.temperature, ask.seed) for ask in asked[0]] == [(n, 0.5, 0) for n in range(3)]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_judges_name_has_its_model_votes_and_prompts(language: PromptLanguage) -> None:
    judge = ProbeJudge(FakeModel("the model"), "m", votes=5, language=language)
    for metric in RATED_METRICS:
        prompt = load_prompt(JUDGE_PROMPTS, RUBRICS[metric].prompt, language)
        for part in (str(prompt), "the model", "votes=5", "temperature=0.5"):
            assert part in judge.name_of(metric)
        assert str(prompt) in judge.name
    assert len({judge.name_of(metric) for metric in RATED_METRICS}) == len(RATED_METRICS)


def test_no_votes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ProbeJudge(FakeModel(), "m", votes=0)
