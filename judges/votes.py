"""Votes of a model: one question, asked several times over, each answer a vote of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from adapters.metering import spent
from adapters.model import Ask, Message, Model
from judges.judge import Case, Judgment
from judges.metrics import quotes
from judges.panel import majority
from simulator.errors import ModelError
from simulator.events import Outcome, Usage, Vote

T = TypeVar("T")

JUDGE_TEMPERATURE: Final = 0.5
"""The paper's."""
_SEED: Final = 0
_REASON_CHARACTERS: Final = 300


class Answered(msgspec.Struct, Generic[T], frozen=True):
    """What a model said to one vote, and what that took."""

    value: T
    usage: Usage


class Poll(msgspec.Struct, Generic[T], frozen=True):
    """What came of one question: the judgment, and each vote's answer, None for one that failed."""

    judgment: Judgment
    answers: tuple[T | None, ...]


async def ask_votes(
    model: Model, messages: tuple[Message, ...], votes: int, kind: type[T]
) -> list[Answered[T] | ModelError]:
    """Ask all votes at once; by number, what each says, or how it failed. The seed makes an equal run's votes equal,
    and endpoints add the vote's number to it: with one seed for all, a server that heeds it gives one answer thrice."""
    found: dict[int, Answered[T] | ModelError] = {}

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
            found[number] = error
            return
        found[number] = Answered(answer, spent(said.usage))

    async with anyio.create_task_group() as asking:
        for number in range(votes):
            asking.start_soon(ask, number)
    return [found[number] for number in range(votes)]


def failed_vote(label: str, error: ModelError) -> Vote:
    """A vote that came to nothing, and why."""
    return Vote(outcome="unjudged", reason=f"{error.failure}: {error}", judge=label)


async def poll(
    model: Model,
    label: str,
    case: Case,
    messages: tuple[Message, ...],
    votes: int,
    kind: type[T],
    decide: Callable[[T], tuple[Outcome, str]],
) -> Poll[T]:
    """Ask all votes and count them. A call that fails is an unjudged vote."""
    said = await ask_votes(model, messages, votes, kind)
    cast: list[Vote] = []
    for answer in said:
        if isinstance(answer, ModelError):
            cast.append(failed_vote(label, answer))
            continue
        outcome, reason = decide(answer.value)
        cast.append(Vote(outcome=outcome, reason=reason, judge=label, usage=answer.usage))
    judgment = majority(cast)
    if judgment.outcome == "unjudged":
        judgment = replace(judgment, reason=_unjudged(label, case, cast, failures(said)))
    return Poll(judgment, tuple(None if isinstance(a, ModelError) else a.value for a in said))


def failures(said: Iterable[object]) -> list[ModelError]:
    """The votes that failed, by number."""
    return [answer for answer in said if isinstance(answer, ModelError)]


def _unjudged(label: str, case: Case, votes: list[Vote], failed: list[ModelError]) -> str:
    """Why there is no majority."""
    counts = Counter(vote.outcome for vote in votes)
    anchor = case.anchor
    secrets = (
        anchor.evidence_statement,
        anchor.initial_task.expected_behavior,
        anchor.followup_task.expected_behavior,
    )
    if failed and not counts["pass"] + counts["fail"]:
        tally = f"{label} gave no vote"
    else:
        tally = (
            f"{label}: no majority, {counts['pass']} pass, {counts['fail']} fail, {counts['unjudged']} failed"
        )
    return why_unjudged(tally, failed, secrets)


def why_unjudged(tally: str, failed: Iterable[ModelError], secrets: Iterable[str]) -> str:
    """Why votes came to nothing, in words that agents may read: a trajectory that this closes says so on the control
    topic. What a model said may hold the gold, and stands in the votes alone."""
    hidden = [secret for secret in secrets if secret]
    told: dict[str, str] = {}
    for failure in failed:  # of each kind the first: that others were then not asked says no more
        told.setdefault(failure.failure, _failure(failure, hidden))
    return f"{tally} ({'; '.join(told.values())})" if told else tally


def _failure(error: ModelError, hidden: Iterable[str]) -> str:
    if error.failure == "nonsense":
        return "nonsense: its answers don't fit what was asked for"
    text = f"{error.failure}: {error.reason}"
    # a server that refuses may repeat what it was sent, whole or cut off
    told = any(secret.lower() in text.lower() or quotes(text, secret) for secret in hidden)
    return error.failure if told else text[:_REASON_CHARACTERS]
