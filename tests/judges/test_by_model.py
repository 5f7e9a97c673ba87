"""Judges by a model: what they ask, how votes become a verdict, and what the person may say."""

from __future__ import annotations

import itertools
import json

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.metering import metered
from adapters.model import Ask, Said
from adapters.prompt import PromptLanguage, load_prompt
from judges.by_model import (
    FIDELITY_PROMPT,
    JUDGE_PROMPTS,
    USER_PROMPT,
    ModelFidelityAuditor,
    ModelUserSimulator,
    model_judges,
    revision,
)
from judges.deterministic import official_feedback
from judges.judge import Case, Judgment
from judges.metrics import overlap
from judges.panel import JudgePanel
from judges.votes import JUDGE_TEMPERATURE
from simulator.errors import ModelError
from simulator.events import Metric, Usage
from simulator.protocols.streammembench import METRICS
from tests.judges.test_deterministic import anchor_of
from tests.models.fakes import FakeModel, Says, down

ANCHOR = anchor_of(
    "Shure brews pour over coffee every morning",
    "names pour over as the method and offers the gooseneck kettle",
    "advises against buying another espresso machine for the kitchen",
)


def finding(present: bool, reason: str = "because") -> str:
    found = {"index": 1, "knowledge_statement": "s", "present": present, "reason": reason}
    return json.dumps({"findings": [found]})


def reaction(kind: str, feedback: str = "", reason: str = "because") -> str:
    return json.dumps({"type": kind, "reason": reason, "feedback": feedback, "evidence": []})


def votes_of(*said: str | ModelError) -> Says:
    """Vote → what is said, whichever vote is asked first."""
    return lambda ask: said[ask.vote]


async def judged(model: FakeModel, metric: Metric, text: str = "no idea", votes: int = 3) -> Judgment:
    panel = JudgePanel(model_judges(model, "m", votes=votes), METRICS)
    return await panel.judge(Case(metric=metric, anchor=ANCHOR, text=text))


@pytest.mark.parametrize(
    ("said", "outcome", "agreement"),
    [
        ((True, True, True), "pass", 1.0),
        ((True, False, True), "pass", 2 / 3),
        ((False, True, False), "fail", 2 / 3),
    ],
)
async def test_the_majority_of_three_votes_is_the_verdict(
    said: tuple[bool, ...], outcome: str, agreement: float
) -> None:
    model = FakeModel(says=votes_of(*(finding(present, f"vote {i}") for i, present in enumerate(said))))
    judgment = await judged(model, "fidelity")
    assert (judgment.outcome, judgment.scores) == (outcome, {"agreement": agreement})
    assert [vote.outcome == "pass" for vote in judgment.votes] == list(said)
    assert [vote.reason for vote in judgment.votes] == ["vote 0", "vote 1", "vote 2"]
    assert {vote.judge for vote in judgment.votes} == {"m"}
    assert all(vote.usage == Usage(prompt_tokens=10, completion_tokens=2, calls=1) for vote in judgment.votes)


async def test_a_vote_that_fails_is_no_fail_and_leaves_a_majority_to_the_others() -> None:
    model = FakeModel(says=votes_of(finding(True), down(), finding(True)))
    judgment = await judged(model, "fidelity")
    assert (judgment.outcome, judgment.scores["agreement"]) == ("pass", 2 / 3)
    assert judgment.votes[1].outcome == "unjudged"
    assert judgment.votes[1].reason == "unavailable: fake: can't connect"
    assert judgment.votes[1].usage == Usage()


@pytest.mark.parametrize("metric", METRICS)
async def test_a_judge_that_is_down_leaves_everything_unjudged_and_says_why(metric: Metric) -> None:
    judgment = await judged(FakeModel(says=lambda ask: down()), metric)
    assert judgment.outcome == "unjudged"
    assert judgment.reason == "m gave no vote (unavailable: can't connect)"
    assert len(judgment.votes) == 3
    assert judgment.feedback is None


