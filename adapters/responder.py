"""How memory systems answer: without a model, by what was retrieved, best first, under a word budget; or as the run's
own responder does (`adapters.answering` asks a model)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from adapters.memory import Answer, LaneContext, Request
from simulator.events import RetrievedRecord

_WORD = re.compile(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+")


def within(text: str, words: int) -> tuple[str, int]:
    """The text's first `words` words, and how many these are. Words stand between white space; a CJK
    character is a word by itself."""
    count = end = 0
    for match in _WORD.finditer(text):
        if count == words:
            return text[:end], count
        count += 1
        end = match.end()
    return text, count


def feedback_of(request: Request) -> str:
    """What the person said to the first response, where the request is to answer again (R_F); else empty."""
    if request.phase != "R_F":
        return ""
    return next((turn.text for turn in reversed(request.history) if turn.role == "user"), "")


def query_of(request: Request) -> str:
    """What to search for: the request and, for R_F, the feedback."""
    feedback = feedback_of(request)
    return f"{request.text}\n{feedback}" if feedback else request.text


def extract(request: Request, retrieved: Iterable[RetrievedRecord], word_budget: int) -> Answer:
    """An extractive answer: whole records while they fit; the first that does not fit is cut at the budget.

    The answer's `retrieved` are the records that were used. R_F begins with the person's feedback: it stands
    in the conversation, so any model would have it before it, whatever the memory holds.
    """
    parts: list[str] = []
    used: list[RetrievedRecord] = []
    left = word_budget
    feedback, count = within(feedback_of(request), left)
    if feedback:
        parts.append(feedback)
        left -= count
    for record in retrieved:
        if left <= 0:
            break
        text, count = within(record.text, left)
        parts.append(text)
        used.append(record)
        if len(text) < len(record.text):
            break
        left -= count
    return Answer(text="\n".join(parts), retrieved=tuple(used))


async def respond(context: LaneContext, request: Request, retrieved: Iterable[RetrievedRecord]) -> Answer:
    """Answer as the run answers."""
    ranking = tuple(retrieved) if context.ranked or context.sessions is not None else None
    given = retrieved if ranking is None else ranking
    if context.sessions is not None:
        given = context.sessions.whole(given, request.event_time_us)
    if context.responder is None:
        answer = extract(request, given, context.word_budget)
    else:
        answer = await context.responder.respond(request, given)
    return answer if ranking is None else replace(answer, retrieved=ranking)
