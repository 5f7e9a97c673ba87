"""What is in a dataset, as one JSON-able object: counts per stream, anchors, oddities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from producers.datasets import Language, Progress, layouts_at, read_dataset, read_layout
from producers.datasets.srt import speaker
from producers.lifelog import DAY1_US, DAY_US, Dataset, Lifelog
from producers.probes import ProbeSet
from producers.seeded import PREFIX

GAP_US = 30 * 60 * 1_000_000
"""Time without a segment that is listed as a gap."""
_SPEAKERS = 12


def clock_of(event_time_us: int) -> str:
    """The clock time of an event time: `11:09:43`."""
    seconds = (event_time_us - DAY1_US) % DAY_US // 1_000_000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def inspect_stream(lifelog: Lifelog) -> dict[str, Any]:
    """Counts of one stream, by day and by source, the most frequent speakers, and its gaps over 30 minutes
    within a day."""
    observations, segments = lifelog.observations, lifelog.segments
    sources = Counter(observation.source for observation in observations)
    speakers = Counter(speaker(o.text)[0] for o in observations if o.source == "dialog")
    speakers.pop("", None)
    days: dict[str, dict[str, Any]] = {}
    gaps = []
    before = None
    for span in segments:
        count = span.last_seq - span.first_seq + 1
        if span.day not in days:
            first = clock_of(observations[span.first_seq].event_time_us)
            days[span.day] = {"first": first, "last": "", "observations": 0, "segments": 0}
        day = days[span.day]
        day["last"] = clock_of(observations[span.last_seq].event_time_us)
        day["observations"] += count
        day["segments"] += 1
        if before and before.day == span.day and (gap := span.start_time_us - before.end_time_us) > GAP_US:
            ends = {"from": clock_of(before.end_time_us), "to": clock_of(span.start_time_us)}
            gaps.append({"day": span.day, **ends, "minutes": gap // 60_000_000})
        before = span
    return {
        "observations": len(observations),
        "segments": len(segments),
        "dialog": sources["dialog"],
        "description": sources["description"],
        "mean_observations_per_segment": round(len(observations) / len(segments), 1) if segments else 0.0,
        "days": days,
        "gaps": gaps,
        "speakers": dict(speakers.most_common(_SPEAKERS)),
    }


def inspect_dataset(dataset: Dataset) -> dict[str, Any]:
    """A dataset as an object with `streams`, `anchors`, `anchors_detail`, `oddities`, `examples` and
    `counts`. Pure."""
    counts = dataset.report.counts
    streams = {name: inspect_stream(lifelog) for name, lifelog in dataset.lifelogs.items()}
    for name, stream in streams.items():
        if f"cues.{name}" in counts:
            stream["cues"] = counts[f"cues.{name}"]
    return {
        "path": dataset.path,
        "layout": dataset.layout,
        "digest": dataset.digest,
        "streams": streams,
        "anchors": len(dataset.anchors),
        "anchors_detail": {
            "by_stream": dict(Counter(anchor.stream for anchor in dataset.anchors)),
            "by_type": dict(Counter(anchor.evidence_type for anchor in dataset.anchors)),
            "supporting_observations": counts["supporting_observations"],
            "supporting_matched": counts["supporting_matched"],
            "without_match": counts["anchors_without_match"],
        },
        "counts": dict(counts),
        "oddities": dict(dataset.report.oddities.most_common()),
        "examples": dataset.report.examples,
    }


def inspect_probes(probed: ProbeSet) -> dict[str, Any]:
    """As `inspect_dataset`, with `probes`: how many, and how many of each group. Pure."""
    groups: dict[str, Counter[str]] = {}
    for probe in probed.probes:
        for name, group in probe.groups.items():
            groups.setdefault(name, Counter())[group] += 1
    probes = {
        "total": len(probed.probes),
        "with_gold_segments": sum(bool(probe.gold.segments) for probe in probed.probes),
        "groups": {name: dict(counts.most_common()) for name, counts in groups.items()},
    }
    return {**inspect_dataset(probed.dataset), "benchmark": probed.benchmark, "probes": probes}


def inspect_path(
    path: str | Path,
    *,
    language: Language = "en",
    streams: Collection[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Inspect the dataset at a path. Where several lie below it, `sections` holds each by its sub-path;
    `streams` then has all (`Sync/A1_JAKE`), and `anchors` and `oddities` are sums. Blocks, and raises, as
    `read_dataset`."""
    if isinstance(path, str) and path.startswith(PREFIX):
        return inspect_dataset(read_dataset(path, streams=streams))
    layouts, _ = layouts_at(path)
    if len(layouts) == 1:
        return inspect_dataset(read_dataset(path, language=language, streams=streams, progress=progress))
    sections: dict[str, dict[str, Any]] = {}
    for layout in layouts:
        name = layout.path.relative_to(path).as_posix()
        dataset = read_layout(layout, language=language, streams=streams, progress=progress)
        sections[name] = inspect_dataset(dataset)
    oddities: Counter[str] = Counter()
    for section in sections.values():
        oddities.update(section["oddities"])
    return {
        "path": str(path),
        "streams": {
            f"{name}/{s}": stream for name, part in sections.items() for s, stream in part["streams"].items()
        },
        "anchors": sum(section["anchors"] for section in sections.values()),
        "oddities": dict(oddities.most_common()),
        "sections": sections,
    }
