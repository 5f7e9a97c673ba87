"""RealMem: sessions as segments, queries with gold, every oddity, and malformed files."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.sessions import SessionIndex
from judges.retrieval import ndcg, recall_all, recall_any
from producers.datasets.realmem import read_realmem
from producers.lifelog import DAY_US
from producers.probes import Probe, as_event_time_us
from simulator.errors import DatasetError

HOUR = 3_600_000_000


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"speaker": "User", "content": text, "is_query": False, "query_id": None} | more


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"speaker": "Assistant", "content": text, "is_query": False, "query_id": None} | more


def query(text: str, name: str = "Q-1", **more: Any) -> dict[str, Any]:
    groups = {"topic": "Tea", "category_name": "Dynamic Updating", "session_type": "single_session"}
    return user(text, is_query=True, query_id=name) | groups | more


def used(uuids: list[str], *memories: tuple[str, str]) -> dict[str, Any]:
    items = [{"session_uuid": uuid, "content": text} for uuid, text in memories]
    return {"memory_used": items, "memory_session_uuids": uuids}


def session(number: int, date: str, *turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "session_identifier": f"Tea:S{number}",
        "session_uuid": f"u{number}",
        "current_time": date,
        "extracted_memory": [],
        "dialogue_turns": turns,
    } | more


def write(folder: Path, *sessions: dict[str, Any], name: str = "Ada", **metadata: Any) -> Path:
    path = folder / f"{name}_dialogues_256k.json"
    stated = {"person_name": name, "total_sessions": len(sessions)} | metadata
    path.write_text(json.dumps({"_metadata": stated, "dialogues": sessions}), encoding="utf-8")
    return path


MONDAY = "2025-12-15 (Monday)"


def test_sessions_are_segments_and_queries_come_before_their_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        session(0, MONDAY, user("I like tea."), assistant("Noted.")),
        session(1, MONDAY, user("Now coffee."), assistant("Noted.")),
        session(
            2,
            "2025-12-20 (Saturday)",
            user("Hello."),
            assistant("Hello."),
            query("What do I like?"),
            assistant("Coffee.", **used(["u1", "u0"], ("u1", "likes coffee"))),
            query("And before?", "Q-2"),
            assistant("Tea.", **used(["u0"], ("u0", "liked tea"))),
        ),
    )
    found = read_realmem(tmp_path)
    log = found.dataset.lifelogs["Ada"]
    monday = as_event_time_us(datetime(2025, 12, 15))
    spans = [
        (s.start_time_us - monday, s.end_time_us - monday, s.first_seq, s.last_seq) for s in log.segments
    ]
    assert spans == [
        (0, 12 * HOUR, 0, 1),  # two sessions of one day share it
        (12 * HOUR, 24 * HOUR, 2, 3),
        (5 * DAY_US, 6 * DAY_US, 4, 9),
    ]
    assert [o.text for o in log.observations][:2] == ["User: I like tea.", "Assistant: Noted."]
    assert [o.event_time_us - monday for o in log.observations][:4] == [0, 6 * HOUR, 12 * HOUR, 18 * HOUR]
    assert log.segments[0].day == "DAY122"
    first, second = found.probes
    assert (first.id, first.segment, first.text) == ("Ada/s1/p0", 1, "What do I like?")
    assert (first.gold.segments, first.gold.memories, first.gold.answer) == (
        (0, 1),
        ("likes coffee",),
        "Coffee.",
    )
    assert (second.id, second.source_id, second.gold.segments) == ("Ada/s1/p1", "Q-2", (0,))
    assert first.asked_time_us == monday + 5 * DAY_US
    assert first.groups == {"category": "Dynamic Updating", "session_type": "single_session", "topic": "Tea"}
    assert found.dataset.report.oddities == {}
    assert found.dataset.report.counts["queries_with_gold"] == 2


@pytest.mark.parametrize(
    ("oddity", "turns", "gold"),
    [
        ("unknown_gold_uuid", [query("?"), assistant("!", **used(["u0", "nowhere"]))], (0,)),
        ("gold_from_memory_used", [query("?"), assistant("!", **used([], ("u0", "tea")))], (0,)),
        ("gold_from_memory_used", [query("?"), assistant("!", **used(["nowhere"], ("u0", "tea")))], (0,)),
        ("query_without_gold", [query("?"), assistant("!")], ()),
        ("query_without_gold", [query("?"), assistant("!", **used(["nowhere"], ("gone", "tea")))], ()),
        ("gold_in_own_session", [query("?"), assistant("!", **used(["u0", "u1"]))], (0, 1)),
        ("gold_in_later_session", [query("?"), assistant("!", **used(["u2"]))], (2,)),
        ("repeated_gold_uuid", [query("?"), assistant("!", **used(["u0", "u0"]))], (0,)),
        ("query_without_answer", [query("?")], ()),
        ("query_without_answer", [query("?"), query("!", "Q-2"), assistant("!", **used(["u0"]))], ()),
        ("missing_topic", [query("?", topic=None), assistant("!", **used(["u0"]))], (0,)),
        ("missing_is_query", [query("?", is_query=None), assistant("!", **used(["u0"]))], (0,)),
        (
            "memory_without_query",
            [query("?"), assistant("!", **used(["u0"])), assistant("+", **used(["u0"]))],
            (0,),
        ),
        ("other_speaker", [query("?"), assistant("!", **used(["u0"])), user("x", speaker="Robot")], (0,)),
    ],
)
def test_oddities_of_queries_are_counted(
    tmp_path: Path, oddity: str, turns: list[dict[str, Any]], gold: tuple[int, ...]
) -> None:
    path = write(
        tmp_path,
        session(0, MONDAY, user("tea")),
        session(1, "2025-12-16 (Tuesday)", *turns),
        session(2, "2025-12-17 (Wednesday)", user("later")),
    )
    found = read_realmem(path)
    report = found.dataset.report
    assert report.oddities[oddity] == 1
    assert report.examples[oddity][0].startswith("Ada_dialogues_256k.json: $.dialogues[1].dialogue_turns[")
    assert found.probes[0].gold.segments == gold


def test_other_oddities(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        session(0, "2025-12-15 (Tuesday)", query("early?", query_id=7), assistant(" ")),
        session(
            1, "2025-12-20", user("tea"), user("more tea"), session_uuid="u0", session_identifier="Tea:S0"
        ),
        session(2, "2025-12-16 (Tuesday)", user("back in time"), query("again?", "7"), session_uuid=None),
        session(3, "2025-12-21 (Sunday)", user("  ")),
        session(4, "2025-12-21 (Sunday)", query(" "), assistant("?", is_query=True)),
        person_name="Bo",
        total_sessions=9,
    )
    found = read_realmem(path)
    assert {
        k: v for k, v in found.dataset.report.oddities.items() if "gold" not in k and "answer" not in k
    } == {
        "person_name_disagrees": 1,
        "total_sessions_disagrees": 1,
        "weekday_disagrees": 1,
        "session_dated_before_the_one_before": 1,
        "session_without_text_left_out": 1,
        "repeated_session_identifier": 1,
        "repeated_session_uuid": 1,
        "missing_session_uuid": 1,
        "query_in_first_session": 1,
        "no_text_left_out": 2,
        "same_speaker_twice": 2,
        "repeated_query_id": 1,
        "query_without_text_left_out": 1,
        "query_not_by_user_left_out": 1,
    }
    log = found.dataset.lifelogs["Ada"]
    times = [o.event_time_us for o in log.observations]
    assert times == sorted(times)
    assert [span.last_seq - span.first_seq + 1 for span in log.segments] == [1, 2, 2, 1]
    assert found.probes[0].segment == -1


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ('{"dialogues": [\n  {"session_identifier": "a",,\n', 2, "not JSON"),
        ('{"dialogues": {}}', None, r"Expected `array`, got `object` - at `\$.dialogues`"),
        (
            '{"dialogues": [{"session_identifier": "a"}]}',
            None,
            r"missing required field `current_time`.*dialogues\[0\]|"
            r"required field.*\$.dialogues",
        ),
        ('{"dialogues": []}', None, "no session with a turn"),
    ],
)
def test_malformed_files(tmp_path: Path, content: str, line: int | None, reason: str) -> None:
    path = tmp_path / "Ada_dialogues_256k.json"
    path.write_text(content)
    with pytest.raises(DatasetError, match=reason) as caught:
        read_realmem(path)
    assert caught.value.line == line
    assert caught.value.path == path


def test_a_bad_date_names_its_session(tmp_path: Path) -> None:
    path = write(tmp_path, session(0, MONDAY, user("tea")), session(1, "2025-13-01", user("tea")))
    with pytest.raises(DatasetError, match=r"\$\.dialogues\[1\]\.current_time` is '2025-13-01'"):
        read_realmem(path)


def test_paths_without_realmem(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such file"):
        read_realmem(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="no RealMem file: expected"):
        read_realmem(tmp_path)


def test_users_of_a_folder_are_streams_and_the_digest_is_of_all(tmp_path: Path) -> None:
    for name in ("Ada", "Bo"):
        write(tmp_path, session(0, MONDAY, user(f"I am {name}.")), name=name)
    both = read_realmem(tmp_path)
    assert list(both.dataset.lifelogs) == ["Ada", "Bo"]
    assert both.dataset.digest != read_realmem(tmp_path / "Ada_dialogues_256k.json").dataset.digest


STATED = {"all10": 0.626, "all20": 0.735, "any10": 0.828, "any20": 0.891, "ndcg10": 0.562, "ndcg20": 0.589}
"""BM25 over whole sessions, sessions before the query's own (docs/realmem.md)."""


