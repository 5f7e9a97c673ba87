"""The StreamMemBench release: times, anchors, what matches, and malformed files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from producers.datasets import read_dataset
from producers.lifelog import DAY1_US, DAY_US
from simulator.errors import DatasetError

MINUTE = 60_000_000


def observation(index: int, text: str, source: str = "dialog") -> dict[str, Any]:
    return {
        "timestamp": f"stream_index:{index}",
        "source": source,
        "text": text,
        "metadata": {"stream_index": index, "quote_hint": text},
    }


def segment(segment_id: int, time_range: str, *observations: dict[str, Any]) -> dict[str, Any]:
    return {
        "segment_id": segment_id,
        "time_range": time_range,
        "stream_segment": {"observations": observations},
    }


def anchor(*supporting: dict[str, Any], **more: Any) -> dict[str, Any]:
    task = {"user_request": "ask", "expected_behavior": "do"}
    return {
        "evidence_id": "tea",
        "evidence_statement": "Ada likes tea.",
        "evidence_type": "stated",
        "subject": "Ada",
        "supporting_observations": supporting,
        "tasks": {"initial_task": task, "followup_task": task},
    } | more


class Release:
    def __init__(self, root: Path) -> None:
        self.root = root

    def segments(self, day: str, *segments: dict[str, Any], **more: Any) -> Path:
        content = {
            "participant": "A1_ADA",
            "day": day,
            "num_segments": len(segments),
            "segments": segments,
        } | more
        return self.write(f"segments/A1_ADA/{day}.json", content)

    def evidence(self, day: str, *items: dict[str, Any], end: str = ".clean.json", **more: Any) -> Path:
        count = sum(len(item["evidence_anchors"]) for item in items)
        content = {"participant": "A1_ADA", "day": day, "num_items": len(items), "items": items}
        return self.write(
            f"evidence_tasks/A1_ADA/{day}{end}", content | {"num_evidence_anchors": count} | more
        )

    def write(self, name: str, content: object) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path


@pytest.fixture
def release(tmp_path: Path) -> Release:
    made = Release(tmp_path / "streammembench_v1_en")
    made.segments(
        "DAY1",
        segment(
            0, "09:00:00 - 09:05:00", observation(0, "Ada: Tea."), observation(1, "I pour.", "description")
        ),
        segment(3, "09:10:00 - 09:15:00", observation(2, "Bo: Oh.")),
    )
    made.segments("DAY2", segment(0, "23:55:00 - 00:00:00", observation(0, "Ada: Tea again.")))
    return made


def test_observations_are_spread_over_their_segments_and_days_restart_the_index(release: Release) -> None:
    dataset = read_dataset(release.root)
    log = dataset.lifelogs["A1_ADA"]
    nine = DAY1_US + 9 * 60 * MINUTE
    assert [(o.event_time_us, o.day, o.stream_index) for o in log.observations] == [
        (nine, "DAY1", 0),
        (nine + 2 * MINUTE + MINUTE // 2, "DAY1", 1),
        (nine + 10 * MINUTE, "DAY1", 2),
        (DAY1_US + 2 * DAY_US - 5 * MINUTE, "DAY2", 0),
    ]
    assert [(s.day, s.segment_id, s.first_seq, s.last_seq) for s in log.segments] == [
        ("DAY1", 0, 0, 1),
        ("DAY1", 3, 2, 2),
        ("DAY2", 0, 3, 3),
    ]
    assert log.segments[2].end_time_us == DAY1_US + 2 * DAY_US
    assert dataset.anchors == []
    assert dataset.report.oddities == {}


def test_anchors_get_opaque_names_global_segments_and_the_supporting_lines_that_match(
    release: Release,
) -> None:
    twice = {"segment_id": 0, "evidence_anchors": [anchor(observation(0, "Ada: Tea again."))]}
    release.evidence("DAY2", twice, twice)
    release.evidence(
        "DAY1",
        {
            "segment_id": 3,
            "evidence_anchors": [
                anchor(observation(2, "Bo: Oh."), observation(1, "Bo: Oh."), observation(9, "?"))
            ],
        },
        {"segment_id": 7, "evidence_anchors": [anchor()]},
        num_items=5,
    )
    release.evidence("DAY1", end=".json")
    dataset = read_dataset(release.root)
    assert [(a.anchor, a.id, a.segment, a.supporting_seqs) for a in dataset.anchors] == [
        ("A1_ADA/s1/e0", "A1_ADA/s1/e0/anchor", 1, (2,)),
        ("A1_ADA/s2/e0", "A1_ADA/s2/e0/anchor", 2, (3,)),
        ("A1_ADA/s2/e1", "A1_ADA/s2/e1/anchor", 2, (3,)),
    ]
    assert {a.event_time_us for a in dataset.anchors[1:]} == {DAY1_US + 2 * DAY_US}
    assert {a.run for a in dataset.anchors} == {""}
    counts, oddities = dataset.report.counts, dataset.report.oddities
    assert (counts["anchors"], counts["supporting_observations"], counts["supporting_matched"]) == (3, 5, 3)
    assert counts["anchors_without_match"] == 0
    assert oddities == {
        "supporting_observation_not_in_stream": 2,
        "repeated_evidence_id": 2,
        "anchor_without_segment_left_out": 1,
        "num_items_disagrees": 1,
        "second_version_left_out": 1,
    }


def test_missing_optional_fields_are_counted(release: Release) -> None:
    bare = {"segment_id": 0, "time_range": "09:00:00-09:05:00"}
    texts = [
        {"source": "dialog", "text": "Ada: a"},
        {"source": "dialog", "text": "Ada: b", "timestamp": "stream_index:1"},
    ]
    release.write(
        "segments/A1_ADA/DAY1.json", {"segments": [bare | {"stream_segment": {"observations": texts}}]}
    )
    task = anchor()["tasks"]
    item = {"segment_id": 0, "evidence_anchors": [{"evidence_statement": "x", "tasks": task}]}
    release.write("evidence_tasks/A1_ADA/DAY1.json", {"items": [item]})
    dataset = read_dataset(release.root)
    assert [o.stream_index for o in dataset.lifelogs["A1_ADA"].observations] == [0, 1, 0]
    assert dataset.report.oddities == {
        "missing_participant": 2,
        "missing_day": 2,
        "missing_num_segments": 1,
        "missing_num_items": 1,
        "missing_num_evidence_anchors": 1,
        "missing_stream_index": 1,
        "missing_evidence_id": 1,
        "missing_evidence_type": 1,
        "missing_subject": 1,
        "missing_supporting_observations": 1,
    }
    assert dataset.report.counts["anchors_without_match"] == 1


def test_odd_segments_keep_time_order(release: Release) -> None:
    release.segments(
        "DAY1",
        segment(1, "09:02:00 - 09:07:00", observation(2, "Ada: later"), observation(3, "Ada: last")),
        segment(0, "09:00:00 - 09:05:00", observation(0, "Ada: a"), observation(1, "Ada: b")),
        segment(2, "09:10:00 - 09:15:00"),
        segment(2, "09:20:00 - 09:25:00", observation(9, "no speaker"), observation(9, "  ")),
        num_segments=3,
    )
    dataset = read_dataset(release.root)
    log = dataset.lifelogs["A1_ADA"]
    times = [o.event_time_us for o in log.observations]
    assert times == sorted(times)
    assert [o.text for o in log.observations[:4]] == ["Ada: a", "Ada: b", "Ada: later", "Ada: last"]
    assert dataset.report.oddities == {
        "num_segments_disagrees": 1,
        "segments_out_of_order": 1,
        "overlapping_segments": 1,
        "segment_without_observations_left_out": 1,
        "stream_index_jumps": 1,
        "no_speaker": 1,
        "no_text_left_out": 1,
    }


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ('{\n"segments": [', 2, "not JSON"),
        ("[]", None, "Expected `object`, got `array`"),
        (
            '{"segments": [{"segment_id": 0, "time_range": 5, "stream_segment": 1}]}',
            None,
            "$.segments[0].time_range",
        ),
        ('{"segments": [{"segment_id": "x"}]}', None, "$.segments[0].segment_id"),
        (
            json.dumps({"segments": [segment(0, "nine", observation(0, "x"))]}),
            None,
            "$.segments[0].time_range",
        ),
        (json.dumps({"segments": [segment(0, "09:00:00 - 09:05:00", {"source": "dialog"})]}), None, "`text`"),
    ],
)
def test_a_malformed_file_is_named_with_the_place_inside_it(
    release: Release, content: str, line: int | None, reason: str
) -> None:
    path = release.write("segments/A1_ADA/DAY1.json", content)
    with pytest.raises(DatasetError) as caught:
        read_dataset(release.root)
    assert (caught.value.path, caught.value.line) == (path, line)
    assert reason in caught.value.reason


def test_a_malformed_anchor_is_named(release: Release) -> None:
    release.evidence(
        "DAY1", {"segment_id": 0, "evidence_anchors": [anchor(), anchor(tasks={"initial_task": {}})]}
    )
    with pytest.raises(
        DatasetError, match=r"DAY1\.clean\.json.*\$\.items\[0\]\.evidence_anchors\[1\]\.tasks"
    ):
        read_dataset(release.root)


def test_the_parent_picks_by_language_and_parts_lead_to_the_release(release: Release, tmp_path: Path) -> None:
    chinese = Release(tmp_path / "streammembench_v1_zh")
    chinese.segments("DAY1", segment(0, "09:00:00 - 09:05:00", observation(0, "Ada: 茶")))
    assert len(read_dataset(tmp_path).lifelogs["A1_ADA"].observations) == 4
    zh = read_dataset(tmp_path, language="zh")
    assert [o.text for o in zh.lifelogs["A1_ADA"].observations] == ["Ada: 茶"]
    assert zh.report.oddities == {}
    with pytest.raises(DatasetError, match="several datasets"):
        read_dataset(tmp_path, language="both")
    whole = read_dataset(release.root)
    for part in ("segments", "segments/A1_ADA"):
        assert read_dataset(release.root / part, language="zh").digest == whole.digest
