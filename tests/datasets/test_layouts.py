"""What lies at a path: one dataset, several to choose from, or none; and inspection of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from producers.datasets import read_dataset
from producers.inspection import inspect_dataset, inspect_path
from producers.synthetic import SyntheticOptions, synthesise
from simulator.errors import DatasetError

CUE = "1\n00:00:01,000 --> 00:00:02,000\nJake: 好\nJake: Okay.\n"


def egolife(root: Path, *parts: str) -> Path:
    for part in parts:
        if part == "Sync":
            entry = {"start": 110000, "end": 110001, "text": "I look.", "type": "caption"}
            path, content = root / "Sync/A1_JAKE_DAY1_11000000.json", json.dumps([{"data": [entry]}])
        else:
            path, content = root / part / "A1_JAKE/DAY1/A1_JAKE_DAY1_11000000.srt", CUE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root


def test_several_datasets_are_listed_and_inspected_in_sections(tmp_path: Path) -> None:
    root = egolife(tmp_path / "EgoLifeCap", "Sync", "Transcript", "DenseCaption")
    with pytest.raises(DatasetError, match="several datasets") as caught:
        read_dataset(tmp_path)
    for part in ("Sync", "Transcript", "DenseCaption"):
        assert str(root / part) in caught.value.reason
    seen = inspect_path(root)
    assert set(seen["sections"]) == {"Sync", "Transcript", "DenseCaption"}
    assert seen["streams"]["Sync/A1_JAKE"]["observations"] == 1
    assert seen["streams"]["Transcript/A1_JAKE"]["cues"] == 1
    assert seen["anchors"] == 0
    assert seen["oddities"] == {}
    json.dumps(seen)


def test_the_srt_trees_alone_are_one_dataset(tmp_path: Path) -> None:
    root = egolife(tmp_path / "EgoLifeCap", "Transcript", "DenseCaption")
    dataset = read_dataset(tmp_path)
    assert dataset.path == str(root)
    assert [o.source for o in dataset.lifelogs["A1_JAKE"].observations] == ["description", "dialog"]
    assert dataset.report.counts["cues.A1_JAKE"] == 2


@pytest.mark.parametrize("folder", ["EgoLifeCap", "EgoLifeCap/Transcript", "EgoLifeCap/Transcript/A1_JAKE"])
def test_any_folder_above_a_participant_will_do(tmp_path: Path, folder: str) -> None:
    egolife(tmp_path / "EgoLifeCap", "Transcript")
    assert list(read_dataset(tmp_path / folder).lifelogs) == ["A1_JAKE"]


def test_paths_without_a_lifelog(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such folder"):
        read_dataset(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="it is empty"):
        read_dataset(tmp_path / "empty")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DatasetError, match="no file in it is of a known layout"):
        inspect_path(tmp_path)
    with pytest.raises(DatasetError, match="is a file"):
        read_dataset(tmp_path / "notes.txt")


def test_inspection_counts_days_sources_gaps_and_anchors() -> None:
    dataset = synthesise(SyntheticOptions(wearers=1, days=2, segments_per_day=3, anchors_per_day=2))
    seen = inspect_dataset(dataset)
    json.dumps(seen)
    stream = seen["streams"]["W01_ADA"]
    assert (stream["observations"], stream["segments"]) == (240, 6)
    assert stream["dialog"] + stream["description"] == 240
    assert stream["mean_observations_per_segment"] == 40.0
    assert stream["days"]["DAY2"] == {
        "first": "09:00:00",
        "last": "09:14:52",
        "observations": 120,
        "segments": 3,
    }
    assert stream["gaps"] == []
    assert seen["anchors"] == 4
    detail = seen["anchors_detail"]
    assert detail["by_stream"] == {"W01_ADA": 4}
    assert sum(detail["by_type"].values()) == 4
    assert detail["supporting_matched"] == detail["supporting_observations"] >= 4


@pytest.mark.data
def test_the_real_sync(data_dir: Path) -> None:
    seen = inspect_path(data_dir / "egolife" / "EgoLifeCap" / "Sync")
    stream = seen["streams"]["A1_JAKE"]
    assert (stream["observations"], stream["segments"]) == (124_856, 653)
    assert {"day": "DAY1", "from": "14:20:00", "to": "17:10:00", "minutes": 170} in stream["gaps"]
    assert seen["oddities"]["untranslated"] + seen["oddities"]["chinese_within_english"] > 2_000


@pytest.mark.data
def test_the_real_transcripts(data_dir: Path) -> None:
    streams = inspect_path(data_dir / "egolife" / "EgoLifeCap" / "Transcript")["streams"]
    assert {name: (s["cues"], s["observations"], s["segments"]) for name, s in streams.items()} == {
        "A1_JAKE": (56_640, 56_640, 622),
        "A2_ALICE": (47_646, 47_646, 545),
    }


@pytest.mark.data
def test_the_real_release(data_dir: Path) -> None:
    seen = inspect_path(data_dir / "streammembench")
    stream = seen["streams"]["A1_JAKE"]
    assert (stream["observations"], stream["segments"], seen["anchors"]) == (124_856, 653, 44)
    assert (
        seen["anchors_detail"]["supporting_matched"]
        == seen["anchors_detail"]["supporting_observations"]
        == 190
    )
    assert seen["anchors_detail"]["without_match"] == 0


@pytest.mark.data
def test_the_data_folder_lists_its_datasets(data_dir: Path) -> None:
    with pytest.raises(DatasetError, match="several datasets"):
        read_dataset(data_dir)