@pytest.mark.data
def test_the_real_users(data_dir: Path) -> None:
    found = read_realmem(data_dir / "realmem")
    counts, oddities = found.dataset.report.counts, found.dataset.report.oddities
    assert (counts["sessions"], counts["queries"], counts["queries_with_gold"]) == (605, 441, 441)
    assert oddities == {
        "missing_is_query": 1,
        "gold_in_own_session": 1,
        "memory_without_query": 11,
        "no_text_left_out": 1,
        "same_speaker_twice": 1,
    }
    indexes: dict[str, SessionIndex] = {}
    for name, log in found.dataset.lifelogs.items():
        indexes[name] = SessionIndex()
        for span in log.segments:
            turns = log.observations[span.first_seq : span.last_seq + 1]
            indexes[name].add([turn.text.partition(": ")[2] for turn in turns])

    def ranked(probe: Probe) -> list[int]:
        return [hit.row for hit in indexes[probe.stream].lexical(probe.text, probe.segment + 1, 20)]

    asked = [(ranked(probe), probe.gold.segments) for probe in found.probes]
    measured = {
        f"{name}{k}": sum(measure(rows, gold, k) for rows, gold in asked) / len(asked)
        for name, measure in (("all", recall_all), ("any", recall_any), ("ndcg", ndcg))
        for k in (10, 20)
    }
    assert measured == pytest.approx(STATED, abs=0.01)
