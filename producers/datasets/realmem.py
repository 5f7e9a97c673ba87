"""RealMem: `<Name>_dialogues_256k.json`, one user's sessions with an assistant over months.

A user is a stream and a session is a segment; each turn is an observation `User: ...` or `Assistant: ...`. The data
give sessions a date and no hour: the sessions of one day share it evenly, in the order of the file, and turns are
spread over their session. A query stands inside a session and is asked before that session is ingested, so on the
memory as it is after the segment before. Its gold sessions are the `memory_session_uuids` of the Assistant turn that
answers it or, where none of these is known, the `session_uuid`s of its `memory_used`.

Gold stays as published also where no memory could have it (the query's own session, or a later one): both are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from producers.datasets.files import Files, Progress
from producers.lifelog import DAY_US, Dataset, Lifelog, RawObservation, Report, SegmentSpan, spread_us
from producers.probes import Probe, ProbeSet, as_event_time_us, day_label, probe_id, stream_name
from simulator.errors import DatasetError
from simulator.events import Gold

_NAME = re.compile(r"(.+)_dialogues(?:_\w+)?\.json", re.IGNORECASE)
_DATE = re.compile(r"\s*(\d{4}-\d{2}-\d{2})(?:\s*\((\w+)\))?\s*", re.ASCII)
_SPEAKERS = ("User", "Assistant")


class _Memory(msgspec.Struct):
    content: str = ""
    session_uuid: str | None = None


class _Turn(msgspec.Struct):
    speaker: str
    content: str
    is_query: bool | None = None
    query_id: str | int | None = None
    topic: str | None = None
    category_name: str | None = None
    session_type: str | None = None
    memory_used: list[_Memory] | None = None
    memory_session_uuids: list[str] | None = None

    @property
    def asks(self) -> bool:
        """A query; where the data don't say, a turn with a query's number is one."""
        return self.query_id is not None if self.is_query is None else self.is_query


class _Session(msgspec.Struct):
    session_identifier: str
    current_time: str
    dialogue_turns: list[_Turn]
    session_uuid: str | None = None
    extracted_memory: list[Any] | None = None


class _Metadata(msgspec.Struct):
    person_name: str | None = None
    total_sessions: int | None = None


class _File(msgspec.Struct, rename={"metadata": "_metadata"}):
    dialogues: list[_Session]
    metadata: _Metadata | None = None


def find_realmem(path: str | Path) -> tuple[Path, list[Path]]:
    """The dataset's folder and its files: the file given, or all `*_dialogues*.json` in the folder given. Raises
    DatasetError where there is none."""
    given = Path(path)
    if not given.exists():
        raise DatasetError(path, "no such file or folder")
    if not given.is_dir():
        return given.parent, [given]
    try:
        files = sorted(file for file in given.iterdir() if _NAME.fullmatch(file.name))
    except OSError as error:
        raise DatasetError(path, f"can't be read: {error.strerror or error}") from error
    if not files:
        raise DatasetError(path, "no RealMem file: expected <Name>_dialogues_256k.json")
    return given, files


def read_realmem(path: str | Path, *, progress: Progress | None = None) -> ProbeSet:
    """Read one user's file, or a folder of them. `report.counts` has `sessions`, `turns`, `queries`,
    `queries_with_gold`. Blocks. Raises DatasetError naming the file and the line (broken JSON) or the place
    (`$.dialogues[3]`)."""
    root, paths = find_realmem(path)
    report = Report()
    report.counts.update(sessions=0, turns=0, queries=0, queries_with_gold=0)
    files = Files(root, len(paths), report, progress)
    lifelogs: dict[str, Lifelog] = {}
    probes: list[Probe] = []
    for file in paths:
        content = files.json(file, _File)
        user = _User(file, files.name(file), content, report)
        if user.name in lifelogs:
            raise DatasetError(file, f"a second file of {user.name}: give one of them")
        if user.lifelog.segments:
            lifelogs[user.name] = user.lifelog
            probes += user.probes
        else:
            report.odd("stream_without_observations", user.name)
    if not lifelogs:
        raise DatasetError(path, "no session with a turn in any of its files")
    report.counts["observations"] = sum(len(log.observations) for log in lifelogs.values())
    report.counts["segments"] = sum(len(log.segments) for log in lifelogs.values())
    dataset = Dataset("realmem", str(path), lifelogs, [], report, files.digest)
    return ProbeSet(benchmark="realmem", dataset=dataset, probes=probes)


class _User:
    """One user's file: `lifelog` and `probes` once made."""

    def __init__(self, path: Path, place: str, content: _File, report: Report) -> None:
        self._path = path
        self._place = place
        self._report = report
        match = _NAME.fullmatch(path.name)
        metadata = content.metadata or _Metadata()
        self.name = stream_name(match[1] if match else metadata.person_name or path.stem)
        self.lifelog = Lifelog(self.name, [], [])
        self.probes: list[Probe] = []
        self._query_ids: set[str] = set()
        if metadata.person_name is None:
            report.odd("missing_person_name", place)
        elif stream_name(metadata.person_name) != self.name:
            report.odd("person_name_disagrees", f"{place}: says {metadata.person_name}")
        if metadata.total_sessions is not None and metadata.total_sessions != len(content.dialogues):
            report.odd(
                "total_sessions_disagrees",
                f"{place}: says {metadata.total_sessions}, is {len(content.dialogues)}",
            )
        kept = self._keep(content.dialogues)
        times = self._times(kept)
        segment_of = self._segments_by_uuid(kept)
        for segment, ((where, session), (start_us, end_us)) in enumerate(zip(kept, times, strict=True)):
            self._ask(where, segment, start_us, session, segment_of)
            self._add(where, segment, start_us, end_us, session)

    def _keep(self, sessions: Sequence[_Session]) -> list[tuple[str, _Session]]:
        kept = []
        for number, session in enumerate(sessions):
            where = f"{self._place}: $.dialogues[{number}]"
            if any(turn.content.strip() for turn in session.dialogue_turns):
                kept.append((where, session))
            else:
                self._report.odd("session_without_text_left_out", f"{where}: {session.session_identifier}")
        self._report.counts["sessions"] += len(kept)
        return kept

    def _times(self, sessions: Sequence[tuple[str, _Session]]) -> list[tuple[int, int]]:
        """Start and end of each session. The order of the file stands: a session that is dated before the one before
        it is taken to be of that one's day."""
        days: list[int] = []
        for where, session in sessions:
            match = _DATE.fullmatch(session.current_time)
            try:
                date = datetime.fromisoformat(match[1]) if match else None
            except ValueError:
                date = None
            if match is None or date is None:
                place = where.partition(": ")[2]
                reason = f"`{place}.current_time` is {session.current_time!r}, not like 2025-12-15 (Monday)"
                raise DatasetError(self._path, reason)
            if match[2] and match[2].lower() != date.strftime("%A").lower():
                self._report.odd("weekday_disagrees", f"{where}: {session.current_time}")
            day = as_event_time_us(date)
            if days and day < days[-1]:
                self._report.odd("session_dated_before_the_one_before", f"{where}: {session.current_time}")
                day = days[-1]
            days.append(day)
        on_day, seen = Counter(days), Counter[int]()
        times = []
        for day in days:
            times.append(
                (
                    day + DAY_US * seen[day] // on_day[day],
                    day + DAY_US * (seen[day] + 1) // on_day[day],
                )
            )
            seen[day] += 1
        return times

    def _segments_by_uuid(self, sessions: Sequence[tuple[str, _Session]]) -> dict[str, int]:
        segment_of: dict[str, int] = {}
        identifiers: set[str] = set()
        for segment, (where, session) in enumerate(sessions):
            if session.session_identifier in identifiers:
                self._report.odd("repeated_session_identifier", f"{where}: {session.session_identifier}")
            identifiers.add(session.session_identifier)
            if not session.session_uuid:
                self._report.odd("missing_session_uuid", where)
            elif segment_of.setdefault(session.session_uuid, segment) != segment:
                self._report.odd("repeated_session_uuid", f"{where}: {session.session_uuid}")
        return segment_of

    def _add(self, where: str, segment: int, start_us: int, end_us: int, session: _Session) -> None:
        report, observations = self._report, self.lifelog.observations
        assert isinstance(observations, list)
        assert isinstance(self.lifelog.segments, list)
        first_seq = len(observations)
        turns = [turn for turn in session.dialogue_turns if turn.content.strip()]
        for number, turn in enumerate(session.dialogue_turns):
            spot = f"{where}.dialogue_turns[{number}]"
            if not turn.content.strip():
                report.odd("no_text_left_out", spot)
            if turn.speaker not in _SPEAKERS:
                report.odd("other_speaker", f"{spot}: {turn.speaker}")
            if number and turn.speaker == session.dialogue_turns[number - 1].speaker:
                report.odd("same_speaker_twice", f"{spot}: {turn.speaker}")
        for number, turn in enumerate(turns):
            time_us = spread_us(start_us, end_us, number, len(turns))
            text = f"{turn.speaker}: {turn.content}"
            observations.append(RawObservation(time_us, "dialog", text, day_label(start_us), None))
        report.counts["turns"] += len(turns)
        last_seq = len(observations) - 1
        self.lifelog.segments.append(
            SegmentSpan(day_label(start_us), segment, start_us, end_us, first_seq, last_seq)
        )

    def _ask(
        self, where: str, segment: int, start_us: int, session: _Session, segment_of: dict[str, int]
    ) -> None:
        report, asked = self._report, 0
        answering: set[int] = set()
        for number, turn in enumerate(session.dialogue_turns):
            spot = f"{where}.dialogue_turns[{number}]"
            if turn.is_query is None:
                report.odd("missing_is_query", spot)
            if not turn.asks:
                continue
            if turn.speaker != "User":
                report.odd("query_not_by_user_left_out", f"{spot}: {turn.speaker}")
                continue
            if not turn.content.strip():
                report.odd("query_without_text_left_out", spot)
                continue
            after = session.dialogue_turns[number + 1 :]
            place, answer = next(
                ((i, t) for i, t in enumerate(after, number + 1) if t.speaker == "Assistant" or t.asks),
                (-1, None),
            )
            if answer is None or answer.speaker != "Assistant":
                report.odd("query_without_answer", spot)
                answer = _Turn("Assistant", "")
            answering.add(place)
            self.probes.append(self._probe(spot, segment, start_us, asked, turn, answer, segment_of))
            asked += 1
        for number, turn in enumerate(session.dialogue_turns):
            if (turn.memory_used or turn.memory_session_uuids) and number not in answering:
                report.odd("memory_without_query", f"{where}.dialogue_turns[{number}]")

    def _probe(
        self,
        spot: str,
        segment: int,
        start_us: int,
        ordinal: int,
        turn: _Turn,
        answer: _Turn,
        segment_of: dict[str, int],
    ) -> Probe:
        report = self._report
        for field in ("query_id", "topic", "category_name", "session_type"):
            if getattr(turn, field) is None:
                report.odd(f"missing_{field}", spot)
        source_id = str(turn.query_id if turn.query_id is not None else spot)
        if source_id in self._query_ids:
            report.odd("repeated_query_id", f"{spot}: {source_id}")
        self._query_ids.add(source_id)
        if segment == 0:
            report.odd("query_in_first_session", spot)
        memories = answer.memory_used or []
        gold = self._gold(spot, segment, answer, memories, segment_of)
        report.counts["queries"] += 1
        report.counts["queries_with_gold"] += bool(gold)
        return Probe(
            id=probe_id(self.name, segment - 1, ordinal),
            source_id=source_id,
            stream=self.name,
            segment=segment - 1,
            asked_time_us=start_us,
            text=turn.content,
            gold=Gold(
                answer=answer.content,
                segments=gold,
                memories=tuple(memory.content for memory in memories if memory.content.strip()),
            ),
            groups={
                "category": turn.category_name or "unknown",
                "session_type": turn.session_type or "unknown",
                "topic": turn.topic or "unknown",
            },
        )

    def _gold(
        self,
        spot: str,
        segment: int,
        answer: _Turn,
        memories: Sequence[_Memory],
        segment_of: dict[str, int],
    ) -> tuple[int, ...]:
        report = self._report
        named = answer.memory_session_uuids or []
        if len(set(named)) < len(named):
            report.odd("repeated_gold_uuid", spot)
        for uuid in named:
            if uuid not in segment_of:
                report.odd("unknown_gold_uuid", f"{spot}: {uuid}")
        gold = {segment_of[uuid] for uuid in named if uuid in segment_of}
        if not gold:
            gold = {segment_of[m.session_uuid] for m in memories if m.session_uuid in segment_of}
            if gold:
                report.odd("gold_from_memory_used", spot)
            else:
                report.odd("query_without_gold", spot)
        if segment in gold:
            report.odd("gold_in_own_session", spot)
        if any(other > segment for other in gold):
            report.odd("gold_in_later_session", spot)
        return tuple(sorted(gold))
