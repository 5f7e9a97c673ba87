"""A stratified sample of a release's anchors for people to audit. Pure.

The anchors are laid out by stream, evidence type and day, those of one stratum in an order by the seed, and cut into
as many equal parts as are wanted; one is drawn from each. So a stream, a type within it and a day within that all have
their share of the sample, to within two anchors: one for each end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from producers.anchors.stated import Release, Stated
from producers.anchors.streams import StreamIndex
from simulator.errors import ConfigError

CONTEXT_LINES = 5
"""Lines of the segment that are shown before and after each quoted one."""


class Row(msgspec.Struct, frozen=True):
    """What an annotator is shown of one anchor. `item` counts from 1; `sample` is the same for all rows of a sample."""

    sample: str
    item: int
    stream: str
    day: str
    segment_id: int
    time_range: str
    evidence_id: str
    evidence_statement: str
    evidence_type: str
    subject: str
    quotes: str
    context: str
    """Lines of the segment, `>` before those that are quoted, `...` where lines are left out."""
    initial_request: str
    initial_expected: str
    followup_request: str
    followup_expected: str


def draw(release: Release, count: int, seed: int, context_lines: int = CONTEXT_LINES) -> list[Row]:
    """A sample, in an order by the seed. The same release, count and seed give the same rows. Raises ConfigError for a
    count that the release doesn't have."""
    total = len(release.anchors)
    if not 0 < count <= total:
        raise ConfigError(f"--sample must be from 1 to {total}, the number of anchors; it is {count}")
    name = hashlib.sha256(f"{release.digest}/{count}/{seed}".encode()).hexdigest()[:12]

    def random(index: int, what: str) -> bytes:
        return hashlib.sha256(f"{name}/{what}/{index}".encode()).digest()

    strata = [
        (stratum(stated), random(index, "order"), index) for index, stated in enumerate(release.anchors)
    ]
    laid_out = [index for _, _, index in sorted(strata)]
    drawn = [laid_out[_pick(part, count, total, random(part, "pick"))] for part in range(count)]
    drawn.sort(key=lambda index: random(index, "shown"))
    streams = {stream: StreamIndex(lifelog) for stream, lifelog in release.lifelogs.items()}
    return [
        _row(
            name,
            item,
            release.anchors[index],
            streams.get(release.anchors[index].place.stream),
            context_lines,
        )
        for item, index in enumerate(drawn, 1)
    ]


def stratum(stated: Stated) -> tuple[str, str, str]:
    """Stream, evidence type, day."""
    return stated.place.stream, stated.anchor.evidence_type or "", stated.place.day


def _pick(part: int, count: int, total: int, random: bytes) -> int:
    """One place in the part-th of `count` equal parts of `total` places."""
    start, stop = part * total // count, (part + 1) * total // count
    return start + int.from_bytes(random[:8]) % (stop - start)


def _row(sample: str, item: int, stated: Stated, stream: StreamIndex | None, context_lines: int) -> Row:
    place, anchor = stated.place, stated.anchor
    quotes = [
        f"[{supporting.stream_index}] {supporting.quote or supporting.text or ''}"
        for supporting in anchor.supporting_observations or ()
    ]
    return Row(
        sample=sample,
        item=item,
        stream=place.stream,
        day=place.day,
        segment_id=place.segment_id,
        time_range=place.time_range or "",
        evidence_id=anchor.evidence_id or "",
        evidence_statement=anchor.evidence_statement or "",
        evidence_type=anchor.evidence_type or "",
        subject=anchor.subject or "",
        quotes="\n".join(quotes),
        context="\n".join(_context(stated, stream, context_lines)) if stream is not None else "",
        initial_request=anchor.tasks.initial_task.user_request or "",
        initial_expected=anchor.tasks.initial_task.expected_behavior or "",
        followup_request=anchor.tasks.followup_task.user_request or "",
        followup_expected=anchor.tasks.followup_task.expected_behavior or "",
    )


def _context(stated: Stated, stream: StreamIndex, around: int) -> Iterator[str]:
    """The segment's lines around the quoted ones; all of them where no quoted one is in it."""
    span = stream.span(stated.place.day, stated.place.segment_id)
    if span is None:
        return
    indices = [supporting.stream_index for supporting in stated.anchor.supporting_observations or ()]
    seqs = (stream.seq(stated.place.day, index) for index in indices if index is not None)
    yield from stream.lines(span, {seq for seq in seqs if seq is not None}, around)