async def test_a_tie_is_unjudged() -> None:
    model = FakeModel(says=votes_of(finding(True), finding(False)))
    judgment = await judged(model, "fidelity", votes=2)
    assert (judgment.outcome, judgment.reason) == ("unjudged", "m: no majority, 1 pass, 1 fail, 0 failed")


@pytest.mark.parametrize(
    "said", ["{}", "sorry", json.dumps({"findings": []}), finding(True).replace("[", "[" + "{},", 1)]
)
async def test_a_reply_that_does_not_fit_is_a_failed_vote_and_its_words_stay_with_it(said: str) -> None:
    judgment = await judged(FakeModel(says=lambda ask: said), "fidelity")
    assert judgment.outcome == "unjudged"
    assert judgment.reason == "m gave no vote (nonsense: its answers don't fit what was asked for)"
    assert said in judgment.votes[0].reason


async def test_a_reason_never_tells_agents_the_gold() -> None:
    said = f"400 Bad Request: can't read {ANCHOR.followup_task.expected_behavior.upper()}"
    refused = ModelError("fake", "refused", said)
    judgment = await judged(FakeModel(says=lambda ask: refused), "ieu")
    assert judgment.reason == "m gave no vote (refused)"
    assert said in judgment.votes[0].reason


async def test_votes_are_asked_apart_and_alike_in_every_run() -> None:
    asked = []
    for _ in range(2):
        model = FakeModel(says=lambda ask: finding(True))
        await judged(model, "fidelity")
        asked.append(sorted(model.asks, key=lambda ask: ask.vote))
    assert asked[0] == asked[1]
    assert [ask.vote for ask in asked[0]] == [0, 1, 2]
    assert {(ask.temperature, ask.seed) for ask in asked[0]} == {(JUDGE_TEMPERATURE, 0)}
    assert JUDGE_TEMPERATURE == 0.5


async def test_votes_are_asked_at_once() -> None:
    waiting, all_there = 0, anyio.Event()

    class Patient(FakeModel):
        async def ask(self, ask: Ask) -> Said:
            nonlocal waiting
            waiting += 1
            if waiting == 3:
                all_there.set()
            with anyio.fail_after(10):
                await all_there.wait()
            return await super().ask(ask)

    assert (await judged(Patient(says=lambda ask: finding(True)), "fidelity")).outcome == "pass"


async def test_what_votes_took_is_metered() -> None:
    with metered() as meter:
        await judged(FakeModel(says=lambda ask: finding(True)), "fidelity")
    assert meter.headers() == {"model_us": 1_500_000, "model_cached": 0}


def shown(metric: Metric) -> str:
    model = FakeModel(says=lambda ask: finding(True) if metric == "fidelity" else reaction("affirm"))
    anyio.run(judged, model, metric, "what was written or said")
    return model.prompts()[0]


@pytest.mark.parametrize("metric", METRICS)
def test_a_judge_sees_what_it_judges_on_and_no_other_task(metric: Metric) -> None:
    text = shown(metric)
    first, second = ANCHOR.initial_task.expected_behavior, ANCHOR.followup_task.expected_behavior
    assert ANCHOR.evidence_statement in text
    assert "what was written or said" in text
    assert (first in text) == (metric in ("ieu", "fi"))
    assert (second in text) == (metric in ("fur", "fur_uncommitted"))


