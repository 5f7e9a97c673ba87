from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.arrivals import Load
from simulator.counts import counted
from simulator.errors import ConfigError
from simulator.load.confidence import chance
from simulator.load.several import execute_sweep
from simulator.load.single import LoadOptions
from simulator.load.sweep import Axis, End, Found, Measured, Objective, Search, values
from simulator.report.page import write_report
from simulator.report.words import bracket_text, end_text, lacking_text, value_text
from tests.cli.helpers import egostream, one_line
from tests.load.queues import ONE_EACH
from tests.load.test_latency import folded, stalled_minute, whole
from tests.load.virtual import run


@settings(deadline=None)
@given(st.floats(0.01, 5000), st.floats(0.01, 5000), st.sampled_from([0.01, 0.05, 0.3]))
def test_a_search_finds_a_capacity_within_its_tolerance(
    capacity: float, first: float, tolerance: float
) -> None:
    search = Search("rate", first, tolerance=tolerance)
    for asked, value in enumerate(values(search)):
        search.tell(value, value <= capacity)
        assert asked < 80
    found = search.found("lag", "× real time", ())
    assert found.highest_kept is not None
    assert found.lowest_broken is not None
    low, high = found.highest_kept.value, found.lowest_broken.value
    assert low <= capacity < high <= low * (1 + tolerance)
    assert (found.highest_kept.of, found.lowest_broken.of, found.sure) == (2, 3, True)


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


class Searched(NamedTuple):
    low: End | None
    high: End | None
    asked: list[float]


def searched(axis: Axis, first: float, capacity: float, again: int, breaks_at: int | None = None) -> Searched:
    """A search on a system of this capacity, of which the n-th load looks broken, whatever it is."""
    search, asked = Search(axis, first, again=again), []
    for value in values(search):
        asked.append(value)
        search.tell(value, value <= capacity and len(asked) - 1 != breaks_at)
    found = search.found("lag", "× real time", ())
    return Searched(found.highest_kept, found.lowest_broken, asked)


@settings(deadline=None)
@given(
    st.sampled_from(["rate", "wearers"]),
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(0, 4),
    st.integers(0, 40),
)
def test_one_load_that_looks_broken_moves_no_end(
    axis: Axis, first: int, capacity: int, again: int, breaks_at: int
) -> None:
    quiet, noisy = (searched(axis, first, capacity, again, at) for at in (None, breaks_at))
    assert quiet.low is not None
    assert quiet.high is not None
    assert noisy.low is not None
    assert noisy.high is not None
    assert (noisy.low.value, noisy.high.value) == (quiet.low.value, quiet.high.value)
    assert len(noisy.asked) <= len(quiet.asked) + 2
    for found in (quiet, noisy):  # whatever was measured of an end counts
        for end in (found.low, found.high):
            assert end is not None
            assert end.of == found.asked.count(end.value) >= 1 + again
    told = breaks_at < len(noisy.asked) and noisy.asked[breaks_at] == noisy.low.value
    assert noisy.low.kept_times == noisy.low.of - told
    assert noisy.low.agreed is not told


@given(st.sampled_from(["rate", "wearers"]), st.integers(1, 300), st.integers(1, 300), st.integers(0, 4))
def test_where_nothing_is_noisy_a_broken_value_costs_one_load_more(
    axis: Axis, first: int, capacity: int, again: int
) -> None:
    asked = searched(axis, first, capacity, again).asked
    broken = {value for value in asked if value > capacity}
    assert len(asked) == len(set(asked)) + len(broken) + 2 * again


def test_two_of_three_settle_what_the_first_two_leave_open() -> None:
    """As a machine that did other things in one load of three."""
    said = {
        2.0: [False, True, True, True, True],
        3.0: [False, True, False, False, False],
        4.0: [False, False],
    }
    search, asked = Search("wearers", 2, again=2), []
    for value in values(search):
        asked.append(value)
        search.tell(value, said[value][asked.count(value) - 1])
    assert asked == [2, 2, 2, 4, 4, 3, 3, 3, 2, 2, 3, 3]
    found = search.found("lag", "wearers", ())
    assert found.highest_kept == End(value=2, kept_times=4, of=5, agreed=False, chance=None)
    assert found.lowest_broken == End(value=3, kept_times=1, of=5, agreed=False, chance=None)


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
    assert (broken.kept_times, broken.of, broken.agreed, broken.chance) == (0, 5, True, chance(0, 3))
    assert not found.sure
    assert "do not agree" in bracket_text(found)
    assert "kept in 1 of 4 measurements" in end_text(kept, found.unit)
    assert "0% to 71% (95% interval" in end_text(kept, found.unit)


