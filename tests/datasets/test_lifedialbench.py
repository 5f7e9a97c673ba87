"""LifeDialBench: chunks as segments, questions due by date, every oddity, malformed files, and made-up data."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.choice import LETTERS
from judges.diagnoses import contamination, overwriting
from producers.datasets.lifedialbench import parse_times, read_lifedialbench
from producers.lifedialbench import LifeDialOptions, synthesise
from producers.lifelog import DAY1_US, DAY_US
from producers.probes import Probe, ProbeSet, as_event_time_us, quarter_of
from simulator.errors import ConfigError, DatasetError

MINUTE = 60_000_000


def lines(*texts: str) -> list[dict[str, str]]:
    return [{"speaker": "Jake", "content": text} for text in texts]


def question(text: str = "Where?", **more: Any) -> dict[str, Any]:
    asked = {
        "question": text,
        "options": ["A. here", "B. there"],
        "golden_option": "B",
        "answer": "there",
        "question_time": "2025-08-17",
        "question_type": "single_event",
        "evidence_date": "2025-08-16, 11:00-11:10",
        "timescale": "10min",
    }
    return asked | more


def history(*qa: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = {
        "history_name": "A1_JAKE",
        "chat_time": ["2025-08-16, 11:00-11:10", "2025-08-16, 11:10-11:20", "2025-08-17, 09:00-09:10"],
        "chat_history": [lines("one", "two"), lines("three"), lines("four")],
        "qa": qa,
    }
    return made | more


def write(folder: Path, *histories: dict[str, Any], name: str = "EgoMem.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(histories), encoding="utf-8")
    return path


def test_chunks_are_segments_and_questions_become_due_by_date(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        history(
            question("Late?", question_time="2025-08-25"),
            question(
                "Both?", evidence_date=["2025-08-16, 11:05-11:15"], options=None, answer="here and there"
            ),
            question(),
        ),
    )
    found = read_lifedialbench(path)
    log = found.dataset.lifelogs["EgoMem_A1_JAKE"]
    at = DAY1_US + 11 * 60 * MINUTE
    assert [(o.event_time_us, o.text, o.day) for o in log.observations[:3]] == [
        (at, "Jake: one", "DAY1"),
        (at + 5 * MINUTE, "Jake: two", "DAY1"),
        (at + 10 * MINUTE, "Jake: three", "DAY1"),
    ]
    assert [(s.start_time_us, s.end_time_us) for s in log.segments[:2]] == [
        (at, at + 10 * MINUTE),
        (at + 10 * MINUTE, at + 20 * MINUTE),
    ]
    both, first, late = found.probes
    assert (first.text, first.segment, first.asked_time_us) == ("Where?", 1, DAY1_US + DAY_US)
    assert (first.options, first.gold.option, first.gold.segments) == (("here", "there"), "B", (0,))
    assert first.groups == {
        "type": "single_event",
        "format": "choice",
        "subset": "EgoMem",
        "timescale": "10min",
    }
    assert (both.options, both.groups["format"], both.gold.segments) == ((), "open", (0, 1))
    assert (late.segment, late.id) == (2, "EgoMem_A1_JAKE/s2/p0")
    assert found.dataset.report.oddities == {}
    assert [quarter_of(segment, 8) for segment in (-1, 0, 1, 2, 5, 7)] == [1, 1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-08-16, 21:30-21:40", [(1290, 1300)]),
        ("2025-08-16 21:30 - 21:40", [(1290, 1300)]),
        ("2025-08-16T21:30", [(1290, None)]),
        ("2025/8/16 (Sat) 21:30:00", [(1290, None)]),
        ("DAY1, 21:30-21:40", [(1290, 1300)]),
        ("2025-08-16", [(0, 1440)]),
        ("2025-08-16, 23:55-00:05", [(1435, 1445)]),
        ("2025-08-16, 09:00-09:10; 2025-08-17, 09:00-09:10", [(540, 550), (1980, 1990)]),
        ("2025-08-16, 25:00-26:00", []),
        ("2025-13-16", []),
        ("yesterday", []),
    ],
)
def test_times(text: str, expected: list[tuple[int, int | None]]) -> None:
    ends = [(s - DAY1_US, e if e is None else e - DAY1_US) for s, e in parse_times(text)]
    assert ends == [(s * MINUTE, e if e is None else e * MINUTE) for s, e in expected]


@pytest.mark.parametrize(
    ("oddity", "change"),
    [
        ("due_before_the_first_chunk", {"question_time": "2025-08-16", "evidence_date": "2025-08-15"}),
        ("evidence_after_question", {"evidence_date": "2025-08-17, 09:00-09:10"}),
        ("evidence_not_in_stream", {"evidence_date": "2025-08-16, 03:00-03:10"}),
        ("no_evidence_date", {"evidence_date": None}),
        ("unreadable_evidence_date", {"evidence_date": "on Monday"}),
        ("golden_option_is_none", {"golden_option": "C"}),
        ("golden_option_is_none", {"golden_option": None}),
        ("option_without_letter", {"options": ["here", "B. there"]}),
        ("option_letters_out_of_order", {"options": ["B. here", "A. there"]}),
        ("answer_is_not_the_golden_option", {"answer": "here"}),
        ("unknown_question_type", {"question_type": "riddle"}),
        ("question_without_gold", {"options": [], "answer": " "}),
        ("question_without_text_left_out", {"question": " "}),
    ],
)
def test_oddities_of_questions_are_counted(tmp_path: Path, oddity: str, change: dict[str, Any]) -> None:
    report = read_lifedialbench(write(tmp_path, history(question(**change)))).dataset.report
    assert report.oddities[oddity] >= 1
    assert report.examples[oddity][0].startswith("EgoMem.json: $[0].qa[0]")


def test_the_golden_option_goes_by_its_own_letter(tmp_path: Path) -> None:
    jumbled = question(options=["B. here", "A. there"], golden_option="A", answer="there")
    found = read_lifedialbench(write(tmp_path, history(jumbled)))
    (probe,) = found.probes
    assert (probe.options, probe.gold.option) == (("here", "there"), "B")
    assert found.dataset.report.oddities == {"option_letters_out_of_order": 2}


def test_oddities_of_chunks(tmp_path: Path) -> None:
    times = ["2025-08-17, 09:00", "2025-08-16, 11:00-11:20", "2025-08-16, 11:10", "2025-08-16, 12:00"]
    chunks = [lines("last"), lines("one", " "), lines("two", "three"), lines("")]
    odd = history(chat_time=times, chat_history=chunks)
    more = history(chat_time=["2025-08-18"], chat_history=[[{"speaker": " ", "content": "a whole day"}]])
    found = read_lifedialbench(
        write(tmp_path, odd, more, history(history_name="B", chat_time=[], chat_history=[]))
    )
    assert found.dataset.report.oddities == {
        "chunks_out_of_order": 1,
        "no_text_left_out": 2,
        "chunk_without_text_left_out": 1,
        "overlapping_chunks": 1,
        "history_in_several_parts": 1,
        "no_speaker": 1,
        "stream_without_observations": 1,
    }
    (log,) = found.dataset.lifelogs.values()
    assert [o.text for o in log.observations] == [
        "Jake: one",
        "Jake: two",
        "Jake: three",
        "Jake: last",
        "a whole day",
    ]
    times_us = [o.event_time_us for o in log.observations]
    assert times_us == sorted(times_us)
    ends = [span.end_time_us for span in log.segments]
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("[\n{]", 2, "not JSON"),
        ('{"qa": []}', None, "Expected `array`"),
        ('[{"history_name": "A"}]', None, r"missing required field `chat_time` - at `\$\[0\]`"),
        ("[]", None, "no chunk with a line"),
        (json.dumps([history(chat_time=["2025-08-16"])]), None, "1 times in `chat_time` and 3 chunks"),
        (
            json.dumps([history(chat_time=["2025-08-16", "then", "2025-08-17"])]),
            None,
            r"`\$\[0\]\.chat_time\[1\]` is 'then'",
        ),
        (json.dumps([history(question(question_time="soon"))]), None, r"qa\[0\]\.question_time` is 'soon'"),
    ],
)
def test_malformed_files(tmp_path: Path, content: str, line: int | None, reason: str) -> None:
    path = tmp_path / "LifeMem.json"
    path.write_text(content)
    with pytest.raises(DatasetError, match=reason) as caught:
        read_lifedialbench(path)
    assert caught.value.line == line
    assert path.name in str(caught.value) or "no chunk" in reason


def test_a_folder_has_both_subsets(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"none of EgoMem\.json, LifeMem\.json"):
        read_lifedialbench(tmp_path)
    for name in ("EgoMem.json", "LifeMem.json"):
        write(tmp_path, history(question()), name=name)
    found = read_lifedialbench(tmp_path)
    assert list(found.dataset.lifelogs) == ["EgoMem_A1_JAKE", "LifeMem_A1_JAKE"]
    assert [probe.groups["subset"] for probe in found.probes] == ["EgoMem", "LifeMem"]


# --- made-up data -----------------------------------------------------------------------------------------


@given(
    st.integers(0, 50),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(0, 100).flatmap(lambda r: st.tuples(st.just(r), st.integers(0, 100 - r))),
)
def test_made_up_data_have_nothing_odd(
    seed: int, histories: int, days: int, chunks: int, shares: tuple[int, int]
) -> None:
    options = {"seed": seed, "histories": histories, "days": days, "chunks_per_day": chunks}
    options |= {"facts_per_day": min(chunks, 3), "repeated": shares[0], "changed": shares[1]}
    path = "synthetic:" + ",".join(f"{key}={value}" for key, value in options.items())
    found = read_lifedialbench(path)
    assert found.dataset.report.oddities == {}
    assert found.dataset.report.counts["segments"] == histories * days * chunks
    assert synthesise(LifeDialOptions(**options)) == synthesise(LifeDialOptions(**options))
    for probe in found.probes:
        log = found.dataset.lifelogs[probe.stream]
        assert probe.gold.segments
        assert max(probe.gold.segments) <= probe.segment
        assert log.segments[probe.segment].end_time_us <= probe.asked_time_us
        assert len(set(probe.options)) == len(probe.options)
        if probe.groups["type"] in ("single_event", "event_detail"):
            span = log.segments[probe.gold.segments[0]]
            said = " ".join(o.text for o in log.observations[span.first_seq : span.last_seq + 1])
            assert probe.gold.answer.lower() in said.lower()


def test_the_made_up_file_is_the_made_up_dataset(tmp_path: Path) -> None:
    path = write(tmp_path, *synthesise(LifeDialOptions(seed=3)), name="synthetic.json")
    from_file, made = read_lifedialbench(path), read_lifedialbench("synthetic:seed=3")
    assert from_file.dataset.lifelogs == made.dataset.lifelogs
    assert [p.text for p in from_file.probes] == [p.text for p in made.probes]
    assert {p.groups["type"] for p in made.probes} == {
        "single_event",
        "event_detail",
        "multi_event",
        "time_query",
    }


@pytest.mark.parametrize(
    "path",
    [
        "synthetic:seed=x",
        "synthetic:wearers=2",
        "synthetic:days=0",
        "synthetic:seed=1,seed=2",
        "synthetic:repeated=80,changed=30",
    ],
)
def test_wrong_options(path: str) -> None:
    with pytest.raises(ConfigError):
        read_lifedialbench(path)


def told(data: ProbeSet, probe: Probe) -> list[tuple[int, str]]:
    """(Event time, option's letter) of every line that holds one of a probe's options."""
    return [
        (observation.event_time_us, letter)
        for observation in data.dataset.lifelogs[probe.stream].observations
        for letter, option in zip(LETTERS, probe.options, strict=False)
        if option.lower() in observation.text.lower()
    ]


def facts(data: ProbeSet) -> list[Probe]:
    return [p for p in data.probes if p.groups["type"] == "single_event"]


def offline(data: ProbeSet, uses: Callable[[int, int], bool]) -> list[tuple[bool, bool]]:
    """Who answers with the newest line among those that `uses` (its time, when the question was due) lets through:
    whether that is newer than the question, and whether it is right."""
    answers = []
    for probe in facts(data):
        kept = [line for line in told(data, probe) if uses(line[0], probe.asked_time_us)]
        right = bool(kept) and max(kept)[1] == probe.gold.option
        answers.append((bool(kept) and max(kept)[0] >= probe.asked_time_us, right))
    return answers


def test_made_up_data_show_contamination_of_who_lives_on_the_future() -> None:
    data = read_lifedialbench("synthetic:seed=5,histories=6,days=10,facts_per_day=2,repeated=60,changed=0")
    honest = contamination(offline(data, lambda time, due: time < due))
    peeking = contamination(offline(data, lambda time, due: time >= due))
    assert honest.value in (0.5, None)
    assert peeking.value is not None
    assert peeking.value > 0.6
    assert peeking.positives > 20 < peeking.negatives


def test_made_up_data_show_overwriting_by_who_keeps_the_newest_alone() -> None:
    data = read_lifedialbench("synthetic:seed=5,histories=6,days=10,repeated=20,changed=60")
    online = offline(data, lambda time, due: time < due)
    at_end = offline(data, lambda time, due: True)
    found = overwriting((a, b) for (_, a), (_, b) in zip(online, at_end, strict=True))
    assert found.right_both + found.overwritten == found.pairs  # online it is always right
    assert found.overwritten > found.pairs // 4
    assert found.gained == 0


def test_dates_are_clock_times_of_the_place() -> None:
    assert as_event_time_us(datetime(2025, 8, 16)) == DAY1_US
