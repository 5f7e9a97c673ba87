"""EgoLife's own layouts: SRT trees (`Transcript` is dialog, `DenseCaption` is description) and the merged
`Sync` JSON.

EgoLife's wearers have no segments of their own: a segment is a five-minute clock window (:00, :05 ...) with
an observation in it. Observations go by start time; at equal times those of a stream keep the order in which
they were read, and for SRT what the wearer sees comes before what is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from producers.datasets import srt
from producers.datasets.files import FileName, Files, Layout, Progress, day_name, parse_name
from producers.lifelog import (
    DAY1_US,
    DAY_US,
    SEGMENT_US,
    Dataset,
    Lifelog,
    RawObservation,
    Report,
    SegmentSpan,
)
from simulator.errors import DatasetError
from simulator.events import Source

_SYNC_SOURCES: Mapping[str, Source] = {"caption": "description", "transcript": "dialog"}
_MARKS = {"：": "full_width_colon", ";": "semicolon_after_speaker", "；": "semicolon_after_speaker"}

Part = tuple[int, int | None, str]
"""Event time, end time and text of one observation before it is placed in its stream."""


def cut_segments(observations: Sequence[RawObservation]) -> list[SegmentSpan]:
    """The five-minute clock windows of observations in time order: contiguous, and every observation in one.
    `segment_id` counts from 0 within the day."""
    spans: list[SegmentSpan] = []
    first = 0
    for seq in range(1, len(observations) + 1):
        window = observations[first].event_time_us // SEGMENT_US
        if seq < len(observations) and observations[seq].event_time_us // SEGMENT_US == window:
            continue
        day = observations[first].day
        number = spans[-1].segment_id + 1 if spans and spans[-1].day == day else 0
        spans.append(SegmentSpan(day, number, window * SEGMENT_US, (window + 1) * SEGMENT_US, first, seq - 1))
        first = seq
    return spans


def note_text_oddities(report: Report, source: Source, text: str, where: str, *, english: bool) -> None:
    """Count what is odd about a text that goes into a stream: no speaker, a mark other than `:` or no space
    after it, and, where English is expected, Chinese. The text stays as it is."""
    said = text
    if source == "dialog":
        name, mark, said = srt.speaker(text)
        if not name:
            report.odd("no_speaker", f"{where}: {text}")
        elif mark in _MARKS:
            report.odd(_MARKS[mark], f"{where}: {text}")
        if name and said and not said[0].isspace():
            report.odd("no_space_after_speaker", f"{where}: {text}")
        if name and srt.has_han(name):
            report.odd("chinese_speaker_label", f"{where}: {text}")
    if english and not text.isascii() and srt.has_han(said):
        latin = any(c.isascii() and c.isalpha() for c in said)
        report.odd("chinese_within_english" if latin else "untranslated", f"{where}: {text}")


def _lifelog(stream: str, parts: Sequence[tuple[Part, Source]]) -> Lifelog:
    next_index: dict[str, int] = defaultdict(int)
    observations = []
    for (start, end, text), source in parts:
        day = day_name(start)
        observations.append(RawObservation(start, source, text, day, next_index[day], end))
        next_index[day] += 1
    return Lifelog(stream, observations, cut_segments(observations))


def _note_order(report: Report, stream: str, parts: Sequence[tuple[Part, Source]]) -> None:
    latest = 0
    for (start, _, text), _ in parts:
        if start < latest:
            report.odd("sorted_by_time", f"{stream}: {text}")
        latest = max(latest, start)


def _placed(files: Sequence[Path], top: Path, report: Report) -> Iterator[tuple[Path, FileName, int]]:
    """The files whose names say when they begin (with that time), odd names counted."""
    for path in files:
        name = parse_name(path)
        place = path.relative_to(top).as_posix()
        if not name.as_specified:
            report.odd("file_name", place)
        day_folder = path.parent.name.upper()
        in_day = day_folder.startswith("DAY") and day_folder[3:].isdecimal()
        owner = path.parent.parent.name if in_day else path.parent.name
        if not name.participant:
            name = name._replace(participant=owner)
        elif in_day and owner != name.participant:
            report.odd("participant_differs_from_folder", place)
        if name.start_us is None:
            report.odd("file_without_clock_left_out", place)
            continue
        if in_day and day_folder != day_name(name.start_us):
            report.odd("day_differs_from_folder", place)
        yield path, name, name.start_us


def _read(
    layout: Layout,
    streams: Collection[str] | None,
    progress: Progress | None,
    read_file: Callable[[Files, Path, FileName, int], list[tuple[Part, Source]]],
    report: Report,
) -> Dataset:
    placed = list(_placed(layout.files, layout.path, report))
    there = sorted({name.participant for _, name, _ in placed})
    if unknown := sorted(set(streams or ()) - set(there)):
        raise DatasetError(layout.path, f"no stream {', '.join(unknown)}; there is {', '.join(there)}")
    wanted = [item for item in placed if streams is None or item[1].participant in streams]
    files = Files(layout.path, len(wanted), report, progress)
    by_stream: dict[str, list[tuple[Part, Source]]] = {}
    for path, name, start_us in wanted:
        by_stream.setdefault(name.participant, []).extend(read_file(files, path, name, start_us))
    lifelogs = {}
    for stream in sorted(by_stream):
        parts = by_stream[stream]
        if layout.kind == "egolife-srt":
            parts.sort(key=lambda item: (item[0][0], item[1] == "dialog"))
        else:
            _note_order(report, stream, parts)
            parts.sort(key=lambda item: item[0][0])
        if parts:
            lifelogs[stream] = _lifelog(stream, parts)
            report.counts["observations"] += len(parts)
            report.counts["segments"] += len(lifelogs[stream].segments)
        else:
            report.odd("stream_without_observations", stream)
    if not lifelogs:
        found = ", ".join(f"{count} {oddity}" for oddity, count in report.oddities.most_common(3))
        raise DatasetError(layout.path, f"no observation in any of its files ({found or 'no file at all'})")
    return Dataset(layout.kind, str(layout.path), lifelogs, [], report, files.digest)


def _crosses_midnight(start_us: int, file_start_us: int) -> bool:
    return (start_us - DAY1_US) // DAY_US != (file_start_us - DAY1_US) // DAY_US


def read_srt(
    layout: Layout,
    language: srt.Language,
    streams: Collection[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read an SRT tree. `report.counts["cues.<stream>"]` counts all cues, those without a text too. Raises
    DatasetError for a file that can't be read, isn't UTF-8, or has text and no cue."""
    report = Report()

    def read_file(files: Files, path: Path, name: FileName, file_start_us: int) -> list[tuple[Part, Source]]:
        place = files.name(path)
        source: Source = "description" if "DenseCaption" in (*layout.path.parts, *path.parts) else "dialog"

        def odd(oddity: str, line: int, text: str) -> None:
            report.odd(oddity, f"{place}:{line}: {text}")

        content = files.text(path)
        cues, stray = srt.parse(content, odd)
        if not cues:
            if stray:
                raise DatasetError(
                    path, "no cue in it (a number, times with -->, text): not SRT", stray[0][0]
                )
            odd("empty_file", 1, "")
        report.counts["cues"] += len(cues)
        report.counts[f"cues.{name.participant}"] += len(cues)
        parts: list[tuple[Part, Source]] = []
        for cue in cues:
            text = srt.choose_text(cue.lines, language)
            if not text:
                report.odd("no_text_left_out", f"{place}:{cue.line}")
                continue
            start = file_start_us + cue.start_us
            if _crosses_midnight(start, file_start_us):
                odd("past_midnight", cue.line, text)
            end = file_start_us + cue.end_us if cue.end_us >= cue.start_us else None
            note_text_oddities(report, source, text, f"{place}:{cue.line}", english=language == "en")
            parts.append(((start, end, text), source))
        return parts

    return _read(layout, streams, progress, read_file, report)