def test_one_is_not_said_as_many_are() -> None:
    search = Search("wearers", 1)
    search.tell(1, kept=False)
    found = search.found("lag", "wearers", ())
    assert bracket_text(found) == "Nothing in reach keeps it: 1 wearer is the lowest that was tried."
    assert end_text(found.lowest_broken, "wearers").startswith(
        "1 wearer: kept in 0 of 1 measurement, too few"
    )
    assert (value_text(1, "observations/s"), value_text(1200, "wearers")) == (
        "1 observations/s",
        "1,200 wearers",
    )
    assert (counted(1, "lane"), counted(0, "lane"), counted(1200, "try", "tries")) == (
        "1 lane",
        "0 lanes",
        "1,200 tries",
    )


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
    with pytest.raises(ConfigError, match="1 segment on 1 lane: too few"):
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
    ran = egostream(*common, "--rate", 100, "--sweep", "rate", "--objective", "max < 0us", "-q")
    assert (ran.code, "no segment ends within 1 s" in one_line(ran)) == (2, True)
    assert not (tmp_path / "run").exists()
    ran = egostream(*common, "--rate", 6000, "--objective", "lag")
    assert (ran.code, "--objective goes with --sweep" in one_line(ran)) == (2, True)
    ran = egostream(*common, "--rate", 6000, "--sweep", "rate", "--objective", "fast")
    assert (ran.code, "is no objective" in one_line(ran)) == (2, True)


def test_a_rate_further_on_that_can_not_be_measured_ends_the_sweep_and_loses_nothing(tmp_path: Path) -> None:
    """Halved until no segment would end in the time."""
    out = tmp_path / "run"
    common = ("load", "null", "--data", ONE_EACH, "--out", out, "--duration", 0.5, "-q")
    ran = egostream(*common, "--rate", 2000, "--sweep", "rate", "--objective", "max < 0us")
    assert (ran.code, ran.err) == (4, "")
    assert "Nothing in reach keeps it: 1,000 × real time is the lowest that was tried." in ran.out
    assert "It goes no further: 500 × real time can't be measured: no segment ends within 0.5 s" in ran.out
    found = msgspec.json.decode((out / "sweep.json").read_bytes(), type=Found)
    assert [point.value for point in found.points] == [2000, 2000, 1000, 1000]
    assert not found.sure
    assert "It goes no further" in (out / "report.html").read_text()


async def test_a_rate_that_does_not_fit_in_memory_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.arrivals.MOST_OBSERVATIONS", 60)
    load = Load(duration_s=0.5, observations_per_second=50)
    options = LoadOptions(data=ONE_EACH, system="null", out=tmp_path, load=load)
    found = await execute_sweep(options, "rate", Objective.parse("max < 10min"))
    assert [point.value for point in found.points] == [50, 100]
    assert "200 observations/s can't be measured: this load is about 100 observations" in found.reason
    assert bracket_text(found).startswith("Nothing in reach breaks it: 100 observations/s")


async def test_a_sweep_that_is_stopped_leaves_what_it_has_measured(tmp_path: Path) -> None:
    load = Load(duration_s=0.5, observations_per_second=50)
    options = LoadOptions(data=ONE_EACH, system="null", out=tmp_path, load=load)
    with anyio.CancelScope() as scope:
        await execute_sweep(
            options, "rate", Objective.parse("max < 10min"), tell=lambda measured: scope.cancel()
        )
    assert scope.cancelled_caught
    text = write_report(tmp_path).read_text()
    assert "It goes no further: it was stopped before its end." in text
    assert "50 observations/s is the highest that was tried" in text


@pytest.mark.parametrize(
    ("objective", "fewest"), [("p50 < 9s", None), ("p90 < 9s", None), ("p99 < 9s", 50), ("lag", None)]
)
def test_of_how_few_values_a_percentile_was_taken_is_said(objective: str, fewest: int | None) -> None:
    search, points = Search("rate", 50, again=0), []
    for segments in (50, 400):
        fed = [
            event
            for i in range(segments)
            for event in whole("A", i, i * 20_000, i * 20_000 + 3, i * 20_000 + 9)
        ]
        points.append(Measured(value=segments, kept=True, report=folded(fed)))
        search.tell(segments, kept=True)
    found = search.found(objective, "× real time", tuple(points))
    assert found.few == ({} if fewest is None else {"p99": fewest})
    said = lacking_text(found)
    assert len(said) == (fewest is not None)
    assert "".join(said).startswith("p99 is no more than the longest time" if said else "")
    assert "".join(said).endswith("one had 50: take a longer --duration." if said else "")
