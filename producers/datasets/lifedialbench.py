"""LifeDialBench: `EgoMem.json` and `LifeMem.json`, lifelogs of dialogue with dated questions.

A history (`history_name`) is a stream and a chunk a segment; each line of a chunk is an observation `speaker: content`,
spread evenly over the chunk's time. Times are clock times of the place. A question is due once every chunk that begins
before its `question_time` (a date: 00:00 of it) is ingested. Elements of the file with one `history_name` are one
stream; chunks go by time, equal ones by their order in the file. `evidence_date` gives the segments that hold the
evidence: those that overlap with it.

`synthetic:` as the path makes such data up (`producers.lifedialbench`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from producers import lifedialbench
from producers.datasets.files import Files, Progress
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
from producers.probes import (
    LETTERS,
    Probe,
    ProbeSet,
    as_event_time_us,
    day_label,
    probe_id,
    split_option,
    stream_name,
)
from producers.seeded import PREFIX, parse_numbers
from simulator.errors import DatasetError
from simulator.events import Gold

CHUNK_US = 600_000_000
"""A chunk whose time has no end takes ten minutes, as those of EgoMem, or until the next begins."""
QUESTION_TYPES = ("single_event", "event_detail", "multi_event", "time_query")
SUBSETS = ("EgoMem.json", "LifeMem.json")

_TIME = re.compile(
    r"(?:DAY(?P<day>\d{1,4})|(?P<date>\d{4}[-/.]\d{1,2}[-/.]\d{1,2}))"
    r"(?:\s*\([^)]*\))?"
    r"(?:[\s,T]+(?P<start>\d{1,2}:\d{2}(?::\d{2})?)"
    r"(?:\s*[-\u2013~]\s*(?P<end>\d{1,2}:\d{2}(?::\d{2})?))?)?",
    re.ASCII | re.IGNORECASE,
)


class _Line(msgspec.Struct):
    speaker: str
    content: str


class _Question(msgspec.Struct):
    question: str
    question_time: str
    answer: str = ""
    options: list[str] | None = None
    golden_option: str | None = None
    question_type: str | None = None
    evidence_date: str | list[str] | None = None
    timescale: str | None = None


class _History(msgspec.Struct):
    history_name: str
    chat_time: list[str]
    chat_history: list[list[_Line]]
    qa: list[_Question] = []


class Interval(NamedTuple):
    """A time as the data write it, in event time; `end_us` is None where only a start is said."""

    start_us: int
    end_us: int | None


def parse_times(text: str) -> list[Interval]:
    """`2025-08-19, 21:30-21:40` (or several of them, or `DAY4 21:30`, or a date alone: the whole day) as event times;
    empty where there is none, or a clock time that is none. An end before its start is on the next day."""
    found = []
    for match in _TIME.finditer(text):
        try:
            day_us = _day_us(match)
            start = _clock_us(match["start"])
            end = _clock_us(match["end"])
        except ValueError:
            return []
        if start is None:
            found.append(Interval(day_us, day_us + DAY_US))
        elif end is None:
            found.append(Interval(day_us + start, None))
        else:
            found.append(Interval(day_us + start, day_us + (end if end >= start else end + DAY_US)))
    return found


def _day_us(match: re.Match[str]) -> int:
    if match["day"]:
        return DAY1_US + (int(match["day"]) - 1) * DAY_US
    year, month, day = map(int, re.split(r"[-/.]", match["date"]))
    return as_event_time_us(datetime(year, month, day))


def _clock_us(text: str | None) -> int | None:
    if text is None:
        return None
    hours, minutes, *seconds = map(int, text.split(":"))
    if hours > 24 or minutes > 59 or any(second > 59 for second in seconds):
        raise ValueError(f"{text} is no clock time")
    return timedelta(hours=hours, minutes=minutes, seconds=sum(seconds)) // timedelta(microseconds=1)


def read_lifedialbench(path: str | Path, *, progress: Progress | None = None) -> ProbeSet:
    """Read a file of this form whatever its name, both files of a folder, or `synthetic:seed=1,...`. `report.counts`
    has `histories`, `chunks`, `questions`, `choices`. Blocks. Raises DatasetError naming the file and the line (broken
    JSON) or the place (`$[0].chat_time[3]`); ConfigError for a wrong `synthetic:` path."""
    report = Report()
    report.counts.update(histories=0, chunks=0, questions=0, choices=0)
    if isinstance(path, str) and path.startswith(PREFIX):
        options = parse_numbers(path, lifedialbench.LifeDialOptions)
        content = lifedialbench.synthesise(options)
        histories = msgspec.convert(content, list[_History])
        read = [(Path("synthetic"), "synthetic", histories)]
        digest = lifedialbench.digest(options)
    else:
        root, paths = _find(path)
        files = Files(root, len(paths), report, progress)
        read = [(file, files.name(file), files.json(file, list[_History])) for file in paths]
        digest = files.digest
    lifelogs: dict[str, Lifelog] = {}
    probes: list[Probe] = []
    for file, place, histories in read:
        for stream in _streams(file, place, histories, report):
            if stream.name in lifelogs:
                raise DatasetError(file, f"a second stream {stream.name}: rename the file")
            if not stream.chunks:
                report.odd("stream_without_observations", stream.name)
                continue
            lifelogs[stream.name] = stream.lifelog()
            probes += stream.probes()
    if not lifelogs:
        raise DatasetError(path, "no chunk with a line in any of its histories")
    report.counts["observations"] = sum(len(log.observations) for log in lifelogs.values())
    report.counts["segments"] = sum(len(log.segments) for log in lifelogs.values())
    dataset = Dataset("lifedialbench", str(path), lifelogs, [], report, digest)
    return ProbeSet(benchmark="lifedialbench", dataset=dataset, probes=probes)


def _find(path: str | Path) -> tuple[Path, list[Path]]:
    given = Path(path)
    if not given.exists():
        raise DatasetError(path, "no such file or folder")
    if not given.is_dir():
        return given.parent, [given]
    files = [given / name for name in SUBSETS if (given / name).is_file()]
    if not files:
        raise DatasetError(path, f"none of {', '.join(SUBSETS)} in it: give the file")
    return given, files


def _streams(file: Path, place: str, histories: Sequence[_History], report: Report) -> list[_Stream]:
    streams: dict[str, _Stream] = {}
    for number, history in enumerate(histories):
        name = f"{stream_name(file.stem)}_{stream_name(history.history_name)}"
        where = f"{place}: $[{number}]"
        if name in streams:
            report.odd("history_in_several_parts", f"{where}: {history.history_name}")
        stream = streams.setdefault(name, _Stream(name, file.stem, report))
        stream.add(file, number, where, history)
    report.counts["histories"] += len(streams)
    return list(streams.values())


class _Chunk(NamedTuple):
    start_us: int
    end_us: int | None
    where: str
    lines: list[_Line]


class _Stream:
    """One history while its parts are read."""

    def __init__(self, name: str, subset: str, report: Report) -> None:
        self.name = name
        self.chunks: list[_Chunk] = []
        self._subset = subset
        self._questions: list[tuple[int, str, _Question]] = []
        self._report = report

    def add(self, file: Path, number: int, where: str, history: _History) -> None:
        report = self._report
        if len(history.chat_time) != len(history.chat_history):
            reason = (
                f"`$[{number}]` has {len(history.chat_time)} times in `chat_time` and "
                f"{len(history.chat_history)} chunks in `chat_history`: they must be aligned"
            )
            raise DatasetError(file, reason)
        for chunk, (time, lines) in enumerate(zip(history.chat_time, history.chat_history, strict=True)):
            times = parse_times(time)
            if len(times) != 1:
                reason = f"`$[{number}].chat_time[{chunk}]` is {time!r}, not like 2025-08-19, 21:30-21:40"
                raise DatasetError(file, reason)
            spot = f"{where}.chat_history[{chunk}]"
            kept = [line for line in lines if line.content.strip()]
            for _ in range(len(lines) - len(kept)):
                report.odd("no_text_left_out", spot)
            if not kept:
                report.odd("chunk_without_text_left_out", spot)
                continue
            if self.chunks and times[0].start_us < self.chunks[-1].start_us:
                report.odd("chunks_out_of_order", f"{spot}: {time}")
            self.chunks.append(_Chunk(*times[0], spot, kept))
        for place, question in enumerate(history.qa):
            spot = f"{where}.qa[{place}]"
            due = parse_times(question.question_time)
            if len(due) != 1:
                reason = f"`$[{number}].qa[{place}].question_time` is {question.question_time!r}, not like 2025-08-20"
                raise DatasetError(file, reason)
            if question.question.strip():
                self._questions.append((due[0].start_us, spot, question))
            else:
                report.odd("question_without_text_left_out", spot)

    def lifelog(self) -> Lifelog:
        """Chunks as segments. Event times never go back: a chunk that begins within the one before it begins with that
        one's last line."""
        self.chunks.sort(key=lambda chunk: chunk.start_us)
        observations: list[RawObservation] = []
        segments: list[SegmentSpan] = []
        latest = 0
        for number, chunk in enumerate(self.chunks):
            following = self.chunks[number + 1].start_us if number + 1 < len(self.chunks) else None
            end_us = chunk.end_us
            if end_us is None:
                self._report.counts["chunks_without_end"] += 1
                end_us = chunk.start_us + CHUNK_US
                if following is not None and following > chunk.start_us:
                    end_us = min(end_us, following)
            if following is not None and following < end_us:
                self._report.odd("overlapping_chunks", self.chunks[number + 1].where)
            day, first_seq = day_label(chunk.start_us), len(observations)
            for place, line in enumerate(chunk.lines):
                latest = max(latest, spread_us(chunk.start_us, end_us, place, len(chunk.lines)))
                speaker = line.speaker.strip()
                if not speaker:
                    self._report.odd("no_speaker", chunk.where)
                text = f"{speaker}: {line.content}" if speaker else line.content
                observations.append(RawObservation(latest, "dialog", text, day))
            end_us = max(end_us, segments[-1].end_time_us if segments else end_us)
            last_seq = len(observations) - 1
            segments.append(SegmentSpan(day, number, chunk.start_us, end_us, first_seq, last_seq))
        self._report.counts["chunks"] += len(segments)
        return Lifelog(self.name, observations, segments)

    def probes(self) -> list[Probe]:
        """Questions in the order in which they become due. Call it after `lifelog`."""
        starts = [chunk.start_us for chunk in self.chunks]
        made: dict[int, int] = {}
        probes = []
        for due_us, spot, question in sorted(self._questions, key=lambda item: item[0]):
            segment = bisect_left(starts, due_us) - 1
            if segment < 0:
                self._report.odd("due_before_the_first_chunk", f"{spot}: {question.question_time}")
            ordinal = made.get(segment, 0)
            made[segment] = ordinal + 1
            options, golden = self._options(spot, question)
            self._report.counts["questions"] += 1
            self._report.counts["choices"] += bool(options)
            if question.question_type not in QUESTION_TYPES:
                self._report.odd("unknown_question_type", f"{spot}: {question.question_type}")
            probes.append(
                Probe(
                    id=probe_id(self.name, segment, ordinal),
                    source_id=spot,
                    stream=self.name,
                    segment=segment,
                    asked_time_us=due_us,
                    text=question.question,
                    options=options,
                    gold=Gold(
                        answer=question.answer,
                        option=golden,
                        segments=self._evidence(spot, question, due_us, starts),
                    ),
                    groups={
                        "type": question.question_type or "unknown",
                        "format": "choice" if options else "open",
                        "subset": self._subset,
                        "timescale": question.timescale or "unknown",
                    },
                )
            )
        return probes

    def _options(self, spot: str, question: _Question) -> tuple[tuple[str, ...], str]:
        report = self._report
        if not question.options:
            if not question.answer.strip():
                report.odd("question_without_gold", spot)
            return (), ""
        texts, letters = [], []
        for place, option in enumerate(question.options):
            letter, text, lettered = split_option(option, place)
            if not lettered:
                report.odd("option_without_letter", f"{spot}: {option}")
            elif letter != LETTERS[place]:
                report.odd("option_letters_out_of_order", f"{spot}: {option}")
            texts.append(text)
            letters.append(letter)
        golden = (question.golden_option or "").strip().strip("().").upper()
        if len(golden) != 1 or golden not in LETTERS[: len(texts)]:
            report.odd("golden_option_is_none", f"{spot}: {question.golden_option}")
            return tuple(texts), ""
        named = len(set(letters)) == len(letters) and golden in letters
        place = (
            letters.index(golden) if named else LETTERS.index(golden)
        )  # by its own letter, wherever it stands
        said, right = question.answer.strip(), texts[place]
        if said and split_option(said, 0)[1].casefold() != right.casefold() and said.upper() != golden:
            report.odd("answer_is_not_the_golden_option", f"{spot}: {said}")
        return tuple(texts), LETTERS[place]

    def _evidence(
        self, spot: str, question: _Question, due_us: int, starts: Sequence[int]
    ) -> tuple[int, ...]:
        """The segments of the evidence's time. What a question asks about must lie before it."""
        report, given = self._report, question.evidence_date
        texts = [given] if isinstance(given, str) else given or []
        times = [time for text in texts for time in parse_times(text)]
        if not times:
            if any(texts):
                report.odd("unreadable_evidence_date", f"{spot}: {given}")
            else:
                report.odd("no_evidence_date", spot)
        found: set[int] = set()
        for time in times:
            end_us = time.end_us if time.end_us is not None else time.start_us + 1
            if end_us > due_us:
                report.odd("evidence_after_question", f"{spot}: {given}")
            # No chunk takes longer than a day.
            for segment in range(bisect_left(starts, time.start_us - DAY_US), bisect_left(starts, end_us)):
                chunk = self.chunks[segment]
                chunk_end = chunk.end_us if chunk.end_us is not None else chunk.start_us + CHUNK_US
                if chunk_end > time.start_us:
                    found.add(segment)
        if times and not found:
            report.odd("evidence_not_in_stream", f"{spot}: {given}")
        return tuple(sorted(found))
