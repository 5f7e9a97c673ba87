"""EgoLife's SRT trees and Sync JSON: times, order, segments, and what is counted instead of lost."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.datasets import read_dataset
from producers.datasets.egolife import cut_segments
from producers.datasets.files import parse_name
from producers.lifelog import DAY1_US, DAY_US, SEGMENT_US, RawObservation
from simulator.errors import DatasetError

SECOND = 1_000_000


def at(clock: str, day: int = 1) -> int:
    hours, minutes, seconds = map(int, clock.split(":"))
    return DAY1_US + (day - 1) * DAY_US + ((hours * 60 + minutes) * 60 + seconds) * SECOND


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def cue(number: int, start: str, *lines: str) -> str:
    return "\n".join([str(number), f"{start},000 --> {start},900", *lines, "", ""])


def sync(path: Path, *entries: Any) -> Path:
    return write(path, json.dumps([{"video_file": "DAY1_A1_JAKE_11000000.mp4", "data": list(entries)}]))


def entry(start: object, end: object, text: str = "I look.", type_: str = "caption") -> dict[str, object]:
    return {"start": start, "end": end, "text": text, "type": type_}


@given(st.lists(st.integers(0, 3 * DAY_US // SECOND), min_size=1, max_size=60))
@settings(deadline=None)
def test_segments_partition_the_observations(seconds: list[int]) -> None:
    times = sorted(DAY1_US + s * SECOND for s in seconds)
    observations = [RawObservation(t, "dialog", "x", f"DAY{(t - DAY1_US) // DAY_US + 1}") for t in times]
    spans = cut_segments(observations)
    covered = [seq for span in spans for seq in range(span.first_seq, span.last_seq + 1)]
    assert covered == list(range(len(observations)))
    for span in spans:
        assert span.end_time_us - span.start_time_us == SEGMENT_US
        assert span.start_time_us % SEGMENT_US == 0
        for observation in observations[span.first_seq : span.last_seq + 1]:
            assert span.start_time_us <= observation.event_time_us < span.end_time_us
            assert observation.day == span.day
    assert len({span.start_time_us for span in spans}) == len(spans)
    for before, after in pairwise(spans):
        assert after.segment_id == (before.segment_id + 1 if after.day == before.day else 0)


@pytest.mark.parametrize(
    ("name", "participant", "start", "as_specified"),
    [
        ("A1_JAKE_DAY1_11094208.srt", "A1_JAKE", at("11:09:42") + 80_000, True),
        ("DAY6_A4_LUCIA_21000000.mp4.srt", "A4_LUCIA", at("21:00:00", 6), False),
        ("A4_LUCIA_DAY6_21000000.mp4.srt", "A4_LUCIA", at("21:00:00", 6), False),
        ("DAY2_09000000_A1_JAKE.json", "A1_JAKE", at("09:00:00", 2), False),
        ("A1_JAKE_DAY1_110942.srt", "A1_JAKE", at("11:09:42"), False),
        ("A1_JAKE_DAY1_25000000.srt", "A1_JAKE", None, False),
        ("notes.srt", "notes", None, False),
    ],
)
def test_file_names(name: str, participant: str, start: int | None, as_specified: bool) -> None:
    assert parse_name(Path(name)) == (participant, start, as_specified)


@given(
    st.lists(
        st.lists(st.sampled_from(["Jake: 好", "Jake: Okay", "：", "x", "7"]), max_size=4),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_every_text_line_of_a_file_is_in_one_observation(texts: list[list[str]], separated: bool) -> None:
    blank = [""] if separated else []
    lines: list[str] = []
    for number, content in enumerate(texts, 1):
        lines += [str(number), f"00:00:{number:02d},000 --> 00:00:{number:02d},500", *content, *blank]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "A1_JAKE" / "DAY1" / "A1_JAKE_DAY1_11000000.srt", "\n".join(lines))
        if not any(texts):
            with pytest.raises(DatasetError, match="no observation"):
                read_dataset(folder)
            return
        dataset = read_dataset(folder, language="both")
    observations = dataset.lifelogs["A1_JAKE"].observations
    assert [o.text.split("\n") for o in observations] == [content for content in texts if content]
    assert dataset.report.counts["cues"] == len(texts)
    assert dataset.report.oddities["no_text_left_out"] == sum(not content for content in texts)


def test_transcript_and_dense_caption_merge_by_time_with_what_is_seen_first(tmp_path: Path) -> None:
    transcript = cue(1, "00:00:01", "Jake: 一", "Jake: One.") + cue(2, "00:00:00", "Jake: 零", "Jake: Zero.")
    write(tmp_path / "Transcript/A1_JAKE/DAY1/A1_JAKE_DAY1_11000000.srt", transcript)
    write(tmp_path / "DenseCaption/A1_JAKE/DAY1/A1_JAKE_DAY1_11000000.srt", cue(1, "00:00:01", "我看手机"))
    dataset = read_dataset(tmp_path)
    got = [
        (o.event_time_us, o.source, o.text, o.stream_index) for o in dataset.lifelogs["A1_JAKE"].observations
    ]
    assert got == [
        (at("11:00:00"), "dialog", "Jake: Zero.", 0),
        (at("11:00:01"), "description", "我看手机", 1),
        (at("11:00:01"), "dialog", "Jake: One.", 2),
    ]
    assert dataset.report.oddities == {"out_of_order": 1, "cue_of_one_line": 1, "untranslated": 1}
    assert dataset.report.examples["untranslated"] == [
        "DenseCaption/A1_JAKE/DAY1/A1_JAKE_DAY1_11000000.srt:2: 我看手机"
    ]
    assert [o.source for o in read_dataset(tmp_path / "Transcript").lifelogs["A1_JAKE"].observations] == [
        "dialog"
    ] * 2
    only = read_dataset(tmp_path / "DenseCaption" / "A1_JAKE").lifelogs["A1_JAKE"]
    assert [o.source for o in only.observations] == ["description"]


def test_what_runs_past_midnight_is_the_next_day_and_counted(tmp_path: Path) -> None:
    content = cue(1, "00:29:59", "A: 一", "A: one") + cue(2, "00:30:01", "A: 二", "A: two")
    write(tmp_path / "A1_JAKE/DAY1/DAY1_A1_JAKE_23300000.mp4.srt", b"\xef\xbb\xbf" + content.encode())
    dataset = read_dataset(tmp_path)
    log = dataset.lifelogs["A1_JAKE"]
    assert [(o.event_time_us, o.day) for o in log.observations] == [
        (at("23:59:59"), "DAY1"),
        (at("00:00:01", 2), "DAY2"),
    ]
    assert [(s.day, s.segment_id) for s in log.segments] == [("DAY1", 0), ("DAY2", 0)]
    assert dataset.report.oddities == {"past_midnight": 1, "file_name": 1, "byte_order_mark": 1}


def test_files_that_cannot_be_placed_are_counted_and_left_out(tmp_path: Path) -> None:
    write(tmp_path / "A1_JAKE/DAY1/A1_JAKE_DAY1_11000000.srt", cue(1, "00:00:00", "A: 一", "A: one"))
    write(tmp_path / "A1_JAKE/DAY1/notes.srt", cue(1, "00:00:00", "A: 一", "A: one"))
    write(tmp_path / "A1_JAKE/DAY1/A1_JAKE_DAY1_12000000.srt", "")
    dataset = read_dataset(tmp_path)
    assert len(dataset.lifelogs["A1_JAKE"].observations) == 1
    assert dataset.report.oddities["file_without_clock_left_out"] == 1
    assert dataset.report.oddities["empty_file"] == 1


def test_sync_is_sorted_stably_and_keeps_what_it_can(tmp_path: Path) -> None:
    sync(
        tmp_path / "Sync" / "A1_JAKE_DAY1_09000000.json",
        entry(93005, 93006, "second"),
        entry("093000", 93001, "Jake: first", "transcript"),
        entry(93005, 93001, "third"),
        entry(99999, 93001),
        entry(93005, 93006, type_="smell"),
        entry(93005, 93006, " "),
        entry(93006, None, "fourth"),
        {"start": 93005},
        "nonsense",
    )
    dataset = read_dataset(tmp_path)
    log = dataset.lifelogs["A1_JAKE"]
    assert dataset.layout == "egolife-sync"
    assert [(o.event_time_us, o.source, o.text, o.end_time_us) for o in log.observations] == [
        (at("09:30:00"), "dialog", "Jake: first", at("09:30:01")),
        (at("09:30:05"), "description", "second", at("09:30:06")),
        (at("09:30:05"), "description", "third", None),
        (at("09:30:06"), "description", "fourth", None),
    ]
    assert dataset.report.oddities == {
        "malformed_entry_left_out": 4,
        "no_text_left_out": 1,
        "end_before_start": 1,
        "clock_as_text": 1,
        "unreadable_end": 1,
        "sorted_by_time": 1,
    }
    assert dataset.report.counts["entries"] == len(log.observations) + 5
    assert dataset.report.examples["malformed_entry_left_out"][0] == (
        "A1_JAKE_DAY1_09000000.json: $[0].data[3].start: 99999"
    )


def test_streams_progress_and_digest(tmp_path: Path) -> None:
    for stream in ("A1_JAKE", "A2_ALICE"):
        sync(tmp_path / f"{stream}_DAY1_09000000.json", entry(90000, 90001))
    steps: list[tuple[int, int]] = []
    both = read_dataset(tmp_path, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 2), (2, 2)]
    assert list(both.lifelogs) == ["A1_JAKE", "A2_ALICE"]
    assert both.digest == read_dataset(tmp_path).digest
    one = read_dataset(tmp_path, streams=["A2_ALICE"])
    assert list(one.lifelogs) == ["A2_ALICE"]
    assert one.digest != both.digest
    with pytest.raises(DatasetError, match="no stream A9_EVE; there is A1_JAKE, A2_ALICE"):
        read_dataset(tmp_path, streams=["A9_EVE"])


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("Sync/A1_JAKE_DAY1_09000000.json", b'[\n{"video_file": "x",\n "data": [', 3, "not JSON"),
        ("Sync/A1_JAKE_DAY1_09000000.json", b"", 1, "not JSON"),
        ("Sync/A1_JAKE_DAY1_09000000.json", b"[" * 100_000, None, "nested too deeply"),
        ("Sync/A1_JAKE_DAY1_09000000.json", b'[{"data": [{"text": "\\ud800"}]}]', None, "not JSON"),
        ("Sync/A1_JAKE_DAY1_09000000.json", b'{"data": []}', None, "Expected `array`, got `object`"),
        ("Sync/A1_JAKE_DAY1_09000000.json", b'[\n"\xff"]', 2, "not UTF-8: byte 0xff"),
        ("A1_JAKE/DAY1/A1_JAKE_DAY1_09000000.srt", b"1\n00:00:00,000 --> 00:00:01,000\n\xc3", 3, "not UTF-8"),
        ("A1_JAKE/DAY1/A1_JAKE_DAY1_09000000.srt", b"\n<html>\n", 2, "no cue in it"),
    ],
)
def test_a_broken_file_is_named_with_line_and_reason(
    tmp_path: Path, name: str, content: bytes, line: int | None, reason: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DatasetError) as caught:
        read_dataset(tmp_path)
    assert caught.value.path == path
    assert caught.value.line == line
    assert reason in caught.value.reason
