"""Makes anchors: A_anchor proposes candidates for every segment, the mechanical checks and A_review sort out.

A segment is finished once all about it was asked and answered. One for which a model gave no usable answer is undone,
and asked again the next time; it never counts as one without evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from adapters.metering import estimated_tokens
from adapters.model import Model
from producers.anchors.candidates import (
    REVIEW_LINES,
    Candidate,
    Candidates,
    Prompts,
    Review,
    anchor_ask,
    event_of,
    review_ask,
    stated_of,
)
from producers.anchors.checks import check_anchor
from producers.anchors.state import Fallen, Finished, Spent, State
from producers.anchors.streams import StreamIndex
from producers.lifelog import Dataset, SegmentSpan
from simulator.errors import ModelError
from simulator.events import AnchorEvent

VERSION: Final = 1
"""Part of the identity: raise it when the same answers of the models make other anchors."""
GIVE_UP_AFTER: Final = 20
"""Undone segments one after the other, for want of a model that can be reached: the others are not tried then."""
EXAMPLES: Final = 3

Segment = tuple[str, int]
"""Stream, and the segment's number in it."""


class Asking(msgspec.Struct, frozen=True):
    """Whom to ask what. `most`: candidates of one segment. `concurrency`: segments under way at once."""

    anchor_model: Model
    review_model: Model
    prompts: Prompts
    most: int
    concurrency: int

    def identity(self, dataset: Dataset) -> dict[str, str]:
        """All that changes the anchors."""
        return {
            "version": str(VERSION),
            "dataset": dataset.digest,
            "segments": ", ".join(f"{name} {len(log.segments)}" for name, log in dataset.lifelogs.items()),
            "anchor_model": self.anchor_model.name,
            "review_model": self.review_model.name,
            "anchor_prompt": str(self.prompts.anchor),
            "review_prompt": str(self.prompts.review),
            "most_per_segment": str(self.most),
        }


class Progress(msgspec.Struct, frozen=True):
    """How far a construction is: segments finished and in all, those undone, and its anchors."""

    finished: int
    segments: int
    undone: int
    kept: int


class Example(msgspec.Struct, frozen=True):
    """A candidate that fell, and why."""

    evidence_statement: str
    reason: str


class Account(msgspec.Struct, frozen=True):
    """What a construction came to. A candidate that several criteria speak against counts for each."""

    segments: int
    undone: Mapping[str, str]
    """Segment (`A1_JAKE/s9`) → what kept the model from answering."""
    segments_with_anchors: int
    candidates: int
    kept: int
    by_type: Mapping[str, int]
    fell_by_checks: int
    fell_by_review: int
    reasons: Mapping[str, int]
    """`checks.leak`, `review.need` ..."""
    examples: Mapping[str, Sequence[Example]]
    spent: Spent


class Estimate(msgspec.Struct, frozen=True):
    """What a construction would ask, at most."""

    segments: int
    anchor_prompt_tokens: int
    most_reviews: int
    review_prompt_tokens: int


def estimate(dataset: Dataset, prompts: Prompts, most: int) -> Estimate:
    """Before anything is asked. A review is taken to show as many lines of its segment as it may of one quote, and its
    candidate to be as long as the prompt."""
    segments = anchor_tokens = line_tokens = lines = 0
    for lifelog in dataset.lifelogs.values():
        index = StreamIndex(lifelog)
        for span in lifelog.segments:
            segments += 1
            messages = anchor_ask(prompts, index, span, most).messages
            anchor_tokens += sum(estimated_tokens(message.content) for message in messages)
            lines += span.last_seq - span.first_seq + 1
            line_tokens += estimated_tokens("\n".join(index.lines(span)))
    shown = line_tokens / max(lines, 1) * min(2 * REVIEW_LINES + 1, lines / max(segments, 1))
    reviews = segments * most
    review_tokens = reviews * (2 * estimated_tokens(prompts.review.system) + shown)
    return Estimate(segments, anchor_tokens, reviews, round(review_tokens))


