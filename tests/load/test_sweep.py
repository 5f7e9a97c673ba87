from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.arrivals import Load
from simulator.errors import ConfigError
from simulator.load.confidence import chance
from simulator.load.several import execute_sweep
from simulator.load.single import LoadOptions
from simulator.load.sweep import Axis, End, Measured, Objective, Search, values
from simulator.report.words import bracket_text, end_text
from tests.cli.helpers import egostream, one_line
from tests.load.test_latency import folded, stalled_minute, whole
from tests.load.test_theory import ONE_EACH
from tests.load.virtual import run


@settings(deadline=None)
@given(st.floats(0.01, 5000), st.floats(0.01, 5000), st.sampled_from([0.01, 0.05, 0.3]))
def test_a_search_finds_a_capacity_within_its_tolerance(
    capacity: float, first: float, tolerance: float
) -> None:
    search = Search("rate", first, tolerance=tolerance)
    for asked, value in enumerate(values(search)):
        search.tell(value, value <= capacity)
        assert asked < 60
    found = search.found("lag", "× real time", ())
    assert found.highest_kept is not None
    assert found.lowest_broken is not None
    low, high = found.highest_kept.value, found.lowest_broken.value
    assert low <= capacity < high <= low * (1 + tolerance)
    assert (found.highest_kept.of, found.lowest_broken.of, found.sure) == (2, 2, True)


@given(st.integers(0, 300), st.integers(1, 300))
def test_a_search_finds_the_number_of_wearers_exactly(capacity: int, first: int) -> None:
    search = Search("wearers", first)
    for value in values(search):
        assert value == int(value) >= 1
        search.tell(value, value <= capacity)
    found = search.found("lag", "× real time", ())
    assert (found.highest_kept and found.highest_kept.value) == (capacity or None)
    assert found.lowest_broken is not None
    assert found.lowest_broken.value == capacity + 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_search_that_reaches_no_end_says_so(kept: bool) -> None:
    axes: tuple[Axis, ...] = ("rate", "wearers")
    for axis in axes:
        search = Search(axis, 3)
        for value in values(search):
            search.tell(value, kept)
        found = search.found("lag", "× real time", ())
        assert (found.lowest_broken if kept else found.highest_kept) is None
        assert not found.sure
        assert bracket_text(found).startswith(f"Nothing in reach {'breaks' if kept else 'keeps'} it")


def test_an_end_that_says_now_this_and_now_that_is_reported_as_it_is() -> None:
    search = Search("rate", 100, again=3)
    said: list[float] = []
    for value in values(search):
        again = value in said
        said.append(value)
        search.tell(value, value <= 100 and not (again and value > 90))
    found = search.found("lag", "× real time", ())
    kept, broken = found.highest_kept, found.lowest_broken
    assert kept is not None
    assert broken is not None
    assert (kept.value, kept.kept_times, kept.of, kept.agreed) == (100, 1, 4, False)
    # by the three after the first: that made it the end, so it says nothing of how sure that is
    assert kept.chance == chance(0, 3)
    assert (broken.kept_times, broken.of, broken.agreed, broken.chance) == (0, 4, True, chance(0, 3))
    assert not found.sure
    assert "do not agree" in bracket_text(found)
    assert "kept in 1 of 4 measurements" in end_text(kept, found.unit)
    assert "0% to 71% (95% interval" in end_text(kept, found.unit)


def test_an_end_that_was_measured_twice_has_no_chance_to_tell() -> None:
    end = End.measured(100, [True, True])
    assert (end.chance, end.agreed) == (None, True)
    assert "kept in 2 of 2 measurements, too few" in end_text(end, "wearers")


def test_objectives_are_read_and_kept_or_broken() -> None:
    stalled = folded(stalled_minute())
    for text, kept in (
        ("p50 < 6ms", True),
        ("p50<4ms", False),
        ("p99 < 9.9 s", True),
        ("p99 < 9.6s", False),
        ("max < 1min", True),
        ("p99.9 < 9000000us", False),
        ("lag", True),
    ):
        assert Objective.parse(text).kept(stalled) is kept, text
    owing = folded([*stalled_minute(), whole("A", 6000, 60_000_000, 0, 0)[0]])
    assert not Objective.parse("p50 < 1min").kept(owing)
    for text in ("p98 < 2s", "p99 > 2s", "p99 < 2", "", "lags"):
        with pytest.raises(ConfigError, match="is no objective"):
            Objective.parse(text)
    with pytest.raises(ConfigError, match="too few"):
        Objective.parse("lag").kept(folded(whole("A", 0, 0, 3, 4)))


@pytest.mark.parametrize(("share", "grows"), [(0.5, False), (1.0, False), (1.03, True), (2.0, True)])
def test_lag_grows_where_more_is_offered_than_is_ingested(share: float, grows: bool) -> None:
    fed, free_us = [], 0
    for segment in range(400):
        due_us = round(segment * 20_000 / share)
        begun_us = max(due_us + 3, free_us)
        free_us = begun_us + 20_000
        fed += whole("A", segment, due_us, begun_us, free_us)
    report = folded(fed)
    assert report.growth == pytest.approx(max(0.0, share - 1), abs=0.005)
    assert Objective.parse("lag").kept(report) is not grows


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("system", "wearers", "duration_s", "calls_in_flight"),
    [("FixedTime:service_ms=20", 1, 1, 1), ("FixedTime:service_ms=20", 4, 2, 1), ("OneDevice", 4, 2, 64)],
)
def test_a_sweep_finds_the_known_capacity_of_a_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    wearers: int,
    duration_s: float,
    calls_in_flight: int,
) -> None:
    """20 ms a segment and one at a time, on however many lanes: 50 a second, in virtual time. Whether it is we who do
    one at a time or the system itself. (In processes of their own, real time: benchmarks/bench_capacity.py.)"""
    options = LoadOptions(
        data=ONE_EACH,
        system=f"it=tests.load.systems:{system}",
        out=tmp_path / "sweep",
        load=Load(wearers=wearers, duration_s=duration_s, observations_per_second=40),
        calls_in_flight=calls_in_flight,
    )
    told: list[Measured] = []
    found = run(
        monkeypatch,
        partial(
            execute_sweep,
            options,
            "rate",
            Objective.parse("lag"),
            tolerance=0.05,
            again=0,
            tell=told.append,
        ),
    )
    assert found.highest_kept is not None
    assert found.lowest_broken is not None
    assert found.highest_kept.value == pytest.approx(50, rel=0.05)
    assert found.lowest_broken.value == pytest.approx(50, rel=0.07)
    assert found.unit == "observations/s"
    assert tuple(told) == found.points
    assert (tmp_path / "sweep" / "sweep.json").is_file()


def test_the_command_prints_the_curve_and_refuses_what_does_not_go_together(tmp_path: Path) -> None:
    common = ("load", "null", "--data", ONE_EACH, "--out", tmp_path / "run", "--duration", 1)
    ran = egostream(*common, "--rate", 3000, "--sweep", "rate", "--objective", "max < 0us", "-q")
    assert ran.code == 2  # a rate so low that no segment ends in the time
    ran = egostream(*common, "--rate", 6000, "--objective", "lag")
    assert (ran.code, "--objective goes with --sweep" in one_line(ran)) == (2, True)
    ran = egostream(*common, "--rate", 6000, "--sweep", "rate", "--objective", "fast")
    assert (ran.code, "is no objective" in one_line(ran)) == (2, True)
