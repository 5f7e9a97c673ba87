"""What models are asked for anchors, and what is made of their answers. Pure, but for the prompts, which are files.

A_anchor proposes candidates for a segment; those that pass the mechanical checks are shown to A_review, one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from adapters.model import Ask
from adapters.prompt import Prompt, PromptLanguage, load_prompt
from producers.anchors.criteria import CRITERIA, Criterion
from producers.anchors.stated import (
    Place,
    SourceSpan,
    Stated,
    StatedAnchor,
    Supporting,
    SupportingMetadata,
    Task,
    Tasks,
)
from producers.anchors.streams import StreamIndex, wearer_of
from producers.inspection import clock_of
from producers.lifelog import SegmentSpan
from simulator.events import AnchorEvent, AnchorTask

ANCHOR_PROMPT: Final = "anchor_v1"
REVIEW_PROMPT: Final = "review_v1"
REVIEW_LINES: Final = 12
"""Lines of the segment that a reviewer sees before and after each quoted one."""
_PROMPTS: Final = Path(__file__).with_name("prompts")


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """A line that shows the evidence, as the model says."""

    index: int
    quote: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed anchor. What is wrong with it is found by the checks: only its form is fixed here."""

    evidence_statement: str
    evidence_type: str
    subject: str
    quotes: list[Quote]
    initial_task: AnchorTask
    followup_task: AnchorTask


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """What A_anchor answers."""

    anchors: list[Candidate]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A_review on one criterion."""

    reason: str
    passed: bool


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """What A_review answers: one field for each of `CRITERIA`."""

    evidence_support: Point
    subject_attribution: Point
    type: Point
    temporal_stability: Point
    single_instance: Point
    leak: Point
    need: Point
    naturalness: Point
    different_scenarios: Point

    @property
    def failed(self) -> dict[str, str]:
        """The criteria that it fails, each with the reason."""
        points: dict[Criterion, Point] = {criterion: getattr(self, criterion) for criterion in CRITERIA}
        return {criterion: point.reason for criterion, point in points.items() if not point.passed}


class Prompts(msgspec.Struct, frozen=True):
    """The prompts of one language."""

    anchor: Prompt
    review: Prompt

    @classmethod
    def load(cls, language: PromptLanguage) -> Prompts:
        """Read both. Blocking, and short."""
        return cls(
            load_prompt(_PROMPTS, ANCHOR_PROMPT, language), load_prompt(_PROMPTS, REVIEW_PROMPT, language)
        )


def anchor_ask(prompts: Prompts, stream: StreamIndex, span: SegmentSpan, most: int) -> Ask:
    """Asks A_anchor for at most `most` candidates of a segment."""
    when = f"{span.day}, {clock_of(span.start_time_us)} - {clock_of(span.end_time_us)}"
    return Ask(
        messages=prompts.anchor.messages(
            most=str(most), wearer=_name(stream), when=when, lines="\n".join(stream.lines(span))
        )
    )


def review_ask(prompts: Prompts, stream: StreamIndex, span: SegmentSpan, candidate: Candidate) -> Ask:
    """Asks A_review about one candidate."""
    seqs = (stream.seq(span.day, quote.index) for quote in candidate.quotes)
    lines = stream.lines(span, {seq for seq in seqs if seq is not None}, REVIEW_LINES)
    item = msgspec.json.format(msgspec.json.encode(candidate), indent=1).decode()
    return Ask(messages=prompts.review.messages(wearer=_name(stream), lines="\n".join(lines), item=item))


def _name(stream: StreamIndex) -> str:
    return wearer_of(stream.name).title()


def stated_of(candidate: Candidate, stream: StreamIndex, span: SegmentSpan, number: int) -> Stated:
    """A candidate as a release would state it, for the checks. What its quotes are of is looked up in the stream."""
    supporting = []
    for quote in candidate.quotes:
        seq = stream.seq(span.day, quote.index)
        observation = stream.observation(seq) if seq is not None else None
        supporting.append(
            Supporting(
                text=observation.text if observation is not None else quote.quote,
                source=observation.source if observation is not None else None,
                timestamp=f"stream_index:{quote.index}",
                metadata=SupportingMetadata(quote.index, quote.quote),
            )
        )
    anchor = StatedAnchor(
        evidence_id=f"candidate {number}",
        evidence_statement=candidate.evidence_statement,
        evidence_type=candidate.evidence_type,
        subject=candidate.subject,
        supporting_observations=supporting,
        source_span=SourceSpan(raw_indices=[quote.index for quote in candidate.quotes]),
        tasks=Tasks(_task(candidate.initial_task), _task(candidate.followup_task)),
    )
    place = Place("", f"$.anchors[{number}]", stream.name, span.day, span.segment_id)
    return Stated(place, anchor)


def _task(task: AnchorTask) -> Task:
    return Task(task.user_request, task.expected_behavior)


def event_of(
    candidate: Candidate, stream: StreamIndex, segment: int, span: SegmentSpan, ordinal: int
) -> AnchorEvent:
    """A kept candidate as the release's reader would give it. Its quotes must have passed the checks."""
    seqs = (stream.seq(span.day, quote.index) for quote in candidate.quotes)
    opaque = f"{stream.name}/s{segment}/e{ordinal}"
    return AnchorEvent(
        id=f"{opaque}/anchor",
        run="",
        stream=stream.name,
        event_time_us=span.end_time_us,
        anchor=opaque,
        segment=segment,
        evidence_id=f"{stream.name}_s{segment}_e{ordinal}".lower(),
        evidence_statement=candidate.evidence_statement,
        evidence_type=candidate.evidence_type,
        subject=candidate.subject,
        initial_task=candidate.initial_task,
        followup_task=candidate.followup_task,
        supporting_seqs=tuple(seq for seq in seqs if seq is not None),
    )