async def construct(
    dataset: Dataset, asking: Asking, state: State, tell: Callable[[Progress], None] = lambda _: None
) -> dict[Segment, str]:
    """Finish every segment that isn't yet; gives those that stay undone, with the reason."""
    indices = {name: StreamIndex(lifelog) for name, lifelog in dataset.lifelogs.items()}
    segments = segments_of(dataset)
    pending = iter([place for place in segments if place not in state.finished])
    undone: dict[Segment, str] = {}
    unreachable = 0
    kept = sum(len(finished.kept) for finished in state.finished.values())

    def now() -> Progress:
        return Progress(len(state.finished), len(segments), len(undone), kept)

    for index in indices.values():
        await anyio.to_thread.run_sync(index.count_words)
    writing = anyio.Lock()

    async def work() -> None:
        nonlocal unreachable, kept
        for stream, number in pending:
            if unreachable >= GIVE_UP_AFTER:
                undone[stream, number] = f"not tried, since {unreachable} segments before it failed"
                continue
            span = dataset.lifelogs[stream].segments[number]
            try:
                finished = await _segment(asking, indices[stream], number, span)
            except ModelError as error:
                undone[stream, number] = str(error)
                unreachable += error.failure in ("unavailable", "refused")
            else:
                unreachable = 0
                async with writing:
                    await anyio.to_thread.run_sync(state.append, finished)
                kept += len(finished.kept)
            tell(now())

    tell(now())
    async with anyio.create_task_group() as group:
        for _ in range(asking.concurrency):
            group.start_soon(work)
    return dict(sorted(undone.items()))


def segments_of(dataset: Dataset) -> list[Segment]:
    """All segments, stream by stream."""
    return [(name, number) for name, log in dataset.lifelogs.items() for number in range(len(log.segments))]


async def _segment(asking: Asking, stream: StreamIndex, number: int, span: SegmentSpan) -> Finished:
    """Everything about one segment. Raises ModelError."""
    kept: list[Candidate] = []
    fallen: list[Fallen] = []
    ask = anchor_ask(asking.prompts, stream, span, asking.most)
    proposed, said = await asking.anchor_model.ask_for(ask, Candidates)
    spent = Spent().plus(said.usage)
    statements: set[str] = set()
    for position, candidate in enumerate(proposed.anchors):
        wrong = dict(_wrong(candidate, stream, span, position))
        if position >= asking.most:
            wrong["too_many"] = f"more than {asking.most} candidates of one segment"
        if candidate.evidence_statement in statements:
            wrong["repeated"] = "another candidate of the segment states the same"
        statements.add(candidate.evidence_statement)
        if wrong:
            fallen.append(Fallen("checks", wrong, candidate))
            continue
        ask = review_ask(asking.prompts, stream, span, candidate)
        review, said = await asking.review_model.ask_for(ask, Review)
        spent = spent.plus(said.usage)
        if review.failed:
            fallen.append(Fallen("review", review.failed, candidate))
        else:
            kept.append(candidate)
    return Finished(stream.name, number, tuple(kept), tuple(fallen), spent)


def _wrong(
    candidate: Candidate, stream: StreamIndex, span: SegmentSpan, position: int
) -> Iterator[tuple[str, str]]:
    for finding in check_anchor(stated_of(candidate, stream, span, position), stream):
        if finding.severity == "error":
            yield finding.check, finding.message


def account(state: State, dataset: Dataset, undone: Mapping[Segment, str]) -> Account:
    """Read off what was finished."""
    finished = [state.finished[place] for place in segments_of(dataset) if place in state.finished]
    fallen = [one for segment in finished for one in segment.fallen]
    kept = [candidate for segment in finished for candidate in segment.kept]
    reasons: Counter[str] = Counter()
    examples: dict[str, list[Example]] = {}
    for one in fallen:
        for name, reason in one.reasons.items():
            key = f"{one.stage}.{name}"
            reasons[key] += 1
            if reasons[key] <= EXAMPLES:
                example = Example(one.candidate.evidence_statement, reason)
                examples.setdefault(key, []).append(example)
    return Account(
        segments=len(segments_of(dataset)),
        undone={f"{stream}/s{number}": reason for (stream, number), reason in undone.items()},
        segments_with_anchors=sum(bool(segment.kept) for segment in finished),
        candidates=len(kept) + len(fallen),
        kept=len(kept),
        by_type=dict(Counter(candidate.evidence_type for candidate in kept)),
        fell_by_checks=sum(one.stage == "checks" for one in fallen),
        fell_by_review=sum(one.stage == "review" for one in fallen),
        reasons=dict(reasons.most_common()),
        examples=examples,
        spent=sum((segment.spent for segment in finished), Spent()),
    )


def anchors_of(state: State, dataset: Dataset) -> tuple[list[AnchorEvent], dict[str, tuple[str, ...]]]:
    """The anchors of all finished segments, and by event id the quotes of each one's supporting observations."""
    anchors: list[AnchorEvent] = []
    quotes: dict[str, tuple[str, ...]] = {}
    for name, lifelog in dataset.lifelogs.items():
        index = StreamIndex(lifelog)
        for number, span in enumerate(lifelog.segments):
            finished = state.finished.get((name, number))
            for ordinal, candidate in enumerate(finished.kept if finished is not None else ()):
                event = event_of(candidate, index, number, span, ordinal)
                anchors.append(event)
                quotes[event.id] = tuple(quote.quote for quote in candidate.quotes)
    return anchors, quotes
