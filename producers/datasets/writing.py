"""Writes a dataset in the StreamMemBench release layout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from producers.lifelog import DAY1_US, DAY_US, Dataset, Lifelog, RawObservation, SegmentSpan
from simulator.events import AnchorEvent


def _clock(event_time_us: int, day_us: int) -> str:
    seconds = (event_time_us - day_us) // 1_000_000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _observation(observation: RawObservation, **more: str) -> Mapping[str, Any]:
    index = observation.stream_index
    return {
        "timestamp": f"stream_index:{index}",
        "source": observation.source,
        "text": observation.text,
        "metadata": {"stream_index": index, **more},
    }


def write_release(
    dataset: Dataset, path: str | Path, quotes: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Write a dataset in the release layout below `path` (made if missing). The layout keeps no clock time of
    an observation: reading it back spreads them over their segment. Observations need a stream index (all
    readers give one). `quotes`: by an anchor's event id, what is quoted of each of its supporting observations; of
    others, all that is said."""
    root = Path(path)
    for lifelog in dataset.lifelogs.values():
        by_day: dict[str, list[tuple[int, SegmentSpan]]] = defaultdict(list)
        for number, span in enumerate(lifelog.segments):
            by_day[span.day].append((number, span))
        anchors: dict[int, list[AnchorEvent]] = defaultdict(list)
        for anchor in dataset.anchors:
            if anchor.stream == lifelog.stream:
                anchors[anchor.segment].append(anchor)
        for day, spans in by_day.items():
            segments, items = [], []
            for number, span in spans:
                segment = _segment_json(lifelog, span)
                segments.append(segment)
                if number in anchors:
                    evidence = [
                        _anchor_json(lifelog, span, anchor, (quotes or {}).get(anchor.id))
                        for anchor in anchors[number]
                    ]
                    items.append(
                        {"participant": lifelog.stream, "day": day, **segment, "evidence_anchors": evidence}
                    )
            head = {"participant": lifelog.stream, "day": day}
            segments_file = {**head, "num_segments": len(segments), "segments": segments}
            _write(root / "segments" / lifelog.stream / f"{day}.json", segments_file)
            count = sum(len(item["evidence_anchors"]) for item in items)
            tasks_file = {**head, "num_items": len(items), "num_evidence_anchors": count, "items": items}
            _write(root / "evidence_tasks" / lifelog.stream / f"{day}.clean.json", tasks_file)


def _segment_json(lifelog: Lifelog, span: SegmentSpan) -> dict[str, Any]:
    observations = lifelog.observations[span.first_seq : span.last_seq + 1]
    day_us = DAY1_US + (int(span.day[3:]) - 1) * DAY_US
    return {
        "segment_id": span.segment_id,
        "time_range": f"{_clock(span.start_time_us, day_us)} - {_clock(span.end_time_us, day_us)}",
        "stream_segment": {
            "text": "\n".join(o.text for o in observations),
            "observations": [_observation(o) for o in observations],
        },
    }


def _anchor_json(
    lifelog: Lifelog, span: SegmentSpan, anchor: AnchorEvent, quotes: Sequence[str] | None
) -> dict[str, Any]:
    supporting = [lifelog.observations[seq] for seq in anchor.supporting_seqs]
    quotes = quotes or [o.text.partition(": ")[2] or o.text for o in supporting]
    day_us = DAY1_US + (int(span.day[3:]) - 1) * DAY_US
    window = f"{_clock(span.start_time_us, day_us)}-{_clock(span.end_time_us, day_us)}"
    return {
        "evidence_id": anchor.evidence_id,
        "evidence_statement": anchor.evidence_statement,
        "evidence_type": anchor.evidence_type,
        "subject": anchor.subject,
        "supporting_observations": [
            _observation(o, quote_hint=quote) for o, quote in zip(supporting, quotes, strict=True)
        ],
        "source_span": {
            "time_window": window,
            "clip": f"{lifelog.stream}/{span.day}",
            "raw_indices": [o.stream_index for o in supporting],
        },
        "tasks": {"initial_task": anchor.initial_task, "followup_task": anchor.followup_task},
    }


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
