"""APM task files: trajectories as streams, probes, evidence cut to two sessions, and everything that can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from judges.choice import read_letter
from producers.apm_tasks import schema_text
from producers.benchmarks import read_probes
from producers.datasets import read_dataset
from producers.datasets.apm import NOT_AVAILABLE, read_apm
from producers.lifelog import DAY1_US
from producers.probes import asked_text
from simulator.errors import ConfigError, DatasetError
from tests.conftest import ROOT

MINUTE = 60_000_000
NINE = DAY1_US + 9 * 60 * MINUTE
EXAMPLE = ROOT / "examples" / "apm_tasks.json"
DATA = "synthetic:seed=1,wearers=1,days=2,segments_per_day=12,observations_per_segment=12,anchors_per_day=4"


def choice(**more: Any) -> dict[str, Any]:
    asked = {"kind": "choice", "id": "q", "task": "ER", "at": "DAY1 09:12", "question": "Who?", "golden": "A"}
    return asked | {"options": ["Ada", "Bo"]} | more


def heartbeat(**more: Any) -> dict[str, Any]:
    return {"kind": "heartbeat", "id": "h", "task": "PRM", "at": "DAY1 09:12", "expected": "SILENT"} | more


def trajectory(*probes: dict[str, Any], **more: Any) -> dict[str, Any]:
    sessions = [
        {"id": "one", "start": "DAY1 09:00", "end": "DAY1 09:07"},
        {"id": "two", "start": "DAY1 09:10", "end": "DAY1 09:15"},
        {"id": "three", "start": "DAY1 09:20", "end": "DAY1 09:25"},
        {"id": "four", "start": "DAY1 09:30", "end": "DAY1 09:35"},
    ]
    return {"id": "t", "stream": "W01_ADA", "sessions": sessions, "probes": probes} | more


def write(folder: Path, *trajectories: dict[str, Any], **more: Any) -> Path:
    path = folder / "tasks.json"
    path.write_text(json.dumps({"version": 1, "data": DATA, "trajectories": trajectories} | more))
    return path


def test_sessions_are_cut_at_windows_and_probes(tmp_path: Path) -> None:
    path = write(tmp_path, trajectory(choice(), heartbeat(at="DAY1 09:18"), choice(id="r", at="DAY1 09:15")))
    found = read_apm(path)
    log = found.dataset.lifelogs["t"]
    edges = [((s.start_time_us - NINE) // MINUTE, (s.end_time_us - NINE) // MINUTE) for s in log.segments]
    assert edges == [(0, 5), (5, 7), (10, 12), (12, 15), (20, 25), (30, 35)]
    assert [(s.name, s.first_segment, s.last_segment) for s in found.sessions["t"]] == [
        ("one", 0, 1),
        ("two", 2, 3),
        ("three", 4, 4),
        ("four", 5, 5),
    ]
    source = read_dataset(DATA).lifelogs["W01_ADA"].observations
    kept = [
        o
        for o in source
        if any(a <= (o.event_time_us - NINE) / MINUTE < b for a, b in ((0, 7), (10, 15), (20, 25), (30, 35)))
    ]
    assert [o.text for o in log.observations] == [o.text for o in kept]
    for span in log.segments:
        inside = log.observations[span.first_seq : span.last_seq + 1]
        assert all(span.start_time_us <= o.event_time_us < span.end_time_us for o in inside)
    assert sum(s.last_seq - s.first_seq + 1 for s in log.segments) == len(log.observations)
    assert [(p.source_id, p.segment, p.id) for p in found.probes] == [
        ("q", 2, "t/s2/p0"),
        ("r", 3, "t/s3/p0"),
        ("h", 3, "t/s3/p1"),  # in the gap: nothing has happened since
    ]
    for probe in found.probes:  # all that had happened, and nothing later
        last = log.segments[probe.segment].last_seq
        assert log.observations[last].event_time_us < probe.asked_time_us
        assert all(o.event_time_us >= probe.asked_time_us for o in log.observations[last + 1 :])
    assert found.dataset.report.counts["probes_between_sessions"] == 1
    assert found.dataset.report.oddities == {}


def test_registrations_are_lines_of_the_stream(tmp_path: Path) -> None:
    said = {"id": "r", "kind": "reminder", "at": "DAY1 09:06", "text": "Remind me of the kettle."}
    positive = heartbeat(expected="INTERVENE", reference="The kettle.", registration="r")
    found = read_apm(write(tmp_path, trajectory(positive, registrations=[said])))
    lines = [
        o for o in found.dataset.lifelogs["t"].observations if "kettle." in o.text and "assistant" in o.text
    ]
    assert [(o.event_time_us, o.source, o.text) for o in lines] == [
        (NINE + 6 * MINUTE, "dialog", "Me, to my assistant: Remind me of the kettle.")
    ]
    (probe,) = found.probes
    assert (probe.gold.decision, probe.gold.answer, probe.groups["polarity"]) == (
        "INTERVENE",
        "The kettle.",
        "positive",
    )
    assert "DAY1 09:12:00" in probe.text


def test_evidence_is_cut_to_the_two_sessions_completed_last(tmp_path: Path) -> None:
    there = choice(id="a", at="DAY1 09:32", evidence_sessions=["two"], availability=True)
    gone = choice(id="b", at="DAY1 09:33", evidence_sessions=["one"], availability=True)
    early = choice(id="c", at="DAY1 09:12", evidence_sessions=["one"], availability=True)
    found = read_apm(write(tmp_path, trajectory(there, gone, early)))
    assert list(found.dataset.lifelogs) == ["t", "t.kept.two.three", "t.kept.one"]
    cut = {p.source_id: p for p in found.probes if "availability" in p.groups}
    assert {name: (p.stream, p.gold.option, p.groups["availability"]) for name, p in cut.items()} == {
        "a": ("t.kept.two.three", "A", "answerable"),
        "b": ("t.kept.two.three", "C", "unanswerable"),
        "c": ("t.kept.one", "A", "answerable"),
    }
    assert cut["b"].options == ("Ada", "Bo", NOT_AVAILABLE)
    assert cut["b"].gold.answer == NOT_AVAILABLE
    assert [s.name for s in found.sessions["t.kept.two.three"]] == ["two", "three"]
    assert (cut["a"].gold.segments, cut["b"].gold.segments) == ((0,), ())
    whole = [p for p in found.probes if p.stream == "t"]
    assert [(p.options, p.gold.option) for p in whole] == [(("Ada", "Bo"), "A")] * 3


def test_negative_probes_of_era_show_options_too(tmp_path: Path) -> None:
    """Or else the options would say that it is time to speak."""
    options = ["Open it", "Leave it"]
    positive = heartbeat(
        id="p", task="ERA", expected="INTERVENE", reference="Open.", options=options, golden="A"
    )
    negative = heartbeat(id="n", task="ERA", options=options)
    first, second = read_apm(write(tmp_path, trajectory(positive, negative))).probes
    assert asked_text(first) == asked_text(second)
    assert asked_text(first).splitlines()[1:3] == ["A. Open it", "B. Leave it"]


@pytest.mark.parametrize(
    ("place", "reason", "change"),
    [
        ("stream", "; there is W01_ADA", {"stream": "W09"}),
        ("sessions[1].start", "before the end of session one", {"sessions": [
            {"id": "one", "start": "DAY1 09:00", "end": "DAY1 09:07"},
            {"id": "two", "start": "DAY1 09:06", "end": "DAY1 09:10"}]}),
        ("sessions[0].end", "is not after the start", {"sessions": [
            {"id": "one", "start": "DAY1 09:00", "end": "DAY1 09:00"}]}),
        ("sessions[0].end", "is no event time", {"sessions": [
            {"id": "one", "start": "DAY1 09:00", "end": "noon"}]}),
        ("sessions[1].id", "a second one", {"sessions": [
            {"id": "one", "start": "DAY1 09:00", "end": "DAY1 09:07"},
            {"id": "one", "start": "DAY1 09:10", "end": "DAY1 09:12"}]}),
        ("sessions", "has an observation", {"sessions": [
            {"id": "one", "start": "DAY1 03:00", "end": "DAY1 03:07"}]}),
        ("registrations[0].at", "within no session", {"registrations": [
            {"id": "r", "kind": "reminder", "at": "DAY1 09:08", "text": "Psst."}]}),
        ("probes[0].at", "not after the first session began", {"probes": [choice(at="DAY1 09:00")]}),
        ("probes[0].golden", "C is none of the 2 options", {"probes": [choice(golden="C")]}),
        ("probes[1].id", "a second q", {"probes": [choice(), choice()]}),
        ("probes[0].evidence_sessions[0]", "no session nine", {"probes": [choice(evidence_sessions=["nine"])]}),
        ("probes[0].evidence_sessions[0]", "begins after", {"probes": [choice(evidence_sessions=["three"])]}),
        ("probes[0].evidence_sessions", "needed", {"probes": [choice(availability=True)]}),
        ("probes[0].at", "no session is completed", {"probes": [
            choice(at="DAY1 09:02", availability=True, evidence_sessions=["one"])]}),
        ("probes[0].registration", "no registration r", {"probes": [heartbeat(registration="r")]}),
        ("probes[0].registration", "registered after", {
            "registrations": [{"id": "r", "kind": "reminder", "at": "DAY1 09:12", "text": "Psst."}],
            "probes": [heartbeat(registration="r")]}),
        ("probes[0].reference", "needs a reference", {"probes": [heartbeat(expected="INTERVENE")]}),
        ("probes[0].options", "no others have options", {"probes": [heartbeat(options=["x", "y"])]}),
        ("probes[0].options", "probes of ERA", {"probes": [heartbeat(task="ERA")]}),
        ("probes[0].golden", "have a golden option", {"probes": [
            heartbeat(task="ERA", options=["x", "y"], golden="A")]}),
    ],
)  # fmt: skip
def test_what_a_schema_cant_say(tmp_path: Path, place: str, reason: str, change: dict[str, Any]) -> None:
    path = write(tmp_path, trajectory(**change))
    with pytest.raises(DatasetError) as caught:
        read_apm(path)
    assert caught.value.path == path
    assert f"`$.trajectories[0].{place}`" in caught.value.reason
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("{\n\n]", 3, "not JSON"),
        ('{"version": 2}', None, r"Invalid enum value 2 - at `\$\.version`"),
        (json.dumps({"version": 1, "data": DATA, "trajectories": []}), None, "length >= 1"),
        (json.dumps({"version": 1, "data": DATA, "trajectories": [trajectory(choice(tsak="ER"))]}), None,
         r"unknown field `tsak` - at `\$\.trajectories\[0\]\.probes\[0\]`"),
        (json.dumps({"version": 1, "data": DATA, "trajectories": [trajectory(choice(task="PRM"))]}), None,
         r"Invalid enum value 'PRM' - at `\$\.trajectories\[0\]\.probes\[0\]\.task`"),
        (json.dumps({"version": 1, "data": DATA, "trajectories": [trajectory(choice(golden="b"))]}), None,
         r"matching regex .* at `\$\.trajectories\[0\]\.probes\[0\]\.golden`"),
    ],
)  # fmt: skip
def test_malformed_files(tmp_path: Path, content: str, line: int | None, reason: str) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(content)
    with pytest.raises(DatasetError, match=reason) as caught:
        read_apm(path)
    assert caught.value.line == line


def test_two_trajectories_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"`\$\.trajectories\[1\]\.id`: a second trajectory t"):
        read_apm(write(tmp_path, trajectory(), trajectory()))


def test_the_streams_path_goes_from_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, trajectory(choice()), data="nowhere")
    with pytest.raises(DatasetError, match="nowhere"):
        read_apm(path)
    assert len(read_apm(path, data=DATA).probes) == 1
    with pytest.raises(DatasetError, match="no such file"):
        read_apm(tmp_path / "none.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="no task file"):
        read_apm(tmp_path / "empty")


def test_a_session_without_observations_is_counted(tmp_path: Path) -> None:
    quiet = [{"id": "quiet", "start": "DAY1 08:00", "end": "DAY1 08:07"},
             {"id": "one", "start": "DAY1 09:00", "end": "DAY1 09:07"}]  # fmt: skip
    found = read_apm(write(tmp_path, trajectory(choice(at="DAY1 08:05"), sessions=quiet)))
    assert found.dataset.report.oddities == {
        "session_without_observations": 1,
        "probe_before_any_observation": 1,
    }
    assert found.probes[0].segment == -1


def test_the_schema_is_up_to_date() -> None:
    published = (ROOT / "docs" / "apm-tasks.schema.json").read_text()
    assert published == schema_text(), "run: python -m producers.apm_tasks > docs/apm-tasks.schema.json"


def test_the_example() -> None:
    found = read_probes("apm", EXAMPLE)
    assert found.dataset.report.oddities == {}
    assert list(found.dataset.lifelogs) == [
        "house",
        "house.kept.breakfast.plans",
        "house.kept.workshop.second_day",
    ]
    assert {p.groups["family"] for p in found.probes} == {
        "cross-session understanding",
        "real-time perception",
        "adaptive response",
    }
    assert {p.groups["availability"] for p in found.probes if "availability" in p.groups} == {
        "answerable",
        "unanswerable",
    }
    text = " ".join(o.text for o in found.dataset.lifelogs["house"].observations)
    for word in ("chain saw", "vet", "inspection", "cold cocoa", "heron"):
        assert word in text, f"the example asks for {word}, which its stream lacks"
    for probe in found.probes:
        if probe.gold.option:
            assert read_letter(probe.gold.option, probe.options).letter == probe.gold.option


def test_benchmarks_by_name(tmp_path: Path) -> None:
    assert read_probes("lifedialbench", "synthetic:seed=1").benchmark == "lifedialbench"
    with pytest.raises(ConfigError, match="no benchmark 'memory'; there is realmem, lifedialbench, apm"):
        read_probes("memory", tmp_path)
