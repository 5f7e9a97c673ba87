"""Mechanical checks of anchors: what can be found wrong without a model or a person. Pure.

Each check looks for one thing, and leaves alone what another check has already found wrong, so that one mistake is one
finding. Errors are what no reviewer may overrule; warnings are for a reviewer to look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, get_args

import msgspec

from producers.anchors.stated import Stated, StatedAnchor, Supporting
from producers.anchors.streams import StreamIndex
from producers.anchors.words import similarity, spelled, units
from producers.datasets.streammembench import parse_time_range
from producers.lifelog import DAY_US, SegmentSpan
from simulator.text import tokens

Severity = Literal["error", "warning"]
EvidenceType = Literal["stated", "inferred"]

LEAK_SHARE: Final = 0.5
"""A request with this share of the statement's content words, a distinctive one among them, gives the evidence away:
the official judges take a text with half of a statement's words for the evidence itself. With less it may only name
what it is about, which a person has to do somehow; a reviewer looks at those. docs/anchors.md has figures."""
QUOTE_TOKENS: Final = 5
"""A quote of at least as many words (or Chinese characters) that stands whole in a request gives the evidence away too;
a shorter one may stand there by chance (`I don't know`)."""
SIMILAR_SHARE: Final = 0.5
"""Two requests that share at least half of their words (function words left aside) are one scenario told twice."""

CHECKS: Final[Mapping[str, tuple[Severity, str]]] = {
    "empty_field": ("error", "every field is there and says something"),
    "unknown_type": ("error", "the evidence type is stated or inferred"),
    "wrong_self": ("error", "the wearer, and nobody else, is marked (self)"),
    "unknown_subject": ("warning", "the subject occurs in the stream"),
    "repeated_id": ("error", "the evidence id is the wearer's only one of that name"),
    "no_such_segment": ("error", "the segment is in the stream"),
    "wrong_time_window": ("error", "stated times are those of the segment"),
    "index_disagrees": ("error", "an observation's two indices are one, and raw_indices lists them"),
    "no_such_observation": ("error", "the day has an observation of that index"),
    "outside_segment": ("error", "that observation is in the anchor's segment"),
    "text_differs": ("error", "that observation has the stated text and source"),
    "quote_not_found": ("error", "the quote stands literally in that observation"),
    "leak": ("error", "no request gives the evidence away"),
    "shared_word": ("warning", "no request has a distinctive word of the statement"),
    "equal_requests": ("error", "the two requests are not the same"),
    "similar_requests": ("error", "the two requests are of different scenarios"),
}
"""Check → its severity, and what holds where it finds nothing."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong with one anchor, and what to do about it."""

    check: str
    severity: Severity
    stream: str
    day: str
    segment_id: int
    evidence_id: str
    file: str
    path: str
    message: str


def check_anchor(stated: Stated, stream: StreamIndex | None) -> Iterator[Finding]:
    """What is wrong with one anchor; `stream` is None where the release doesn't have it."""
    place, anchor = stated.place, stated.anchor
    yield from (
        found_in(stated, "empty_field", f"{field} says nothing: fill it in") for field in _empty(anchor)
    )
    if _said(anchor.evidence_type) and anchor.evidence_type not in get_args(EvidenceType):
        known = " or ".join(get_args(EvidenceType))
        yield found_in(stated, "unknown_type", f"evidence_type is {anchor.evidence_type!r}, not {known}")
    yield from _check_requests(stated)
    span = stream.span(place.day, place.segment_id) if stream is not None else None
    if stream is None or span is None:
        where = f"{place.stream} {place.day}"
        yield found_in(
            stated,
            "no_such_segment",
            f"{where} has no segment {place.segment_id}: name the one that holds the evidence",
        )
        return
    yield from _check_subject(stated, stream)
    yield from _check_times(stated, span)
    for number, supporting in enumerate(anchor.supporting_observations or ()):
        yield from _check_supporting(stated, number, supporting, stream, span)
    yield from _check_indices(stated)
    yield from _check_leaks(stated, stream, span)


def found_in(stated: Stated, check: str, message: str) -> Finding:
    """What a check found."""
    place = stated.place
    return Finding(
        check=check,
        severity=CHECKS[check][0],
        stream=place.stream,
        day=place.day,
        segment_id=place.segment_id,
        evidence_id=stated.anchor.evidence_id or "",
        file=place.file,
        path=place.path,
        message=message,
    )


