"""The StreamMemBench release layout, English and Chinese: `segments/` and `evidence_tasks/`.

Observations of this layout have no clock time: the i-th of n in a segment happens at start + i * (end -
start) / n. A stream is named by its folder. A supporting observation of an anchor counts as found in the
stream if the observation at its `stream_index` of the same day has the same text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from producers.datasets.egolife import note_text_oddities
from producers.datasets.files import Files, Layout, Progress
from producers.lifelog import (
    DAY1_US,
    DAY_US,
    Dataset,
    Lifelog,
    RawObservation,
    Report,
    SegmentSpan,
    spread_us,
)
from simulator.errors import DatasetError
from simulator.events import AnchorEvent, AnchorTask, Source

_DAY = re.compile(r"DAY(\d{1,4})", re.ASCII)
_STREAM_INDEX = re.compile(r"stream_index:(\d+)", re.ASCII)
_TIME_RANGE = re.compile(r"\s*(\d{1,2}):(\d{2}):(\d{2})\s*[-–]\s*(\d{1,2}):(\d{2}):(\d{2})\s*", re.ASCII)


class _Metadata(msgspec.Struct):
    stream_index: int | None = None


class _Observation(msgspec.Struct):
    text: str
    source: Source
    timestamp: str | None = None
    metadata: _Metadata | None = None


class _Supporting(msgspec.Struct):
    """Without its source: text and index alone are compared."""

    text: str
    timestamp: str | None = None
    metadata: _Metadata | None = None


class _StreamSegment(msgspec.Struct):
    observations: list[_Observation]
    text: str | None = None


class _Segment(msgspec.Struct):
    segment_id: int
    time_range: str
    stream_segment: _StreamSegment


class _SegmentsFile(msgspec.Struct):
    segments: list[_Segment]
    participant: str | None = None
    day: str | None = None
    num_segments: int | None = None


class _Tasks(msgspec.Struct):
    initial_task: AnchorTask
    followup_task: AnchorTask


class _Anchor(msgspec.Struct):
    evidence_statement: str
    tasks: _Tasks
    evidence_id: str | None = None
    evidence_type: str | None = None
    subject: str | None = None
    supporting_observations: list[_Supporting] | None = None


class _Item(msgspec.Struct):
    segment_id: int
    evidence_anchors: list[_Anchor]
    participant: str | None = None
    day: str | None = None
    time_range: str | None = None


class _EvidenceFile(msgspec.Struct):
    items: list[_Item]
    participant: str | None = None
    day: str | None = None
    num_items: int | None = None
    num_evidence_anchors: int | None = None


def _stream_index(observation: _Observation | _Supporting) -> int | None:
    if observation.metadata is not None and observation.metadata.stream_index is not None:
        return observation.metadata.stream_index
    match = _STREAM_INDEX.fullmatch(observation.timestamp or "")
    return int(match[1]) if match else None


def parse_time_range(text: str) -> tuple[int, int] | None:
    """`11:05:00 - 11:10:00` as microseconds of the day; an end before the start is on the next day. None for
    another form."""
    if not (match := _TIME_RANGE.fullmatch(text)):
        return None
    h1, m1, s1, h2, m2, s2 = map(int, match.groups())
    if h1 > 24 or h2 > 24 or max(m1, s1, m2, s2) > 59:
        return None
    start, end = ((h1 * 60 + m1) * 60 + s1) * 1_000_000, ((h2 * 60 + m2) * 60 + s2) * 1_000_000
    return start, end if end >= start else end + DAY_US


def day_of(path: Path, stated: str | None) -> str:
    """The day that a file is of, by its name or else by what it states. Raises DatasetError where neither says."""
    for name in (path.name.split(".")[0], stated or ""):
        if (match := _DAY.fullmatch(name)) and int(match[1]) > 0:
            return f"DAY{int(match[1])}"
    raise DatasetError(path, "no day: neither its name nor its `day` is DAY1, DAY2 ...")


def _note_stated(report: Report, place: str, **stated: tuple[object, object]) -> None:
    """Count fields of a file that are missing, or disagree with what was found."""
    for field, (said, found) in stated.items():
        if said is None:
            report.odd(f"missing_{field}", place)
        elif said != found:
            report.odd(f"{field}_disagrees", f"{place}: says {said}, is {found}")


class _Stream:
    """One wearer's stream while its days are read, in day order."""

    def __init__(self, name: str, report: Report, english: bool) -> None:
        self.name = name
        self.observations: list[RawObservation] = []
        self.segments: list[SegmentSpan] = []
        self.segment_of: dict[tuple[str, int], int] = {}
        """(day, segment_id) → its place in `segments`."""
        self.seq_of: dict[tuple[str, int], int] = {}
        """(day, stream_index) → seq."""
        self.time_range_of: dict[int, str] = {}
        self.evidence_ids: set[str] = set()
        self._report = report
        self._english = english

    def add_day(self, path: Path, place: str, day: str, content: _SegmentsFile) -> None:
        report = self._report
        _note_stated(
            report,
            place,
            participant=(content.participant, self.name),
            day=(content.day, day),
            num_segments=(content.num_segments, len(content.segments)),
        )
        day_us = DAY1_US + (int(day[3:]) - 1) * DAY_US
        timed = []
        for number, segment in enumerate(content.segments):
            if (clock := parse_time_range(segment.time_range)) is None:
                reason = (
                    f"`$.segments[{number}].time_range` is {segment.time_range!r}, not HH:MM:SS - HH:MM:SS"
                )
                raise DatasetError(path, reason)
            timed.append((day_us + clock[0], day_us + clock[1], number, segment))
        by_start = sorted(timed, key=lambda item: item[0])
        if by_start != timed:
            report.odd("segments_out_of_order", place)
        next_index = 0
        for start, end, number, segment in by_start:
            where = f"{place}: $.segments[{number}]"
            if self.segments and start < self.segments[-1].end_time_us:
                report.odd("overlapping_segments", f"{where}: {segment.time_range}")
            next_index = self._add_segment(where, day, start, end, segment, next_index)

    def _add_segment(
        self, where: str, day: str, start: int, end: int, segment: _Segment, next_index: int
    ) -> int:
        """Append a segment; returns the stream index that follows its last. An event time never goes back, so
        that what overlaps stays in order."""
        report, english = self._report, self._english
        observations = segment.stream_segment.observations
        kept = [o for o in observations if o.text.strip()]
        for _ in range(len(observations) - len(kept)):
            report.odd("no_text_left_out", where)
        if not kept:
            report.odd("segment_without_observations_left_out", where)
            return next_index
        first_seq = len(self.observations)
        latest = self.observations[-1].event_time_us if self.observations else start
        for position, observation in enumerate(kept):
            index = _stream_index(observation)
            if index is None:
                report.odd("missing_stream_index", f"{where}: {observation.text}")
                index = next_index
            elif index != next_index:
                report.odd("stream_index_jumps", f"{where}: {index}, not {next_index}")
            next_index = index + 1
            latest = max(latest, spread_us(start, end, position, len(kept)))
            if (day, index) in self.seq_of:
                report.odd("repeated_stream_index", f"{where}: {index}")
            self.seq_of.setdefault((day, index), len(self.observations))
            note_text_oddities(report, observation.source, observation.text, where, english=english)
            self.observations.append(RawObservation(latest, observation.source, observation.text, day, index))
        if (day, segment.segment_id) in self.segment_of:
            report.odd("repeated_segment_id", f"{where}: {segment.segment_id}")
        self.segment_of.setdefault((day, segment.segment_id), len(self.segments))
        self.time_range_of[len(self.segments)] = segment.time_range
        last_seq = len(self.observations) - 1
        self.segments.append(SegmentSpan(day, segment.segment_id, start, end, first_seq, last_seq))
        return next_index

    def anchors(self, place: str, day: str, content: _EvidenceFile) -> Iterable[AnchorEvent]:
        report = self._report
        _note_stated(
            report,
            place,
            participant=(content.participant, self.name),
            day=(content.day, day),
            num_items=(content.num_items, len(content.items)),
            num_evidence_anchors=(
                content.num_evidence_anchors,
                sum(len(item.evidence_anchors) for item in content.items),
            ),
        )
        next_ordinal: dict[int, int] = defaultdict(int)
        for number, item in enumerate(content.items):
            where = f"{place}: $.items[{number}]"
            segment = self.segment_of.get((day, item.segment_id))
            if segment is None:
                for anchor in item.evidence_anchors:
                    report.odd("anchor_without_segment_left_out", f"{where}: {anchor.evidence_statement}")
                continue
            if item.day is not None and item.day != day:
                report.odd("item_day_disagrees", where)
            if item.participant is not None and item.participant != self.name:
                report.odd("item_participant_disagrees", where)
            if item.time_range is not None and item.time_range != self.time_range_of[segment]:
                report.odd("item_time_range_disagrees", where)
            for position, anchor in enumerate(item.evidence_anchors):
                ordinal = next_ordinal[segment]
                next_ordinal[segment] += 1
                spot = f"{where}.evidence_anchors[{position}]"
                yield self._anchor(spot, day, segment, ordinal, anchor)

    def _anchor(self, where: str, day: str, segment: int, ordinal: int, anchor: _Anchor) -> AnchorEvent:
        report = self._report
        for field in ("evidence_id", "evidence_type", "subject", "supporting_observations"):
            if getattr(anchor, field) is None:
                report.odd(f"missing_{field}", where)
        seqs = []
        supporting = anchor.supporting_observations or []
        for observation in supporting:
            index = _stream_index(observation)
            seq = None if index is None else self.seq_of.get((day, index))
            if seq is not None and self.observations[seq].text == observation.text:
                seqs.append(seq)
            else:
                report.odd("supporting_observation_not_in_stream", f"{where}: {index}: {observation.text}")
        report.counts["anchors"] += 1
        report.counts["supporting_observations"] += len(supporting)
        report.counts["supporting_matched"] += len(seqs)
        report.counts["anchors_without_match"] += not seqs
        if anchor.evidence_id in self.evidence_ids:
            report.odd("repeated_evidence_id", f"{where}: {anchor.evidence_id}")
        elif anchor.evidence_id is not None:
            self.evidence_ids.add(anchor.evidence_id)
        opaque = f"{self.name}/s{segment}/e{ordinal}"
        return AnchorEvent(
            id=f"{opaque}/anchor",
            run="",
            stream=self.name,
            event_time_us=self.segments[segment].end_time_us,
            anchor=opaque,
            segment=segment,
            evidence_id=anchor.evidence_id or opaque,
            evidence_statement=anchor.evidence_statement,
            evidence_type=anchor.evidence_type or "unknown",
            subject=anchor.subject or "unknown",
            initial_task=anchor.tasks.initial_task,
            followup_task=anchor.tasks.followup_task,
            supporting_seqs=tuple(seqs),
        )


