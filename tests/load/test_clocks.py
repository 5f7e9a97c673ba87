"""Clocks that are not the replayer's: what the log's own stamps say of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.clocks import NO_EXCHANGE, OTHER_CONDUCTOR, OffsetBounds
from consumers.latency import BY_AGENT, LatencyFold, LatencyReport
from simulator import timebase
from simulator.cli.load_tables import show_report
from simulator.events import DeltaEvent, SegmentReleasedEvent
from simulator.log import open_log
from simulator.log.protocol import header_of
from simulator.report.load_page import load_page
from simulator.report.words import CLOCK_MARK
from simulator.run import begin
from simulator.timebase import BOOT, monotonic_us, wall_us
from simulator.topics import Recorder, boot_of, wall_of
from tests.conftest import ROOT
from tests.load.test_latency import NOW_US, Fed, started, whole

OURS, THEIRS = ("boot", b"0a"), ("boot", b"0b")
delays_us = st.integers(0, 10_000_000)
exchanges = st.lists(
    st.tuples(st.integers(0, 10**12), delays_us, delays_us, delays_us), min_size=1, max_size=30
)


@given(st.integers(-(10**15), 10**15), exchanges)
def test_the_true_offset_lies_within_the_error_of_the_estimate(
    ahead_us: int, went: list[tuple[int, int, int, int]]
) -> None:
    bounds = OffsetBounds()
    for at_us, there_us, work_us, back_us in went:
        read_us = at_us + there_us + ahead_us
        bounds.add(at_us, read_us, read_us + work_us, at_us + there_us + work_us + back_us)
    clock = bounds.estimate("agent.it", "")
    assert clock.offset_us is not None
    assert clock.error_us is not None
    assert abs(clock.offset_us - ahead_us) <= clock.error_us
    shortest_us = min(there_us for _, there_us, _, _ in went), min(back_us for *_, back_us in went)
    assert clock.error_us == sum(shortest_us) / 2  # and no surer than the fastest way there and back
    assert (clock.exchanges, clock.reason) == (len(went), "")


def test_a_clock_that_was_set_contradicts_itself_and_one_without_an_exchange_is_not_known() -> None:
    bounds = OffsetBounds()
    assert bounds.estimate("agent.it", "").reason == NO_EXCHANGE
    bounds.add(0, 100, 200, 300)
    bounds.add(1_000_000, 6_000_100, 6_000_200, 1_000_300)  # 5 s ahead by now
    clock = bounds.estimate("agent.it", "")
    assert clock.error_us == pytest.approx(2.5e6, rel=0.001)
    assert "it was set, or ran at another speed: by 4,999.8 ms at least" in clock.reason


def by_clock(
    fed: list[Fed],
    ahead_us: int,
    agent: tuple[str, bytes] | None = THEIRS,
    conductor: tuple[str, bytes] = OURS,
) -> list[Fed]:
    """The same, from an agent whose clock is ahead."""
    shifted: list[Fed] = []
    for event, headers in fed:
        if isinstance(event, DeltaEvent):
            headers = tuple((name, str(int(value) + ahead_us).encode()) for name, value in headers)
            headers += (agent,) if agent else ()
        elif isinstance(event, SegmentReleasedEvent):
            headers += (conductor,)
        shifted.append((event, headers))
    return shifted


def report_of(fed: list[Fed]) -> LatencyReport:
    fold = LatencyFold(started("A"))
    fold.feed(started("A"), (OURS, ("offset_us", b"0")))
    for event, headers in fed:
        fold.feed(event, headers)
    return fold.report()


def some_segments() -> list[Fed]:
    """Each reads 1 us after it was published, is ingested in 5 ms, and is read 1 us after it was written."""
    return [
        event for i in range(50) for event in whole("A", i, i * 10_000, i * 10_000 + 3, i * 10_000 + 5_003)
    ]


@pytest.mark.parametrize("agent", [THEIRS, None])
@pytest.mark.parametrize("ahead_us", [3_600_000_000, -7])
def test_the_stamps_of_another_clock_are_corrected_within_the_error(
    ahead_us: int, agent: tuple[str, bytes] | None
) -> None:
    here = report_of(by_clock(some_segments(), 0, OURS))
    there = report_of(by_clock(some_segments(), ahead_us, agent))
    assert (here.clocks, here.error_us) == ((), {})
    (clock,) = there.clocks
    assert (clock.role, clock.boot, clock.exchanges) == ("agent.it", agent[1].decode() if agent else "", 50)
    assert clock.offset_us == pytest.approx(ahead_us, abs=1)
    assert clock.error_us == 1
    assert there.error_us == dict.fromkeys(BY_AGENT, 1)
    for stage, numbers in there.stages.items():
        expected = here.stages[stage]
        assert numbers is not None
        assert expected is not None
        assert numbers.n == expected.n == 50
        within_us = 1 if stage in BY_AGENT else 0
        assert numbers.p50_us == pytest.approx(expected.p50_us, rel=0.001, abs=within_us)


def test_what_an_agent_does_not_stamp_is_not_known() -> None:
    fed = [
        (
            event,
            tuple(
                pair
                for pair in headers
                if pair[0] in ("wall_us", "boot") or not isinstance(event, DeltaEvent)
            ),
        )
        for event, headers in by_clock(some_segments(), 5_000_000)
    ]
    report = report_of(fed)
    assert [report.stages[name] for name in ("read", "begun", "ended", "ingest")] == [None] * 4
    written, remembered = report.stages["written"], report.stages["remembered"]
    assert written is not None
    assert remembered is not None
    (clock,) = report.clocks
    assert clock.error_us == pytest.approx(
        2_501.5, abs=1
    )  # half of the way there, the ingest and the way back
    assert clock.offset_us == pytest.approx(5_000_000, abs=clock.error_us)


def test_a_conductor_on_another_machine_is_not_believed(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(by_clock(some_segments(), 5_000_000, THEIRS, conductor=THEIRS))
    assert [clock.reason for clock in report.clocks] == [OTHER_CONDUCTOR] * 2
    assert all(report.stages[name] is None for name in (*BY_AGENT, "remembered", "from_send"))
    assert report.stages["published"] is not None
    ingest = report.stages["ingest"]  # by one clock, whichever
    assert ingest is not None
    assert ingest.p50_us == pytest.approx(5_000, rel=0.001)
    assert (report.remembered, report.lag, report.growth) == (50, (), None)
    show_report(report)
    said = capsys.readouterr().out
    assert "lag      not known" in said
    assert f"is not known, nor any time by it: {OTHER_CONDUCTOR}" in said


def test_an_agent_s_clock_is_known_where_only_the_conductor_s_is_another() -> None:
    report = report_of(by_clock(some_segments(), 0, OURS, conductor=THEIRS))
    assert [clock.role for clock in report.clocks] == ["conductor"]
    assert report.stages["written"] is not None
    assert report.stages["remembered"] is None
    assert report.lag[-1].segments == 0


def test_the_table_says_what_the_error_hides(capsys: pytest.CaptureFixture[str]) -> None:
    fed = [
        (event, tuple(pair for pair in headers if pair[0] in ("wall_us", "read_us", "boot", "due_us")))
        for event, headers in by_clock(some_segments(), -9_000_000)
    ]
    slow = [
        (event, tuple((n, str(int(v) + 8_000).encode()) if n == "read_us" else (n, v) for n, v in headers))
        if isinstance(event, SegmentReleasedEvent)
        else (event, headers)
        for event, headers in fed
    ]
    show_report(report_of(slow))
    said = capsys.readouterr().out
    assert "agent.it (boot 0b) is 9,004.0 ms behind the replayer's, ± 4.0 ms, by 50 exchanges" in said
    rows = {line[1:29].strip(): line for line in said.splitlines()}
    assert rows["read by the agent †"].count("~") == 5
    assert "~" not in rows["delta handed to the log †"]  # 5 ms later
    assert "† by a clock that is known within ± 4.0 ms (clock error)" in said
    assert "\n~ of what lies between" in said


def test_no_mark_is_explained_that_no_value_has(capsys: pytest.CaptureFixture[str]) -> None:
    """One exchange was fast, so the clock is known; all others were slow, so that every value is beyond its error."""
    fed = [
        event for i in range(9) for event in whole("A", i, i * 10_000, i * 10_000 + 900, i * 10_000 + 5_003)
    ]
    late = [
        (event, tuple((n, str(int(v) + 700).encode()) if n == "read_us" else (n, v) for n, v in headers))
        if isinstance(event, DeltaEvent) and event.segment
        else (event, headers)
        for event, headers in by_clock(fed, -9_000_000)
    ]
    report = report_of(late)
    show_report(report)
    said = capsys.readouterr().out
    assert "† by a clock that is known within ±" in said
    assert "~" not in said
    marked = report_of(by_clock(some_segments(), -9_000_000))
    assert [CLOCK_MARK in load_page(each).sections[0].text for each in (report, marked)] == [False, True]


def test_setting_the_wall_clock_changes_no_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    before_us, at_us = wall_us(), monotonic_us()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    monkeypatch.setattr("time.time", lambda: 0.0)
    after_us = wall_us()
    assert before_us <= after_us < before_us + 60_000_000
    assert wall_us(at_us) == pytest.approx(before_us, abs=1_000_000)


async def test_another_process_takes_the_run_s_clock_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set back by a day after the run began: all that this boot stamps goes on as before."""
    monkeypatch.setattr(timebase, "_base", timebase._Timebase())
    day_us = 86_400_000_000
    timebase.adopt(BOOT, timebase.offset_us() + day_us)
    timebase.adopt("0b", 0)  # another boot's is none of ours
    event = started("A")
    async with open_log(str(tmp_path / "log.db")) as log:
        await begin(log, event, [event])
        script = (
            "import anyio, sys, time\n"
            "from simulator.runfolder import open_run\n"
            "from simulator.topics import wall_us\n"
            "async def look():\n"
            "    async with open_run(sys.argv[1]):\n"
            "        print(wall_us() - time.time_ns() // 1000)\n"
            "anyio.run(look)\n"
        )
        command = [sys.executable, "-c", script, str(tmp_path / "log.db")]
        ran = await anyio.to_thread.run_sync(
            lambda: subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        )
    assert int(ran.stdout) == pytest.approx(day_us, abs=60_000_000)


def test_records_say_whose_clock_their_stamps_are_of() -> None:
    recorder = Recorder("run", {"A": 0})
    record = recorder.record(started("A"))
    assert boot_of(record.headers) == BOOT
    assert wall_of(record.headers, "offset_us") == timebase.offset_us()
    delta = next(event for event, _ in some_segments() if isinstance(event, DeltaEvent))
    assert header_of(recorder.record(delta, read_us=NOW_US).headers, "boot") == BOOT.encode()