def _said(text: str | None) -> bool:
    return text is not None and text.strip() != ""


def _empty(anchor: StatedAnchor) -> Iterator[str]:
    texts = {
        "evidence_id": anchor.evidence_id,
        "evidence_statement": anchor.evidence_statement,
        "evidence_type": anchor.evidence_type,
        "subject": anchor.subject,
        "initial_task.user_request": anchor.tasks.initial_task.user_request,
        "initial_task.expected_behavior": anchor.tasks.initial_task.expected_behavior,
        "followup_task.user_request": anchor.tasks.followup_task.user_request,
        "followup_task.expected_behavior": anchor.tasks.followup_task.expected_behavior,
    }
    yield from (field for field, text in texts.items() if not _said(text))
    if not anchor.supporting_observations:
        yield "supporting_observations"
    for number, supporting in enumerate(anchor.supporting_observations or ()):
        parts = {"text": supporting.text, "quote_hint": supporting.quote}
        yield from (
            f"supporting_observations[{number}].{part}" for part, text in parts.items() if not _said(text)
        )
        if supporting.stream_index is None:
            yield f"supporting_observations[{number}].stream_index"


def _check_subject(stated: Stated, stream: StreamIndex) -> Iterator[Finding]:
    subject = (stated.anchor.subject or "").strip()
    if not subject:
        return
    name = subject.removesuffix("(self)").strip()
    marked, is_wearer = name != subject, stream.wearer != frozenset() and units(name) == stream.wearer
    if marked and stream.wearer and not is_wearer:
        yield found_in(
            stated, "wrong_self", f"{subject!r} is marked (self), but {stated.place.stream} wears the glasses"
        )
    elif is_wearer and not marked:
        yield found_in(stated, "wrong_self", f"{subject!r} wears the glasses: write {subject + ' (self)'!r}")
    elif (
        not is_wearer and (named := units(name)) and not any(stream.words.counts.get(unit) for unit in named)
    ):
        yield found_in(
            stated, "unknown_subject", f"nobody in the stream is called {name!r}: is the name right?"
        )


def _check_times(stated: Stated, span: SegmentSpan) -> Iterator[Finding]:
    source = stated.anchor.source_span
    windows = {
        "time_range": stated.place.time_range,
        "source_span.time_window": source.time_window if source is not None else None,
    }
    of_day = span.start_time_us // DAY_US * DAY_US
    start, end = span.start_time_us - of_day, span.end_time_us - of_day
    for field, window in windows.items():
        if window is None:
            continue
        clock = parse_time_range(window)
        if clock is None or clock[0] < start or clock[1] > end:
            message = f"{field} is {window!r}, not within the segment's {_clock(start)} - {_clock(end)}"
            yield found_in(stated, "wrong_time_window", message)


def _clock(of_day_us: int) -> str:
    seconds = of_day_us // 1_000_000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _check_supporting(
    stated: Stated, number: int, supporting: Supporting, stream: StreamIndex, span: SegmentSpan
) -> Iterator[Finding]:
    """Whether the stream has an observation where one is stated, in this segment, and saying the same."""
    index, day, name = supporting.stream_index, stated.place.day, f"supporting_observations[{number}]"
    if index is None:
        return
    seq = stream.seq(day, index)
    if seq is None:
        yield found_in(stated, "no_such_observation", f"{name}: {day} has no observation {index}")
        return
    if not span.first_seq <= seq <= span.last_seq:
        first, last = (stream.observation(s).stream_index for s in (span.first_seq, span.last_seq))
        message = (
            f"{name}: observation {index} is not in segment {span.segment_id}, which has {first} to {last}"
        )
        yield found_in(stated, "outside_segment", message)
        return
    observation = stream.observation(seq)
    if supporting.text is not None and _said(supporting.text) and supporting.text != observation.text:
        found = _where(supporting.text, stream, span)
        message = f"{name}: observation {index} is {observation.text!r}, not {supporting.text!r}{found}"
        yield found_in(stated, "text_differs", message)
        return
    if supporting.source is not None and supporting.source != observation.source:
        message = f"{name}: observation {index} is {observation.source}, not {supporting.source}"
        yield found_in(stated, "text_differs", message)
    if supporting.quote and _spaced(supporting.quote) not in _spaced(observation.text):
        message = (
            f"{name}: {supporting.quote!r} doesn't stand in {observation.text!r}: quote it letter by letter"
        )
        yield found_in(stated, "quote_not_found", message)


