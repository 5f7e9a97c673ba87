"""APM-Bench's protocol on text: task files (`producers.apm_tasks`) over any stream that the other readers give.

Each trajectory becomes a stream of its own: the observations of its sessions, with real gaps between them, and what
is registered as lines of dialog. Segments are the five-minute clock windows of a session, cut once more wherever a
probe is asked, so that its memory has all that happened before it and nothing else.

A choice with `availability` is asked twice: on the trajectory, and on a stream that has the two most recently completed
sessions alone, with one more option for evidence that is not available. That cuts any memory alike, whether or not it
could forget.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from producers import datasets
from producers.apm_tasks import FAMILIES, Choice, Heartbeat, Registration, TaskFile, TrajectorySpec
from producers.datasets.files import Files, Progress
from producers.lifelog import SEGMENT_US, Dataset, Lifelog, RawObservation, Report, SegmentSpan
from producers.probes import LETTERS, Probe, ProbeSet, day_label, probe_id
from producers.seeded import PREFIX
from simulator.errors import ConfigError, DatasetError
from simulator.events import Gold, SessionSpan
from simulator.eventtime import format_event_time, parse_event_time

KEPT_SESSIONS: Final = 2
"""As many of the most recently completed sessions are there for questions of evidence availability."""
NOT_AVAILABLE: Final = "The evidence for this is not available."
HEARTBEAT: Final = (
    "It is {time}. Speak up now? Begin with INTERVENE and say what I should know, or answer SILENT."
)
SAID: Final = "Me, to my assistant: {text}"


class _Session(NamedTuple):
    name: str
    start_us: int
    end_us: int


def read_apm(
    path: str | Path,
    *,
    data: str | None = None,
    language: datasets.Language = "en",
    progress: Progress | None = None,
) -> ProbeSet:
    """Read a task file, or all `*.json` task files of a folder, over the streams that they name. `data`: the streams'
    path in place of what the files say. Blocks. Raises DatasetError naming the file, the place (`$.trajectories[0]
    .probes[2]`) and what is wrong there."""
    given = Path(path)
    if not given.exists():
        raise DatasetError(path, "no such file or folder")
    paths = sorted(given.glob("*.json")) if given.is_dir() else [given]
    if not paths:
        raise DatasetError(path, "no task file (*.json) in it")
    report = Report()
    report.counts.update(trajectories=0, sessions=0, registrations=0, choices=0, heartbeats=0)
    files = Files(given if given.is_dir() else given.parent, len(paths), report, progress)
    digests, sources = [], dict[str, Dataset]()
    lifelogs: dict[str, Lifelog] = {}
    sessions: dict[str, Sequence[SessionSpan]] = {}
    probes: list[Probe] = []
    for file in paths:
        tasks = files.json(file, TaskFile)
        source = data if data is not None else tasks.data
        if not source.startswith(PREFIX) and data is None:
            source = str(file.parent / source)
        if source not in sources:
            sources[source] = datasets.read_dataset(source, language=language, progress=progress)
            digests.append(sources[source].digest)
        for number, trajectory in enumerate(tasks.trajectories):
            made = _Trajectory(file, f"$.trajectories[{number}]", trajectory, sources[source], report)
            for stream in made.streams():
                if stream.lifelog.stream in lifelogs:
                    made.wrong("id", f"a second trajectory {trajectory.id}")
                lifelogs[stream.lifelog.stream] = stream.lifelog
                sessions[stream.lifelog.stream] = stream.sessions
                probes += stream.probes
    report.counts["observations"] = sum(len(log.observations) for log in lifelogs.values())
    report.counts["segments"] = sum(len(log.segments) for log in lifelogs.values())
    digest = hashlib.sha256("/".join([files.digest, *digests]).encode()).hexdigest()
    dataset = Dataset("apm", str(path), lifelogs, [], report, digest)
    return ProbeSet(benchmark="apm", dataset=dataset, probes=probes, sessions=sessions)


class _Made(NamedTuple):
    lifelog: Lifelog
    sessions: Sequence[SessionSpan]
    probes: Sequence[Probe]


class _Trajectory:
    """One trajectory of a task file, checked."""

    def __init__(self, file: Path, place: str, spec: TrajectorySpec, source: Dataset, report: Report) -> None:
        self._file, self._place, self._spec, self._report = file, place, spec, report
        if spec.stream not in source.lifelogs:
            there = ", ".join(source.lifelogs)
            self.wrong("stream", f"no stream {spec.stream} in {source.path}; there is {there}")
        self._source = source.lifelogs[spec.stream]
        self._times = [observation.event_time_us for observation in self._source.observations]
        self._unique("sessions", [session.id for session in spec.sessions])
        self._unique("registrations", [registration.id for registration in spec.registrations])
        self._unique("probes", [probe.id for probe in spec.probes])
        self._sessions = self._read_sessions()
        self._index = {session.name: number for number, session in enumerate(self._sessions)}
        self._registered = {
            registration.id: self._registration(number, registration)
            for number, registration in enumerate(spec.registrations)
        }
        self._asked_us = [self._check(number, probe) for number, probe in enumerate(spec.probes)]
        report.counts["trajectories"] += 1
        report.counts["sessions"] += len(self._sessions)
        report.counts["registrations"] += len(spec.registrations)

    def wrong(self, field: str, reason: str) -> NoReturn:
        """Raises DatasetError for a field of the trajectory."""
        raise DatasetError(self._file, f"`{self._place}.{field}`: {reason}")

    def _unique(self, field: str, ids: Sequence[str]) -> None:
        for number, name in enumerate(ids):
            if name in ids[:number]:
                self.wrong(f"{field}[{number}].id", f"a second {name}")

    def _time(self, field: str, text: str) -> int:
        try:
            return parse_event_time(text)
        except ConfigError as error:
            raise DatasetError(self._file, f"`{self._place}.{field}`: {error}") from error

    def _read_sessions(self) -> list[_Session]:
        sessions: list[_Session] = []
        for number, spec in enumerate(self._spec.sessions):
            place = f"sessions[{number}]"
            start, end = self._time(f"{place}.start", spec.start), self._time(f"{place}.end", spec.end)
            if end <= start:
                self.wrong(f"{place}.end", f"{spec.end} is not after the start, {spec.start}")
            if sessions and start < sessions[-1].end_us:
                self.wrong(f"{place}.start", f"{spec.start} is before the end of session {sessions[-1].name}")
            if bisect_left(self._times, start) == bisect_left(self._times, end):
                self._report.odd("session_without_observations", f"{self._file.name}: {self._place}.{place}")
            sessions.append(_Session(spec.id, start, end))
        return sessions

    def _registration(self, number: int, registration: Registration) -> int:
        place = f"registrations[{number}]"
        at = self._time(f"{place}.at", registration.at)
        if not any(session.start_us <= at < session.end_us for session in self._sessions):
            self.wrong(f"{place}.at", f"{registration.at} is within no session: nobody would hear it")
        return at

    def _check(self, number: int, probe: Choice | Heartbeat) -> int:
        """When it is asked, if nothing is wrong with it."""
        place = f"probes[{number}]"
        at = self._time(f"{place}.at", probe.at)
        first = self._sessions[0]
        if at <= first.start_us:
            self.wrong(f"{place}.at", f"{probe.at} is not after the first session began")
        if not any(session.start_us < at <= session.end_us for session in self._sessions):
            self._report.counts["probes_between_sessions"] += 1
        for which, name in enumerate(probe.evidence_sessions):
            spot = f"{place}.evidence_sessions[{which}]"
            if name not in self._index:
                self.wrong(spot, f"no session {name}; there is {', '.join(self._index)}")
            if self._sessions[self._index[name]].start_us >= at:
                self.wrong(spot, f"session {name} begins after {probe.at}: nobody could know what is in it")
        golden, options = probe.golden, probe.options or []
        if golden is not None and golden not in LETTERS[: len(options)]:
            self.wrong(f"{place}.golden", f"{golden} is none of the {len(options)} options")
        if isinstance(probe, Choice):
            if probe.availability and not probe.evidence_sessions:
                self.wrong(f"{place}.evidence_sessions", "needed for a question of evidence availability")
            if probe.availability and not self._completed(at):
                self.wrong(
                    f"{place}.at", "no session is completed by then, so no evidence could be available"
                )
            return at
        if probe.registration is not None and probe.registration not in self._registered:
            self.wrong(f"{place}.registration", f"no registration {probe.registration}")
        if probe.registration is not None and self._registered[probe.registration] >= at:
            self.wrong(f"{place}.registration", f"{probe.registration} is registered after {probe.at}")
        positive = probe.expected == "INTERVENE"
        if positive and not probe.reference.strip():
            self.wrong(f"{place}.reference", "a positive probe needs a reference to rate responses against")
        if (probe.task == "ERA") != bool(options):
            self.wrong(
                f"{place}.options", "probes of ERA, positive and negative ones, and no others have options"
            )
        if (golden is not None) != (bool(options) and positive):
            self.wrong(f"{place}.golden", "positive probes of ERA, and no others, have a golden option")
        return at

    def _completed(self, at: int) -> list[_Session]:
        return [session for session in self._sessions if session.end_us <= at][-KEPT_SESSIONS:]

    def streams(self) -> list[_Made]:
        """The trajectory as a stream, and one for each pair of sessions that evidence is cut to."""
        whole = list(zip(self._spec.probes, self._asked_us, strict=True))
        made = [self._stream(self._spec.id, self._sessions, whole, kept=None)]
        cut: dict[tuple[str, ...], list[tuple[Choice | Heartbeat, int]]] = {}
        for probe, at in whole:
            if isinstance(probe, Choice) and probe.availability:
                cut.setdefault(tuple(s.name for s in self._completed(at)), []).append((probe, at))
        for names, probes in cut.items():
            kept = [session for session in self._sessions if session.name in names]
            made.append(self._stream(f"{self._spec.id}.kept.{'.'.join(names)}", kept, probes, kept=names))
        return made

    def _stream(
        self,
        name: str,
        sessions: Sequence[_Session],
        asked: Sequence[tuple[Choice | Heartbeat, int]],
        kept: tuple[str, ...] | None,
    ) -> _Made:
        observations: list[RawObservation] = []
        segments: list[SegmentSpan] = []
        spans: list[SessionSpan] = []
        cuts = {at for _, at in asked}
        for session in sessions:
            first = len(segments)
            self._add(session, cuts, observations, segments)
            if len(segments) > first:
                ends = {"start_time_us": session.start_us, "end_time_us": session.end_us}
                spans.append(
                    SessionSpan(
                        name=session.name, first_segment=first, last_segment=len(segments) - 1, **ends
                    )
                )
        if not observations:
            self.wrong("sessions", f"none of {', '.join(s.name for s in sessions)} has an observation")
        ends_us = [segment.end_time_us for segment in segments]
        of_session = {span.name: range(span.first_segment, span.last_segment + 1) for span in spans}
        probes: list[Probe] = []
        made: dict[int, int] = {}
        for probe, at in sorted(asked, key=lambda item: item[1]):
            segment = bisect_left(ends_us, at + 1) - 1
            if segment < 0:
                self._report.odd("probe_before_any_observation", f"{self._file.name}: {name}: {probe.id}")
            ordinal = made[segment] = made.get(segment, -1) + 1
            evidence = tuple(
                s for session in probe.evidence_sessions for s in of_session.get(session, ()) if s <= segment
            )
            opaque = probe_id(name, segment, ordinal)
            probes.append(self._probe(opaque, name, segment, at, probe, evidence, kept))
        return _Made(Lifelog(name, observations, segments), spans, probes)

    def _add(
        self,
        session: _Session,
        cuts: set[int],
        observations: list[RawObservation],
        segments: list[SegmentSpan],
    ) -> None:
        """Append a session's observations and registrations, cut into segments."""
        first, end = bisect_left(self._times, session.start_us), bisect_left(self._times, session.end_us)
        lines = [
            RawObservation(o.event_time_us, o.source, o.text, day_label(o.event_time_us), None, o.end_time_us)
            for o in self._source.observations[first:end]
        ]
        for registration in self._spec.registrations:
            at = self._registered[registration.id]
            if session.start_us <= at < session.end_us:
                text = SAID.format(text=registration.text)
                lines.append(RawObservation(at, "dialog", text, day_label(at)))
        lines.sort(key=lambda line: line.event_time_us)
        windows = range(session.start_us // SEGMENT_US + 1, -(-session.end_us // SEGMENT_US))
        inner = {at for at in cuts if session.start_us < at < session.end_us}
        edges = sorted({session.start_us, session.end_us, *inner, *(w * SEGMENT_US for w in windows)})
        times = [line.event_time_us for line in lines]
        offset = len(observations)
        for start, stop in pairwise(edges):
            begin, finish = bisect_left(times, start), bisect_left(times, stop)
            if begin < finish:
                day = day_label(start)
                number = segments[-1].segment_id + 1 if segments and segments[-1].day == day else 0
                seqs = (offset + begin, offset + finish - 1)
                segments.append(SegmentSpan(day, number, start, stop, *seqs))
        observations += lines

    def _probe(
        self,
        opaque: str,
        stream: str,
        segment: int,
        at: int,
        probe: Choice | Heartbeat,
        evidence: tuple[int, ...],
        kept: tuple[str, ...] | None,
    ) -> Probe:
        options, golden = tuple(probe.options or ()), probe.golden or ""
        groups = {"task": probe.task, "family": FAMILIES[probe.task]}
        if isinstance(probe, Heartbeat):
            self._report.counts["heartbeats"] += 1
            text = HEARTBEAT.format(time=format_event_time(at))
            gold = Gold(answer=probe.reference, option=golden, decision=probe.expected, segments=evidence)
            groups["polarity"] = "positive" if probe.expected == "INTERVENE" else "negative"
        else:
            self._report.counts["choices"] += 1
            text = probe.question
            if kept is not None:
                options = (*options, NOT_AVAILABLE)
                answerable = set(probe.evidence_sessions) <= set(kept)
                golden = golden if answerable else LETTERS[len(options) - 1]
                groups["availability"] = "answerable" if answerable else "unanswerable"
            answer = options[LETTERS.index(golden)]
            gold = Gold(answer=answer, option=golden, segments=evidence)
        return Probe(
            id=opaque,
            source_id=probe.id,
            stream=stream,
            segment=segment,
            asked_time_us=at,
            text=text,
            options=options,
            gold=gold,
            groups=groups,
        )
