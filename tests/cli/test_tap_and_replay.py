"""`tap` on a finished run, and `replay`, alone and followed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from simulator.log import open_log
from simulator.log.protocol import Record
from simulator.runfolder import log_path, open_run
from tests.cli.helpers import DEADLINE_S, SCRIPT, egostream, environment, has, started, wait_for

TOPICS = (
    "observations",
    "deltas",
    "tasks",
    "responses",
    "feedback",
    "commits",
    "verdicts",
    "anchors",
    "control",
)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_in_json(run_folder: Path, topic: str) -> None:
    ran = egostream("tap", run_folder, topic, "-n", 3, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.json_lines) == 3
    assert all({"kind", "id", "run", "event_time_us"} <= event.keys() for event in ran.json_lines)


def test_a_place_in_time(run_folder: Path) -> None:
    arguments = ("tap", run_folder, "observations", "--from", "DAY1 09:05", "--to", "DAY1 09:06")
    events = egostream(*arguments, "--json").json_lines
    assert len(events) == 2 * 4 + 2  # two wearers, an observation each 15 s, and the segment before closed
    pretty = egostream(*arguments, "--where", "kind=observation").out.splitlines()
    assert len(pretty) == 8
    assert all(line.startswith("DAY1 09:05:") for line in pretty)


def test_filters(run_folder: Path) -> None:
    failed = ("tap", run_folder, "verdicts", "--where", "lane~^null@", "--where", "metric=fur")
    events = egostream(*failed, "--where", "outcome=fail", "--json").json_lines
    assert len(events) == 6
    assert {(event["metric"], event["outcome"]) for event in events} == {("fur", "fail")}
    last = egostream(*failed, "--last", 2, "--json").json_lines
    assert last == events[-2:]
    found = egostream(
        "tap", run_folder, "tasks", "--where", "arm=committed", "--grep", '"phase":"T2"', "--json"
    )
    assert len(found.json_lines) == 18


def test_pretty_hides_what_is_empty_and_shows_the_record_when_asked(run_folder: Path) -> None:
    out = egostream("tap", run_folder, "deltas", "--where", "lane~^null", "-n", 1).out
    assert "delta null@" in out
    assert "records" not in out
    assert "usage" not in out
    out = egostream("tap", run_folder, "verdicts", "-n", 1, "--meta").out
    assert "[partition] " in out
    assert "[headers]" in out
    record = egostream("tap", run_folder, "verdicts", "-n", 1, "--meta", "--json").json["record"]
    assert (record["offset"], record["headers"]["kind"]) == (0, "verdict")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("dead",), "there is no record there"),
        (("verdicts", "--where", "metric=taste"), "read matches"),
        (("verdicts", "--to", "DAY1"), "lie outside --from and --to"),
    ],
)
def test_it_says_why_nothing_is_printed(run_folder: Path, arguments: tuple[str, ...], reason: str) -> None:
    ran = egostream("tap", run_folder, *arguments)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"egostream: nothing to print from {arguments[0]}: ")
    assert reason in ran.err
    assert egostream("tap", run_folder, *arguments, "-q").err == ""


async def test_what_is_no_event_is_shown(tmp_path: Path) -> None:
    run = tmp_path / "r"
    replayed = egostream(
        "replay", "--data", "synthetic:wearers=1,segments_per_day=1", "--rate", "inf", "--out", run
    )
    assert replayed.code == 0, replayed.err
    async with open_run(run) as (_, begun):
        topic = f"{begun.run}.observations"
    async with open_log(str(log_path(run))) as log:
        await log.append(
            [Record(topic, b"", b"\xff\x1b[31m", 0, (), 0), Record(topic, b"", b'{"a":\n1}', 0, (), 0)]
        )
    pretty = egostream("tap", run, "observations", "--last", 2).out
    assert "undecodable b'\\xff\\x1b[31m'" in pretty
    assert "\x1b" not in pretty
    assert egostream("tap", run, "observations", "--last", 2, "--json").json_lines == [
        {"undecodable": "/xtbMzFt"},
        {"a": 1},
    ]


@pytest.mark.parametrize(
    "command", [("tap", "observations"), ("tap", "observations", "--json"), ("scores", "--json")]
)
def test_a_reader_that_has_enough_is_no_error(run_folder: Path, command: tuple[str, ...]) -> None:
    name, *more = command
    process = subprocess.Popen(
        [SCRIPT, name, run_folder, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        bufsize=0,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr.read() == b""


def test_replay_as_fast_as_it_goes(tmp_path: Path) -> None:
    data = ("--data", "synthetic:wearers=2,segments_per_day=3", "--rate", "inf", "--out", tmp_path / "r")
    stats = egostream("replay", *data, "--json").json
    assert (stats["ended"], stats["observations"], stats["segments"], stats["lateness"]) == (
        True,
        240,
        6,
        None,
    )
    ran = egostream(
        "replay", *data, "--loop", 2, "--start", "DAY1 09:05", "--end", "DAY1 09:15", "--overwrite"
    )
    assert "320 observations in 8 segments" in ran.out
    assert egostream("tap", tmp_path / "r", "control", "--json").json_lines[0]["segments"] == {
        "W01_ADA": 4,
        "W02_BORIS": 4,
    }
    last = egostream("tap", tmp_path / "r", "observations", "--last", 1, "--json").json
    assert (last["kind"], last["segments"]) == ("stream_ended", 4)
    nothing = egostream("scores", tmp_path / "r")
    assert (nothing.code, nothing.err) == (0, "")
    assert "nothing to score" in nothing.out


def test_replay_at_a_rate_says_how_late_it_was(tmp_path: Path) -> None:
    data = "synthetic:wearers=1,segments_per_day=1"
    stats = egostream("replay", "--data", data, "--rate", 600, "--out", tmp_path / "r", "--json").json
    assert (stats["observations"], stats["offered_rate"]) == (40, 600.0)
    assert stats["wall_s"] >= 0.45  # the last of 300 s is due after 300 / 600 s: never early
    assert stats["lateness"]["n"] == stats["events"]
    pretty = egostream("replay", "--data", data, "--rate", "600x", "--out", tmp_path / "p")
    assert "late by (n=42)" in pretty.out
    assert f"    egostream tap {tmp_path / 'p'} observations" in pretty.out
    away = egostream("replay", "--data", data, "--rate", "inf", "--out", "q", cwd=tmp_path, env={"PATH": ""})
    assert f"    {SCRIPT} tap q observations" in away.out  # what is to be copied works where it was printed


def test_replay_for_some_seconds(tmp_path: Path) -> None:
    run = tmp_path / "r"
    arguments = ("--rate", 60, "--for", 3, "--out", run, "--json")
    ran = egostream("replay", "--data", "synthetic:wearers=1", *arguments)
    assert (ran.code, ran.json["ended"]) == (0, False)
    published = egostream("tap", run, "observations", "--json").json_lines
    assert 0 < ran.json["observations"] == len(published) < 960


def test_a_tap_in_another_process_follows_a_replay(tmp_path: Path) -> None:
    run = tmp_path / "r"
    with started(
        "replay", "--data", "synthetic:wearers=1", "--rate", 60, "--out", run, cwd=tmp_path
    ) as replay:
        wait_for(lambda: has(run, "control"), replay)
        tap = ("tap", run, "observations", "--follow", "--json", "--meta", "-q")
        newest = egostream(*tap, "--last", 1, "-n", 1).json["record"]["offset"]
        later = egostream(*tap, "--from", newest + 5, "-n", 5).json_lines
        assert [event["record"]["offset"] for event in later] == list(range(newest + 5, newest + 10))
        assert replay.poll() is None