def _where(text: str, stream: StreamIndex, span: SegmentSpan) -> str:
    """Which observations of the segment have that text, as the end of a sentence."""
    same = [
        str(stream.observation(seq).stream_index)
        for seq in range(span.first_seq, span.last_seq + 1)
        if stream.observation(seq).text == text
    ]
    return f", which is {' and '.join(same)}" if same else ""


def _spaced(text: str) -> str:
    """A text with every run of white space as one space: all that may differ between a quote and what it quotes."""
    return " ".join(text.split())


def _check_indices(stated: Stated) -> Iterator[Finding]:
    supporting = stated.anchor.supporting_observations or ()
    for number, observation in enumerate(supporting):
        index, stamp = observation.stream_index, observation.timestamp_index
        if stamp is not None and index != stamp:
            message = (
                f"supporting_observations[{number}] is {index} by its metadata and {stamp} by its timestamp"
            )
            yield found_in(stated, "index_disagrees", message)
    listed = stated.anchor.source_span.raw_indices if stated.anchor.source_span is not None else None
    indices = [observation.stream_index for observation in supporting]
    if listed is not None and listed != indices:
        message = f"source_span.raw_indices is {listed}, but the supporting observations are {indices}"
        yield found_in(stated, "index_disagrees", message)


def _check_leaks(stated: Stated, stream: StreamIndex, span: SegmentSpan) -> Iterator[Finding]:
    anchor = stated.anchor
    content = units(anchor.evidence_statement or "") - stream.wearer - units(anchor.subject or "")
    for task, request in _requests(anchor):
        if quote := _quoted(anchor, request):
            yield found_in(stated, "leak", f"{task}.user_request quotes the evidence: {quote!r}")
            continue
        words = spelled(request)
        shared = content & words.keys()
        if not shared:
            continue
        own = units(stream.text(span))
        rare = stream.words.distinctive(shared, own)
        if not rare:
            continue
        check = "leak" if len(shared) / len(content) >= LEAK_SHARE else "shared_word"
        others = max(stream.words.segments - 1, 0)
        listed = ", ".join(
            f"{word!r} (in {stream.words.others(unit, own)} of {others} other segments)"
            for unit, word in words.items()
            if unit in rare
        )
        message = (
            f"{task}.user_request has {len(shared)} of the statement's {len(content)} content words, among them "
            f"distinctive ones: {listed}; say it in other words"
        )
        yield found_in(stated, check, message)


def _requests(anchor: StatedAnchor) -> Iterable[tuple[str, str]]:
    tasks = anchor.tasks
    return (
        ("initial_task", tasks.initial_task.user_request or ""),
        ("followup_task", tasks.followup_task.user_request or ""),
    )


def _quoted(anchor: StatedAnchor, request: str) -> str | None:
    """A quote that stands in the request word by word, if it is long enough to tell anything."""
    asked = f" {' '.join(tokens(request))} "
    for supporting in anchor.supporting_observations or ():
        said = tokens(supporting.quote or "")
        if len(said) >= QUOTE_TOKENS and f" {' '.join(said)} " in asked:
            return supporting.quote
    return None


def _check_requests(stated: Stated) -> Iterator[Finding]:
    (_, initial), (_, followup) = _requests(stated.anchor)
    if not _said(initial) or not _said(followup):
        return
    if _letters(initial) == _letters(followup):
        yield found_in(stated, "equal_requests", "both tasks ask the same: write another follow-up")
    elif (share := similarity(initial, followup)) >= SIMILAR_SHARE:
        message = f"the two requests share {share:.0%} of their words: move one of them to another scenario"
        yield found_in(stated, "similar_requests", message)


def _letters(text: str) -> str:
    """What two requests are compared by: letters and digits, no matter the case."""
    return "".join(character for character in text.casefold() if character.isalnum())