def _clock_us(value: object) -> int | None:
    """HHMMSS as a whole number (93005 is 09:30:05) or as digits in a text; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    hours, minutes, seconds = value // 10_000, value // 100 % 100, value % 100
    if not (0 <= hours <= 23 and minutes <= 59 and seconds <= 59):
        return None
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000


def read_sync(
    layout: Layout, streams: Collection[str] | None = None, progress: Progress | None = None
) -> Dataset:
    """Read `Sync` JSON. An entry that is not of the form is counted with its place and left out; a file that
    is no JSON list raises DatasetError."""
    report = Report()

    def read_entry(place: str, entry: Any, day_us: int) -> tuple[Part, Source] | None:
        if not isinstance(entry, dict):
            report.odd("malformed_entry_left_out", f"{place}: not an object")
            return None
        source = _SYNC_SOURCES.get(entry["type"]) if isinstance(entry.get("type"), str) else None
        text, clock = entry.get("text"), _clock_us(entry.get("start"))
        if source is None or clock is None or not isinstance(text, str):
            wrong = "type" if source is None else "start" if clock is None else "text"
            report.odd("malformed_entry_left_out", f"{place}.{wrong}: {entry.get(wrong)!r}")
            return None
        if not text.strip():
            report.odd("no_text_left_out", place)
            return None
        if isinstance(entry["start"], str):
            report.odd("clock_as_text", f"{place}.start: {entry['start']!r}")
        end = _clock_us(entry.get("end"))
        if end is None:
            report.odd("unreadable_end", f"{place}.end: {entry.get('end')!r}")
        elif end < clock:
            report.odd("end_before_start", f"{place}: {text}")
            end = None
        note_text_oddities(report, source, text, place, english=True)
        return (day_us + clock, None if end is None else day_us + end, text), source

    def read_file(files: Files, path: Path, name: FileName, file_start_us: int) -> list[tuple[Part, Source]]:
        place = files.name(path)
        videos = files.json(path, list[Any])
        day_us = file_start_us - (file_start_us - DAY1_US) % DAY_US
        parts: list[tuple[Part, Source]] = []
        for number, video in enumerate(videos):
            entries = video.get("data") if isinstance(video, dict) else None
            if not isinstance(entries, list):
                report.odd("malformed_video_left_out", f"{place}: $[{number}]")
                continue
            report.counts["entries"] += len(entries)
            for index, entry in enumerate(entries):
                if (part := read_entry(f"{place}: $[{number}].data[{index}]", entry, day_us)) is not None:
                    parts.append(part)
        return parts

    return _read(layout, streams, progress, read_file, report)
