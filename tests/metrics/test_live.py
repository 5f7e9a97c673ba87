"""The live view: what it shows, and that a real terminal is as it was afterwards."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.text import Text

from consumers.gauges import Gauges
from consumers.lags import LaneState
from simulator.cli.live import LiveView, Sparks, worst
from simulator.events import DeadLetterEvent, ReplayEndedEvent
from tests.cli.helpers import SCRIPT, egostream, environment
from tests.load.test_latency import NOW_US, closed, delta, stamped, started, whole

DATA = "synthetic:wearers=2,segments_per_day=6,observations_per_segment=5,anchors_per_day=2"
ROOT = Path(__file__).parents[2]


@given(st.lists(st.integers(0, 1000), max_size=500), st.sampled_from([2, 8, 48]))
def test_sparks_hold_any_number_of_values(values: list[int], width: int) -> None:
    sparks = Sparks(width)
    for value in values:
        sparks.add(value)
    line = str(sparks)
    assert len(line) <= width
    assert len(line) == min(len(values), width) or len(line) * 2 >= width
    assert sparks.most == max(values, default=0)
    if sparks.most:
        assert "█" in line  # the highest shows, however many share its bar
    assert set(line) <= set("▁▂▃▄▅▆▇█")


def test_sparks_rise_and_fall() -> None:
    sparks = Sparks(48)
    for value in (0, 1, 4, 7, 4, 0):
        sparks.add(value)
    assert str(sparks) == "▁▂▅█▅▁"


def test_the_worst_lanes_come_first() -> None:
    def lane(stream: str, behind_s: float) -> LaneState:
        return LaneState(
            system="it",
            stream=stream,
            remembered=0,
            failed=0,
            given_up=False,
            lag_segments=int(behind_s > 0),
            lag_observations=0,
            lag_event_time_s=behind_s,
        )

    lanes = tuple(lane(name, behind_s) for name, behind_s in zip("ABCD", (1, 0, 3, 2), strict=True))
    assert [found.stream for found in worst(lanes, 2)] == ["C", "D"]


def view_of(fed: list[tuple[object, object]], at_s: float, *, drain_s: float = 30) -> tuple[LiveView, Text]:
    view = LiveView("loading", 60, drain_s)
    begun = replace(started("A"), segments={"A": 100})
    gauges = Gauges(begun, view.remembered)
    gauges.feed(begun, ())
    view.show(gauges.state(NOW_US))
    gauges.observed("A", 0, stamped(due_us=NOW_US))
    for event, headers in fed:
        gauges.feed(event, headers)  # type: ignore[arg-type]  # pairs as `tests.load.test_latency` makes them
    for _ in range(4):  # the percentiles since the start come every so often
        view.show(gauges.state(NOW_US + round(at_s * 1e6)))
    return view, view.__rich__()


def test_it_shows_where_the_load_stands() -> None:
    fed = [
        *whole("A", 0, 0, 100_000, 250_000),
        closed("A", 1, 5_000_000, 5_000_010),
        closed("A", 2, 9_000_000, 9_000_010),
    ]
    _, text = view_of([*fed], 9.5)
    shown = text.plain
    assert "1 of 3 segments due, 100 in all" in shown
    assert "p50  250.0 ms" in re.sub(r"p50 +", "p50  ", shown)
    assert "2 segments, at most 2" in shown
    assert re.search(r"A +2 segments +600 s of life", shown)
    assert "FAILED" not in shown
    assert "DEAD" not in shown


def test_once_all_was_due_the_whole_is_never_older_than_its_newest_part() -> None:
    """Nothing may come after the last segment that would bring it up to date."""
    ended = ReplayEndedEvent(id="replay/ended", run="run", event_time_us=0, observations=1)
    fed = [*whole("A", 0, 0, 100_000, 250_000), (ended, stamped(wall_us=NOW_US))]
    begun = replace(started("A"), segments={"A": 2})
    view = LiveView("loading", 60, 30)
    gauges = Gauges(begun, view.remembered)
    for event, headers in [(begun, ()), *fed]:
        gauges.feed(event, headers)  # type: ignore[arg-type]  # pairs as `tests.load.test_latency` makes them
    view.show(gauges.state(NOW_US + 1_000_000))
    for event, headers in whole("A", 1, 0, 100_000, 750_000):
        gauges.feed(event, headers)
    view.show(gauges.state(NOW_US + 1_000_000))
    (latency,) = [line for line in view.__rich__().plain.splitlines() if line.startswith("latency")]
    assert re.findall(r"p99 +(\S+ ms)", latency) == ["750.0 ms", "750.0 ms"]


def test_what_goes_wrong_is_red() -> None:
    dead = DeadLetterEvent(
        id="dead/run.deltas/0/1",
        run="run",
        event_time_us=0,
        topic="run.deltas",
        partition=0,
        offset=1,
        reason="why",
        value=b"x",
    )
    fed = [
        closed("A", 0, 0, 1),
        delta("it@A", 0, error="no room", wall_us=5),
        (dead, stamped(wall_us=NOW_US)),
    ]
    _, text = view_of([*fed], 2)
    assert "1 segments were not ingested" in text.plain
    assert "1 records could not be used" in text.plain
    assert [span for span in text.spans if "red" in str(span.style)]


def test_it_says_how_long_it_waits_for_what_is_owed() -> None:
    ended = ReplayEndedEvent(id="replay/ended", run="run", event_time_us=0, observations=1)
    fed = [closed("A", 0, 0, 1), (ended, stamped(wall_us=NOW_US))]
    _, text = view_of([*fed], 2)
    assert "waits 30 s at most" in text.plain
    _, text = view_of([*fed], 2, drain_s=0)
    assert "all was due; waits no longer for what is owed" in text.plain
    assert " 0 s" not in text.plain


@contextmanager
def on_a_terminal(*args: object) -> Iterator[tuple[subprocess.Popen[bytes], list[bytes]]]:
    """A command whose standard error is a terminal of 100 columns; gives what it has written there."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen(
        [SCRIPT, *map(str, args)],
        cwd=ROOT,
        env=environment({"TERM": "xterm-256color", "COLUMNS": "100"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    written: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(ours, 65536):
                written.append(part)
        except OSError:
            return  # nobody holds the other end any more

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process, written
    finally:
        process.kill()
        process.communicate()
        reader.join()
        os.close(ours)


def text_of(written: list[bytes]) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(written).decode(errors="replace"))


def left_clean(written: list[bytes]) -> bool:
    """The cursor is shown again, and the last thing done to the view was to erase it."""
    raw = b"".join(written).decode(errors="replace")
    after = raw[raw.rindex("\x1b[?25h") :]
    return raw.count("\x1b[?25l") == raw.count("\x1b[?25h") and "\x1b[2K" in after


LOAD = ("load", "tests.load.systems:FixedTime:service_ms=150", "--data", DATA, "--rate", 1500)


def test_on_a_real_terminal(tmp_path: Path) -> None:
    with on_a_terminal(*LOAD, "--duration", 4, "--out", tmp_path / "run") as (process, written):
        out, _ = process.communicate(timeout=90)
        assert process.returncode == 0
    text = text_of(written)
    for word in ("loading", "offered", "achieved", "remembered", "latency", "lag", "process", "s left"):
        assert word in text
    assert left_clean(written)
    assert b"segments remembered." in out
    assert b"\x1b" not in out


@pytest.mark.parametrize("more", [(), ("--sweep", "rate", "--objective", "p99 < 1s")])
def test_ctrl_c_leaves_the_terminal_clean(tmp_path: Path, more: tuple[str, ...]) -> None:
    with on_a_terminal(*LOAD, *more, "--duration", 60, "--out", tmp_path / "run") as (process, written):
        ends_s = time.monotonic() + 90
        while "s left" not in text_of(written):
            assert process.poll() is None, text_of(written)
            assert time.monotonic() < ends_s
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=90)
        assert process.returncode == 130
    assert "egostream: stopped; " in text_of(written)
    raw = b"".join(written).decode(errors="replace")
    assert raw.count("\x1b[?25l") == raw.count("\x1b[?25h")


def test_no_terminal_no_view(tmp_path: Path) -> None:
    ran = egostream(*LOAD, "--duration", 3, "--out", tmp_path / "run", cwd=ROOT)
    assert ran.code == 0
    assert "\x1b" not in ran.err
    assert "loading: " in ran.err  # a line now and then
    assert "offered " not in ran.err