def files_by_stream(layout: Layout, part: str, report: Report) -> dict[str, list[Path]]:
    """Participant → its day files under `segments` or `evidence_tasks`; of evidence tasks in two versions of
    one day, the clean one."""
    found: dict[str, list[Path]] = {}
    for path in layout.files:
        inside = path.relative_to(layout.path).parts
        if inside[0] != part:
            continue
        if len(inside) != 3 or not _DAY.fullmatch(path.name.split(".")[0]):
            report.odd("other_file_left_out", "/".join(inside))
            continue
        found.setdefault(inside[1], []).append(path)
    for name, paths in found.items():
        chosen: dict[str, Path] = {}
        for path in sorted(paths, key=lambda p: not p.name.endswith(".clean.json")):
            if chosen.setdefault(path.name.split(".")[0], path) != path:
                report.odd("second_version_left_out", path.relative_to(layout.path).as_posix())
        found[name] = sorted(chosen.values(), key=lambda p: int(day_of(p, None)[3:]))
    return found


def read_release(
    layout: Layout, streams: Collection[str] | None = None, progress: Progress | None = None
) -> Dataset:
    """Read a release. `report.counts` has `anchors`, `supporting_observations`, `supporting_matched` and
    `anchors_without_match`. Raises DatasetError for a malformed item, naming file and place
    (`$.items[3].tasks`)."""
    report = Report()
    report.counts.update(anchors=0, supporting_observations=0, supporting_matched=0, anchors_without_match=0)
    segments = files_by_stream(layout, "segments", report)
    evidence = files_by_stream(layout, "evidence_tasks", report)
    if unknown := sorted(set(streams or ()) - set(segments)):
        raise DatasetError(
            layout.path, f"no stream {', '.join(unknown)}; there is {', '.join(sorted(segments))}"
        )
    for name in sorted(set(evidence) - set(segments)):
        report.odd("evidence_without_stream_left_out", name)
    wanted = sorted(s for s in segments if streams is None or s in streams)
    total = sum(len(segments[s]) + len(evidence.get(s, ())) for s in wanted)
    files = Files(layout.path, total, report, progress)
    lifelogs: dict[str, Lifelog] = {}
    anchors: list[AnchorEvent] = []
    for name in wanted:
        stream = _Stream(name, report, english=not layout.path.name.endswith("_zh"))
        for path in segments[name]:
            day_file = files.json(path, _SegmentsFile)
            stream.add_day(path, files.name(path), day_of(path, day_file.day), day_file)
        if not stream.observations:
            report.odd("stream_without_observations", name)
            continue
        lifelogs[name] = Lifelog(name, stream.observations, stream.segments)
        report.counts["observations"] += len(stream.observations)
        report.counts["segments"] += len(stream.segments)
        for path in evidence.get(name, ()):
            evidence_file = files.json(path, _EvidenceFile)
            anchors.extend(stream.anchors(files.name(path), day_of(path, evidence_file.day), evidence_file))
    if not lifelogs:
        raise DatasetError(layout.path, "no observation in any of its segments")
    stream_order = {name: number for number, name in enumerate(lifelogs)}
    anchors.sort(key=lambda a: (stream_order[a.stream], a.segment))
    return Dataset("streammembench", str(layout.path), lifelogs, anchors, report, files.digest)
