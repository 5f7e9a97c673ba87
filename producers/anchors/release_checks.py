"""The mechanical checks over a whole release, and what they came to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from producers.anchors.checks import CHECKS, Finding, check_anchor, found_in
from producers.anchors.stated import Place, Release, Stated
from producers.anchors.streams import StreamIndex
from producers.datasets.files import Progress


class Checked(msgspec.Struct, frozen=True):
    """What was checked and what was found. `matched`: supporting observations whose text the day's stream has at their
    index; of `without_match` anchors it has none. `by_check`: all checks."""

    digest: str
    streams: int
    anchors: int
    anchors_with_errors: int
    errors: int
    warnings: int
    supporting_observations: int
    matched: int
    without_match: int
    by_check: Mapping[str, int]
    findings: Sequence[Finding]


def check_release(release: Release, progress: Progress = lambda done, total: None) -> Checked:
    """Check all anchors of a release, in its order. `progress` takes the anchors done and those in all."""
    streams = {name: StreamIndex(lifelog) for name, lifelog in release.lifelogs.items()}
    for stream in streams.values():
        progress(0, len(release.anchors))
        stream.count_words()
    first_place: dict[tuple[str, str], Place] = {}
    findings: list[Finding] = []
    supporting = matched = without_match = wrong = 0
    for done, stated in enumerate(release.anchors, 1):
        of = streams.get(stated.place.stream)
        found = [*_check_id(stated, first_place), *check_anchor(stated, of)]
        findings.extend(found)
        there = sum(_matches(stated, of))
        supporting += len(stated.anchor.supporting_observations or ())
        matched += there
        without_match += there == 0
        wrong += any(finding.severity == "error" for finding in found)
        progress(done, len(release.anchors))
    counts = Counter(finding.check for finding in findings)
    errors = sum(finding.severity == "error" for finding in findings)
    return Checked(
        digest=release.digest,
        streams=len(streams),
        anchors=len(release.anchors),
        anchors_with_errors=wrong,
        errors=errors,
        warnings=len(findings) - errors,
        supporting_observations=supporting,
        matched=matched,
        without_match=without_match,
        by_check={check: counts[check] for check in CHECKS},
        findings=findings,
    )


def _check_id(stated: Stated, first_place: dict[tuple[str, str], Place]) -> Iterator[Finding]:
    evidence_id = (stated.anchor.evidence_id or "").strip()
    if not evidence_id:
        return
    first = first_place.setdefault((stated.place.stream, evidence_id), stated.place)
    if first is not stated.place:
        message = f"{evidence_id!r} is also the id of {first.file} {first.path}: give one of them another"
        yield found_in(stated, "repeated_id", message)


def _matches(stated: Stated, stream: StreamIndex | None) -> Iterator[bool]:
    for supporting in stated.anchor.supporting_observations or ():
        index = supporting.stream_index
        seq = stream.seq(stated.place.day, index) if stream is not None and index is not None else None
        yield stream is not None and seq is not None and stream.observation(seq).text == supporting.text
