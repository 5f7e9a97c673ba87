"""`inspect`, `systems` and help: what can be asked before anything is run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from producers.lifelog import Report
from simulator.cli.oddities import in_words
from tests.cli.helpers import egostream, one_line
from tests.conftest import ROOT

COMMANDS = ("demo", "inspect", "systems", "run", "scores", "status", "tap", "lag", "ctl", "replay")


def test_egostream_alone_says_what_there_is() -> None:
    ran = egostream()
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == egostream("--help").out
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w.*[^.]\.$", ran.out, re.MULTILINE)  # and no summary is cut short


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_fits_a_terminal(command: str) -> None:
    ran = egostream(command, "--help")
    assert ran.code == 0
    assert f"egostream {command}" in ran.out[ran.out.index("Example") :]
    assert "--json" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_systems() -> None:
    built_in = {"null", "oracle", "full_context", "rag_raw"}
    pretty, ran = egostream("systems"), egostream("systems", "--json")
    assert built_in <= ran.json.keys()
    assert all(name in pretty.out for name in built_in)
    assert "module:MyMemory" in pretty.out
    assert ran.json["rag_raw"]["options"]["retrieval"] == "dense|bm25|hybrid = hybrid"
    assert "chunk_observations: int = 16" in pretty.out
    assert ran.json["null"]["options"] == {}
    own = "disk=examples.directory_memory:NotesOnDisk"
    assert egostream("systems", own, "--json").json["disk"]["branches"] == "copy"
    assert "copy" in egostream("systems", own).out
    assert egostream("systems", "nil").code == 2


def test_inspect_a_release(release: Path) -> None:
    found = egostream("inspect", release, "--json").json
    stream = found["streams"]["W01_ADA"]
    assert (stream["observations"], stream["segments"]) == (120, 6)
    assert stream["dialog"] + stream["description"] == 120
    assert found["anchors"] == 6
    assert found["oddities"] == {}

    pretty = egostream("inspect", release, "--days")
    assert (pretty.code, pretty.err) == (0, "")
    assert re.search(r"^W01_ADA +120 +\d+ +\d+ +6 +DAY1 09:00 +DAY1 09:2\d$", pretty.out, re.MULTILINE)
    assert "6 anchors" in pretty.out
    assert re.search(r"(\d+) of \1 supporting observations found", pretty.out)
    assert "no oddities" in pretty.out
    assert max(map(len, pretty.out.splitlines())) <= 80 + len(str(release))


def test_inspect_a_synthetic_lifelog_of_one_stream() -> None:
    found = egostream(
        "inspect", "synthetic:wearers=2,segments_per_day=3", "--stream", "W02_BORIS", "--json"
    ).json
    assert list(found["streams"]) == ["W02_BORIS"]
    assert found["streams"]["W02_BORIS"]["segments"] == 3


@pytest.fixture(scope="module")
def odd_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An EgoLife tree with a transcript and a Sync file, each with something odd in it."""
    top = tmp_path_factory.mktemp("tree")
    day = top / "Transcript" / "A9_NOBODY" / "DAY1"
    day.mkdir(parents=True)
    cues = (
        "1\n00:00:01,000 --> 00:00:03,000\n你好\nNora: Hello\n\n"
        "2\n00:00:02,000 --> 00:00:04,000\n只有中文\n\n"
    )
    (day / "A9_NOBODY_DAY1_10000000.srt").write_text(cues, encoding="utf-8")
    sync = top / "Sync"
    sync.mkdir()
    entries = [
        {"start": 100000, "end": 100001, "text": "I sit down", "type": "caption"},
        {"start": 110000, "end": 110001, "text": "Nora: Again?", "type": "transcript"},
        {"start": "soon", "end": 100001, "text": "when?", "type": "caption"},
    ]
    content = json.dumps([{"video_file": "x.mp4", "data": entries}])
    (sync / "A9_NOBODY_DAY1_10000000.json").write_text(content, encoding="utf-8")
    return top