async def test_affirm_says_a_fixed_sentence_whatever_the_model_says() -> None:
    model = FakeModel(says=lambda ask: reaction("affirm", f"right, {ANCHOR.evidence_statement}"))
    judgment = await judged(model, "ieu")
    assert judgment.feedback == official_feedback(True, ANCHOR.evidence_statement)
    assert judgment.feedback is not None
    assert ANCHOR.evidence_statement not in judgment.feedback.text


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_feedback_is_the_first_vote_s_on_the_majority_s_side_whichever_answers_first(
    order: tuple[int, ...],
) -> None:
    told = [f"{word}, {ANCHOR.evidence_statement}. Again please." for word in ("well", "so", "hm")]
    said = (reaction("affirm", told[0]), reaction("revise", told[1]), reaction("revise", told[2]))

    class Slow(FakeModel):
        async def ask(self, ask: Ask) -> Said:
            for _ in range(10 * order.index(ask.vote)):
                await anyio.lowlevel.checkpoint()
            return await super().ask(ask)

    judgment = await judged(Slow(says=votes_of(*said)), "ieu")
    assert judgment.outcome == "fail"
    assert judgment.feedback is not None
    assert (judgment.feedback.type, judgment.feedback.text) == ("revise", told[1])
    assert judgment.scores["own_words"] == 1.0


@pytest.mark.parametrize("metric", ["fi", "fur", "fur_uncommitted"])
async def test_only_r1_is_answered_with_feedback(metric: Metric) -> None:
    for kind in ("affirm", "revise"):
        judgment = await judged(FakeModel(says=lambda ask, kind=kind: reaction(kind, "again")), metric)
        assert judgment.outcome == ("pass" if kind == "affirm" else "fail")
        assert judgment.feedback is None


def test_feedback_states_the_evidence_even_if_the_model_does_not() -> None:
    told = revision("Not quite. Try again, please.", ANCHOR, "no idea")
    assert told is not None
    assert told.text == f"Not quite. Try again, please. {ANCHOR.evidence_statement}"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "   ",
        "Remember the coffee; and it should be: names pour over as the method.",
        f"You could say: {ANCHOR.followup_task.expected_behavior}",
        "You say that Tasha keeps the blue mugs in the cellar, but I brew pour over coffee.",
    ],
)
async def test_feedback_that_tells_gold_or_quotes_the_answer_is_replaced(said: str) -> None:
    response = "I know that Tasha keeps the blue mugs in the cellar."
    assert revision(said, ANCHOR, response) is None
    judgment = await judged(FakeModel(says=lambda ask: reaction("revise", said)), "ieu", response)
    assert judgment.feedback == official_feedback(False, ANCHOR.evidence_statement)
    assert judgment.scores["own_words"] == 0.0


def test_feedback_may_repeat_the_evidence_and_the_request_though_the_answer_has_them_too() -> None:
    said = f"As I asked, who? {ANCHOR.evidence_statement}"
    assert revision(said, ANCHOR, f"perhaps {ANCHOR.evidence_statement}") is not None


@given(st.text(), st.text())
def test_what_may_be_said_always_holds_the_evidence(said: str, response: str) -> None:
    told = revision(said, ANCHOR, response)
    if told is not None:
        assert overlap(ANCHOR.evidence_statement, told.text) >= 0.5


@pytest.mark.parametrize("language", ["en", "zh"])
def test_prompts_have_their_places_and_stand_in_the_judges_names(language: PromptLanguage) -> None:
    fidelity = load_prompt(JUDGE_PROMPTS, FIDELITY_PROMPT, language)
    user = load_prompt(JUDGE_PROMPTS, USER_PROMPT, language)
    assert fidelity.places == {"written", "statements"}
    assert user.places == {"request", "evidence", "behaviour", "answer"}
    for judge, prompt in zip(
        model_judges(FakeModel("the model"), "m", votes=5, language=language), (fidelity, user), strict=True
    ):
        for part in (prompt.digest, prompt.name, language, "the model", "votes=5", "temperature=0.5"):
            assert part in judge.name


def test_judges_are_told_apart_by_prompt_model_and_votes() -> None:
    names = {
        cls(FakeModel(name), "m", votes=votes, language=language).name
        for cls in (ModelFidelityAuditor, ModelUserSimulator)
        for name in ("one", "two")
        for votes in (1, 3)
        for language in ("en", "zh")
    }
    assert len(names) == 16
