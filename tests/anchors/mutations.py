"""Anchors made wrong in one way each, and the one check that has to find it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

from msgspec.structs import replace

from producers.anchors.stated import Stated, StatedAnchor
from producers.anchors.streams import StreamIndex
from producers.lifelog import SegmentSpan
from simulator.text import tokens

Edit = Callable[[StatedAnchor, StreamIndex, SegmentSpan], None]


class Mutation(NamedTuple):
    name: str
    check: str
    edit: Edit


def mutate(stated: Stated, mutation: Mutation, stream: StreamIndex) -> Stated:
    changed = deepcopy(stated)
    span = stream.span(stated.place.day, stated.place.segment_id)
    assert span is not None
    mutation.edit(changed.anchor, stream, span)
    return changed


def moved_to_segment(stated: Stated, segment_id: int) -> Stated:
    """The anchor, stated for another segment, and with no times to give that away."""
    changed = deepcopy(stated)
    assert changed.anchor.source_span is not None
    changed.anchor.source_span.time_window = None
    return replace(changed, place=replace(stated.place, segment_id=segment_id, time_range=None))


def set_index(anchor: StatedAnchor, index: int) -> None:
    """Give the first supporting observation another index, everywhere where it stands."""
    assert anchor.supporting_observations
    assert anchor.source_span is not None
    first = anchor.supporting_observations[0]
    assert first.metadata is not None
    first.metadata.stream_index = index
    first.timestamp = f"stream_index:{index}"
    anchor.source_span.raw_indices = [o.stream_index for o in anchor.supporting_observations]


def _other_in_segment(anchor: StatedAnchor, stream: StreamIndex, span: SegmentSpan) -> None:
    text = anchor.supporting_observations[0].text  # type: ignore[index]  # checked before a mutation is tried
    others = (stream.observation(seq) for seq in range(span.first_seq, span.last_seq + 1))
    set_index(anchor, next(o.stream_index for o in others if o.text != text))  # type: ignore[arg-type]


def _edit_supporting(**values: str) -> Edit:
    def edit(anchor: StatedAnchor, stream: StreamIndex, span: SegmentSpan) -> None:
        first = anchor.supporting_observations[-1]  # type: ignore[index]
        for name, value in values.items():
            setattr(first.metadata if name == "quote_hint" else first, name, value)

    return edit


def _edit(path: str, value: object) -> Edit:
    def edit(anchor: StatedAnchor, stream: StreamIndex, span: SegmentSpan) -> None:
        *parents, last = path.split(".")
        target: object = anchor
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, last, value)

    return edit


def _leak(task: str) -> Edit:
    def edit(anchor: StatedAnchor, stream: StreamIndex, span: SegmentSpan) -> None:
        request = f"Bear in mind: {anchor.evidence_statement} So what do I tell the landlord?"
        getattr(anchor.tasks, task).user_request = request

    return edit


def _quoted(anchor: StatedAnchor, stream: StreamIndex, span: SegmentSpan) -> None:
    quotes = [o.quote or "" for o in anchor.supporting_observations or ()]
    longest = max(quotes, key=lambda quote: len(tokens(quote)))
    anchor.tasks.initial_task.user_request = f"Somebody said {longest.upper()}. What now?"


def _equal(anchor: StatedAnchor, stream: StreamIndex, span: SegmentSpan) -> None:
    request = anchor.tasks.initial_task.user_request or ""
    anchor.tasks.followup_task.user_request = f"  {request.upper()}!"


def _similar(anchor: StatedAnchor, stream: StreamIndex, span: SegmentSpan) -> None:
    anchor.tasks.followup_task.user_request = f"And tomorrow? {anchor.tasks.initial_task.user_request}"


def _no_evidence(anchor: StatedAnchor, stream: StreamIndex, span: SegmentSpan) -> None:
    anchor.supporting_observations = []
    anchor.source_span.raw_indices = []  # type: ignore[union-attr]


_TEXTS = (
    "evidence_id",
    "evidence_statement",
    "evidence_type",
    "subject",
    "tasks.initial_task.user_request",
    "tasks.initial_task.expected_behavior",
    "tasks.followup_task.user_request",
    "tasks.followup_task.expected_behavior",
)

MUTATIONS = (
    Mutation("wrong quote", "quote_not_found", _edit_supporting(quote_hint="I keep bees on the roof")),
    Mutation("wrong text", "text_differs", _edit_supporting(text="Nobody: I keep bees on the roof")),
    Mutation("wrong source", "text_differs", _edit_supporting(source="rumour")),
    Mutation("index of another line of the segment", "text_differs", _other_in_segment),
    Mutation("index past the day", "no_such_observation", lambda anchor, *_: set_index(anchor, 9_999_999)),
    Mutation("another timestamp", "index_disagrees", _edit_supporting(timestamp="stream_index:9999999")),
    Mutation("other raw indices", "index_disagrees", _edit("source_span.raw_indices", [0, 9_999_999])),
    Mutation("raw indices of no known form", "index_disagrees", _edit("source_span.raw_indices", "17")),
    Mutation("wrong window", "wrong_time_window", _edit("source_span.time_window", "03:00:00-03:05:00")),
    Mutation("no window", "wrong_time_window", _edit("source_span.time_window", "at noon")),
    Mutation("leak into the first request", "leak", _leak("initial_task")),
    Mutation("leak into the follow-up", "leak", _leak("followup_task")),
    Mutation("equal requests", "equal_requests", _equal),
    Mutation("near-equal requests", "similar_requests", _similar),
    Mutation("unknown type", "unknown_type", _edit("evidence_type", "guessed")),
    Mutation("somebody else as self", "wrong_self", _edit("subject", "Zebulon (self)")),
    Mutation("unknown subject", "unknown_subject", _edit("subject", "Zebulon")),
    Mutation("no evidence", "empty_field", _no_evidence),
    Mutation("no quote", "empty_field", _edit_supporting(quote_hint="")),
    Mutation("blank text", "empty_field", _edit_supporting(text="  ")),
    *(Mutation(f"no {path}", "empty_field", _edit(path, None)) for path in _TEXTS),
    *(Mutation(f"blank {path}", "empty_field", _edit(path, " \n")) for path in _TEXTS),
)
QUOTED = Mutation("quote in a request", "leak", _quoted)
"""For anchors with a quote that is long enough."""
