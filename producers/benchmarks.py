"""The benchmarks that ask once, by name: a path → streams and probes, as they are published in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from producers.datasets import Language, Progress
from producers.datasets.apm import read_apm
from producers.datasets.lifedialbench import read_lifedialbench
from producers.datasets.realmem import read_realmem
from producers.lifelog import Dataset, Lifelog
from producers.probes import Probe, ProbeBenchmark, ProbeSet, asked_text, probe_id, quarter_of
from simulator.errors import ConfigError
from simulator.events import OutlineEvent, ProbeEvent, ProbeMetric, SessionSpan

Asked = Literal["online", "offline", "both"]
"""When LifeDialBench asks: once a question is due, at the end of the stream, or twice."""

RETRIEVAL: Final[tuple[ProbeMetric, ...]] = (
    *("recall_any@10", "recall_all@10", "ndcg@10"),
    *("recall_any@20", "recall_all@20", "ndcg@20"),
)
BY_MODEL: Final[frozenset[ProbeMetric]] = frozenset(
    ("qa", "memory_recall", "helpful", "open_accuracy", "open_accuracy_offline", "gated_score")
)
"""Metrics that a model has to judge."""
_OFFLINE: Final[Mapping[ProbeMetric, ProbeMetric]] = {
    "mcq_accuracy": "mcq_accuracy_offline",
    "open_accuracy": "open_accuracy_offline",
}


def read_probes(
    benchmark: str, path: str | Path, *, language: Language = "en", progress: Progress | None = None
) -> ProbeSet:
    """Read a benchmark's data. `language`: of the streams that APM's task files name. Blocks. Raises DatasetError for
    data that can't be read, ConfigError for a benchmark that nobody knows (naming them) or a wrong `synthetic:` path.
    """
    readers: dict[str, Callable[..., ProbeSet]] = {
        "realmem": read_realmem,
        "lifedialbench": read_lifedialbench,
        "apm": partial(read_apm, language=language),
    }
    if benchmark not in readers:
        raise ConfigError(f"no benchmark {benchmark!r}; there is {', '.join(get_args(ProbeBenchmark))}")
    return readers[benchmark](path, progress=progress)


def read_benchmark(
    benchmark: ProbeBenchmark,
    path: str | Path,
    *,
    asked: Asked = "online",
    by_model: bool = False,
    streams: Collection[str] | None = None,
    segments: int | None = None,
    language: Language = "en",
    progress: Progress | None = None,
) -> Dataset:
    """Read a benchmark's data as a run replays and asks it. Blocks.

    Args:
        benchmark: its name.
        path: its data.
        asked: when its questions are asked.
        by_model: a model judges; what only a model can judge is not asked otherwise, and counted.
        streams: only these.
        segments: only so many first segments of each stream, and the probes that are due within them.
        language: of APM's streams.
        progress: files read, and in all.

    Raises:
        ConfigError: there is no such stream, no segment is asked for, or nothing is left to ask.
        DatasetError: the data can't be read.
    """
    if segments is not None and segments < 1:
        raise ConfigError(f"segments is {segments}: it must be at least 1")
    found = read_probes(benchmark, path, language=language, progress=progress)
    there = found.dataset.lifelogs
    if unknown := sorted(set(streams or ()) - there.keys()):
        raise ConfigError(f"no stream {', '.join(unknown)} in {path}; there is {', '.join(there)}")
    lifelogs = {name: log for name, log in there.items() if not streams or name in streams}
    if segments is not None:
        lifelogs = {name: first_of(lifelog, segments) for name, lifelog in lifelogs.items()}
    counts = found.dataset.report.counts
    kept = [p for p in found.probes if p.stream in lifelogs and p.segment < len(lifelogs[p.stream].segments)]
    events: list[ProbeEvent] = []
    for event in _events(benchmark, kept, lifelogs, asked):
        metrics = tuple(m for m in event.metrics if by_model or m not in BY_MODEL)
        if event.segment < 0:
            counts["probes_before_any_memory_not_asked"] += 1
        elif not event.metrics:
            counts["probes_without_gold_not_asked"] += 1
        elif not metrics:
            counts["probes_without_a_judge_not_asked"] += 1
        else:
            events.append(msgspec.structs.replace(event, metrics=metrics))
    if not events:
        why = ""
        if counts["probes_without_a_judge_not_asked"]:
            why = " that needs no model as a judge: name one with --judge MODEL"
        elif len(kept) < sum(probe.stream in lifelogs for probe in found.probes):
            why = ": no probe is due within its first segments"
        raise ConfigError(f"{path} holds nothing to ask{why}")
    events.sort(key=lambda event: event.segment)
    return msgspec.structs.replace(
        found.dataset,
        lifelogs=lifelogs,
        probes=tuple(event for name in lifelogs for event in events if event.stream == name),
        outlines=tuple(_outline(lifelog, found.sessions.get(name, ())) for name, lifelog in lifelogs.items()),
    )


def first_of(lifelog: Lifelog, segments: int) -> Lifelog:
    """A lifelog cut to its first segments."""
    kept = lifelog.segments[:segments]
    end = kept[-1].last_seq + 1 if kept else 0
    return Lifelog(stream=lifelog.stream, observations=lifelog.observations[:end], segments=kept)


def metrics_by(benchmark: ProbeBenchmark, asked: Asked, *, by_model: bool) -> frozenset[ProbeMetric]:
    """All metrics that the probes of a run may have."""
    all_of: dict[ProbeBenchmark, tuple[ProbeMetric, ...]] = {
        "realmem": (*RETRIEVAL, "qa", "memory_recall", "helpful"),
        "apm": ("mcq_accuracy", "decision", "gated_score"),
        "lifedialbench": (
            *(("mcq_accuracy", "open_accuracy") if asked != "offline" else ()),
            *(("mcq_accuracy_offline", "open_accuracy_offline") if asked != "online" else ()),
        ),
    }
    return frozenset(m for m in all_of[benchmark] if by_model or m not in BY_MODEL)


def _events(
    benchmark: ProbeBenchmark, probes: Sequence[Probe], lifelogs: dict[str, Lifelog], asked: Asked
) -> Iterator[ProbeEvent]:
    """Each probe when it is due, at the end of its stream, or twice."""
    if asked != "offline":
        for probe in probes:
            yield _event(probe, probe.id, probe.segment, lifelogs[probe.stream], _metrics(benchmark, probe))
    if asked == "online":
        return
    used = Counter((probe.stream, probe.segment) for probe in probes)
    for probe in probes:
        lifelog = lifelogs[probe.stream]
        last = len(lifelog.segments) - 1
        name = probe_id(probe.stream, last, used[probe.stream, last])
        used[probe.stream, last] += 1
        metrics = tuple(_OFFLINE[metric] for metric in _metrics(benchmark, probe))
        yield _event(probe, name, last, lifelog, metrics)


def _metrics(benchmark: ProbeBenchmark, probe: Probe) -> tuple[ProbeMetric, ...]:
    """What it is judged by. What its gold is missing for would be unjudged for everybody, and is not asked."""
    gold = probe.gold
    match benchmark:
        case "realmem":
            return (
                *(RETRIEVAL if gold.segments else ()),
                *(("qa", "memory_recall") if gold.memories else ()),
                *(("helpful",) if gold.answer.strip() else ()),
            )
        case "apm" if gold.decision is not None:
            return ("decision", "gated_score")
        case _ if probe.options:
            return ("mcq_accuracy",) if gold.option else ()
        case _:
            return ("open_accuracy",) if gold.answer.strip() else ()


def _event(
    probe: Probe, name: str, segment: int, lifelog: Lifelog, metrics: tuple[ProbeMetric, ...]
) -> ProbeEvent:
    quarter = f"{quarter_of(probe.segment, len(lifelog.segments))} of 4"
    return ProbeEvent(
        id=f"{name}/probe",
        run="",
        stream=probe.stream,
        event_time_us=lifelog.segments[max(segment, 0)].end_time_us,
        anchor=name,
        segment=segment,
        source_id=probe.source_id,
        asked_time_us=probe.asked_time_us,
        question=probe.text,
        options=probe.options,
        text=asked_text(probe),
        gold=probe.gold,
        groups={**probe.groups, "quarter": quarter},
        metrics=metrics,
    )


def cut_outline(outline: OutlineEvent, segments: int) -> OutlineEvent:
    """An outline of its stream's first segments."""
    return msgspec.structs.replace(
        outline,
        segment_ends_us=outline.segment_ends_us[:segments],
        event_time_us=outline.segment_ends_us[:segments][-1],
        sessions=tuple(span for span in outline.sessions if span.last_segment < segments),
    )


def _outline(lifelog: Lifelog, sessions: Sequence[SessionSpan]) -> OutlineEvent:
    return OutlineEvent(
        id=f"{lifelog.stream}/outline",
        run="",
        stream=lifelog.stream,
        event_time_us=lifelog.segments[-1].end_time_us,
        segment_ends_us=tuple(segment.end_time_us for segment in lifelog.segments),
        sessions=tuple(span for span in sessions if span.last_segment < len(lifelog.segments)),
    )
