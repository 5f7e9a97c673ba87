"""Votes of a model: one question, asked several times over, each answer a vote of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from adapters.metering import spent
from adapters.model import Ask, Message, Model
from judges.judge import Case, Judgment
from judges.panel import majority
from simulator.errors import ModelError
from simulator.events import Outcome, Vote

T = TypeVar("T")

JUDGE_TEMPERATURE: Final = 0.5
"""The paper's."""
_SEED: Final = 0
_REASON_CHARACTERS: Final = 300


class Poll(msgspec.Struct, Generic[T], frozen=True):
    """What came of one question: the judgment, and each vote's answer, None for one that failed."""

    judgment: Judgment
    answers: tuple[T | None, ...]


async def poll(
    model: Model,
    label: str,
    case: Case,
    messages: tuple[Message, ...],
    votes: int,
    kind: type[T],
    decide: Callable[[T], tuple[Outcome, str]],
) -> Poll[T]:
    """Ask all votes at once and count them. A call that fails is an unjudged vote. The seed makes an equal run's votes
    equal, and endpoints add the vote's number to it: with one seed for all, a server that heeds it gives one answer
    thrice."""
    cast: list[Vote] = [Vote(outcome="unjudged", judge=label)] * votes
    answers: list[T | None] = [None] * votes
    failures: dict[int, ModelError] = {}

    async def ask(number: int) -> None:
        ask = Ask(
            messages=messages,
            temperature=JUDGE_TEMPERATURE,
            seed=_SEED,
            vote=number,
        )
        try:
            answer, said = await model.ask_for(ask, kind)
        except ModelError as error:
            failures[number] = error
            cast[number] = replace(cast[number], reason=f"{error.failure}: {error}")
            return
        outcome, reason = decide(answer)
        answers[number] = answer
        cast[number] = Vote(outcome=outcome, reason=reason, judge=label, usage=spent(said.usage))

    async with anyio.create_task_group() as asking:
        for number in range(votes):
            asking.start_soon(ask, number)
    judgment = majority(cast)
    if judgment.outcome == "unjudged":
        judgment = replace(
            judgment, reason=_unjudged(label, case, cast, [failures[number] for number in sorted(failures)])
        )
    return Poll(judgment, tuple(answers))


def _unjudged(label: str, case: Case, votes: list[Vote], failures: list[ModelError]) -> str:
    """Why there is no majority, in words that agents may read: a trajectory that this closes says so on the control
    topic. What a model said may hold the gold, and stands in the votes alone."""
    counts = Counter(vote.outcome for vote in votes)
    if failures and not counts["pass"] + counts["fail"]:
        tally = f"{label} gave no vote"
    else:
        tally = (
            f"{label}: no majority, {counts['pass']} pass, {counts['fail']} fail, {counts['unjudged']} failed"
        )
    told: dict[str, str] = {}
    for failure in failures:  # of each kind the first: that others were then not asked says no more
        told.setdefault(failure.failure, _failure(case, failure))
    return f"{tally} ({'; '.join(told.values())})" if told else tally


def _failure(case: Case, error: ModelError) -> str:
    if error.failure == "nonsense":
        return "nonsense: its answers don't fit what was asked for"
    text = f"{error.failure}: {error.reason}"[:_REASON_CHARACTERS]
    anchor = case.anchor
    secrets = (
        anchor.evidence_statement,
        anchor.initial_task.expected_behavior,
        anchor.followup_task.expected_behavior,
    )
    # a server that refuses may repeat what it was sent
    return error.failure if any(secret.lower() in text.lower() for secret in secrets if secret) else text