def test_inspect_counts_what_is_odd_and_says_what_was_done(odd_tree: Path) -> None:
    found = egostream("inspect", odd_tree, "--json").json
    assert found["streams"]["Transcript/A9_NOBODY"]["cues"] == 2
    assert found["streams"]["Sync/A9_NOBODY"]["observations"] == 2
    expected = {"overlapping_cue": 1, "cue_of_one_line": 1, "malformed_entry_left_out": 1}
    assert expected.items() <= found["oddities"].items()

    pretty = egostream("inspect", odd_tree, "--days", "--examples")
    assert re.search(r"1 +overlapping_cue +cue begins before the one before it ends", pretty.out)
    assert "cues: 2 of A9_NOBODY" in pretty.out
    assert "1 gaps of over half an hour within a day, the longest 55 minutes" in pretty.out
    assert "10:05–11:00" in pretty.out
    assert "  A9_NOBODY_DAY1_10000000.json: $[0].data[2].start: 'soon'" in pretty.out.splitlines()
    assert "2 datasets below" in pretty.out


def test_every_oddity_that_a_reader_counts_has_words() -> None:
    sources = [path.read_text() for path in (ROOT / "producers" / "datasets").glob("*.py")]
    named = {name for source in sources for name in re.findall(r'odd\(\s*"([a-z_]+)"', source)}
    assert len(named) > 30
    assert [name for name in sorted(named) if in_words(name) == name.replace("_", " ")] == []
    assert in_words("missing_subject") == "no subject given; a stand-in is used"
    assert in_words("num_items_disagrees").startswith("stated num_items is not what is there")
    report = Report()
    report.odd("of_another_reader", "x:1")
    assert [in_words(name) for name in report.oddities] == ["of another reader"]


def test_inspect_a_benchmark_counts_its_probes() -> None:
    found = egostream(
        "inspect", "--benchmark", "lifedialbench", "synthetic:seed=1,histories=1", "--json"
    ).json
    assert found["benchmark"] == found["layout"] == "lifedialbench"
    assert found["probes"]["total"] == sum(found["probes"]["groups"]["type"].values()) > 20
    pretty = egostream("inspect", "--benchmark", "apm", ROOT / "examples" / "apm_tasks.json")
    assert pretty.out.startswith("APM task files: ")
    assert re.search(r"9 probes, \d of them with gold segments", pretty.out)
    assert "by task: " in pretty.out
    assert "no oddities" in pretty.out


@pytest.mark.data
def test_the_real_lifelogs_have_the_published_sizes(data_dir: Path) -> None:
    found = egostream("inspect", data_dir, "--json").json
    sizes = {name: (s["observations"], s["segments"]) for name, s in found["streams"].items()}
    assert sizes == {
        "egolife/EgoLifeCap/Sync/A1_JAKE": (124_856, 653),
        "egolife/EgoLifeCap/Transcript/A1_JAKE": (56_640, 622),
        "egolife/EgoLifeCap/Transcript/A2_ALICE": (47_646, 545),
        "streammembench/streammembench_v1_en/A1_JAKE": (124_856, 653),
    }
    cues = {name: s["cues"] for name, s in found["streams"].items() if "cues" in s}
    assert list(cues.values()) == [56_640, 47_646]
    assert found["anchors"] == 44
    release = found["sections"]["streammembench/streammembench_v1_en"]["anchors_detail"]
    assert release["supporting_matched"] == release["supporting_observations"] > 0
    assert release["without_match"] == 0


@pytest.mark.data
def test_the_real_release_pretty(data_dir: Path) -> None:
    pretty = egostream("inspect", data_dir / "streammembench", "--log-json")
    assert re.search(r"^A1_JAKE +124,856 +55,600 +69,256 +653 ", pretty.out, re.MULTILINE)
    assert "44 anchors (38 stated, 6 inferred)" in pretty.out
    assert "190 of 190 supporting observations found in the stream" in pretty.out


def test_nothing_but_json_is_on_standard_output_with_json(odd_tree: Path) -> None:
    ran = egostream("inspect", odd_tree, "--json", "--examples", "--days", "--log-level", "debug")
    assert ran.json["anchors"] == 0
    broken = egostream("inspect", odd_tree / "nowhere", "--json")
    assert broken.code == 2
    assert "no such folder" in one_line(broken)
