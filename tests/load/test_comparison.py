"""Two systems held against each other: the arithmetic, a comparison in virtual time, and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.histogram import Histogram
from consumers.latency import LatencyReport
from producers.arrivals import Load
from simulator.errors import ConfigError
from simulator.load.comparison import Better, Comparison, Figure, Round, Side, compare, hold_against
from simulator.load.several import execute_comparison
from simulator.load.single import LoadOptions
from simulator.report.page import write_report
from simulator.report.words import lacking_text
from tests.cli.helpers import egostream, interrupt, one_line, started, wait_for
from tests.load.queues import ONE_EACH
from tests.load.reports import loaded
from tests.load.test_latency import folded, whole

times = st.floats(1.0, 1e6)
pairs_of_times = st.lists(st.tuples(times, times), min_size=1, max_size=15)


def served(service_us: int, segments: int = 40) -> LatencyReport:
    """One lane that ingests each of its segments, one each 100 ms, in this time."""
    fed = []
    for segment in range(segments):
        due_us = segment * 100_000
        fed += whole("A", segment, due_us, due_us + 3, due_us + 3 + service_us)
    return folded(fed)


def rounds(*services_us: tuple[int, int]) -> list[Round]:
    return [Round(first="A", a=served(a), b=served(b)) for a, b in services_us]


def named(comparison: Comparison, name: str) -> Figure:
    (figure,) = (figure for figure in comparison.figures if figure.name == name)
    return figure


@given(pairs_of_times, st.sampled_from(["lower", "higher"]))
def test_it_is_the_same_seen_from_either_side(pairs: list[tuple[float, float]], better: Better) -> None:
    one = hold_against("p99", "us", better, pairs)
    other = hold_against("p99", "us", better, [(b, a) for a, b in pairs])
    assert other.says == {"A": "B", "B": "A"}.get(one.says, one.says)
    assert (other.a, other.b) == (one.b, one.a)
    assert one.median is not None
    assert other.median is not None
    assert other.median == pytest.approx(1 / one.median)
    assert one.low is not None
    assert one.high is not None
    assert one.low <= one.median * (1 + 1e-9)
    assert one.median <= one.high * (1 + 1e-9)


@given(pairs_of_times, st.floats(1.01, 3))
def test_one_that_is_better_in_every_round_is_said_to_be_from_five_rounds_on(
    pairs: list[tuple[float, float]], factor: float
) -> None:
    faster = [(min(pair), min(pair) * factor) for pair in pairs]
    figure = hold_against("p99", "us", "lower", faster)
    assert figure.says == ("A" if len(pairs) >= 5 else "unjudged")
    assert ("too few" in figure.reason) is (len(pairs) < 5)
    assert hold_against("achieved", "1/s", "higher", faster).says == ("B" if len(pairs) >= 5 else "unjudged")


def test_how_often_two_equal_systems_look_different_is_what_the_level_says() -> None:
    """All ways in which five rounds of equal systems can fall out: 2 of 32 are all on one side."""
    different = 0
    for way in range(32):
        pairs = [(1.0 + 0.01 * n, 1.5) if way >> n & 1 else (1.5, 1.0 + 0.01 * n) for n in range(5)]
        different += hold_against("p99", "us", "lower", pairs).says != "none"
    assert different == 2


def test_a_value_that_is_missing_or_zero_has_no_ratio_and_nothing_is_told() -> None:
    for odd in (None, 0.0):
        figure = hold_against("p99", "us", "lower", [(1.0, 2.0)] * 6 + [(odd, 2.0)], needs="a segment")
        assert (figure.says, figure.ratios[-1]) == ("unjudged", None)
        assert figure.reason == "p99 has no ratio in round 7: it needs a segment"
        assert figure.median == 0.5


def test_figures_are_the_ratios_of_what_was_measured() -> None:
    slow = [(20_000 + 10 * n, 40_000) for n in range(5)]
    found = compare(("a", "b"), rounds(*slow))
    p99 = named(found, "p99")
    assert p99.says == "A"
    assert p99.median == pytest.approx(0.5, rel=0.01)
    assert p99.ratios == pytest.approx([(20_005 + 10 * n) / 40_005 for n in range(5)], rel=0.002)
    assert named(found, "achieved").says == "none"
    assert named(found, "1 + growth").median == pytest.approx(1.0, abs=0.001)
    cpu = named(found, "CPU per segment")
    assert (cpu.says, cpu.median) == ("unjudged", None)  # no process said what it used
    assert "take a longer --duration" in cpu.reason


def test_answers_are_compared_where_questions_were_asked() -> None:
    done = [Round(first="A", a=loaded(2_000, asked=True), b=loaded(9_000, asked=True)) for _ in range(5)]
    found = compare(("a", "b"), done)
    assert named(found, "answer p99").says == "A"
    assert "answer p50" not in {figure.name for figure in compare(("a", "b"), rounds((1, 1))).figures}
    answers = done[1].b.answers
    assert answers is not None
    done[1] = replace(
        done[1], b=replace(done[1].b, answers=replace(answers, loaded=replace(answers.loaded, unfinished=3)))
    )
    assert "3 unfinished of 200 questions in round 2" in named(compare(("a", "b"), done), "p99").reason


def test_of_how_few_values_percentiles_were_taken_is_said() -> None:
    long = served(20_000, segments=120)
    done = [Round(first="A", a=long, b=long), Round(first="B", a=long, b=served(40_000, segments=99))]
    found = compare(("a", "b"), done)
    assert found.few == {"p99": 99}
    assert lacking_text(found) == [
        "p99 is no more than the longest time where a load has few values, and one had 99: take a longer --duration."
    ]
    assert compare(("a", "b"), done[:1]).few == {}
    asked = loaded(segments=120, asked=True)
    assert asked.answers is not None
    stages = {**asked.answers.loaded.stages, "received": Histogram([7]).percentiles()}
    one = replace(asked, answers=replace(asked.answers, loaded=replace(asked.answers.loaded, stages=stages)))
    assert compare(("a", "b"), [Round(first="A", a=asked, b=one)]).few == {"answer p50": 1, "answer p99": 1}


def test_nothing_is_told_of_latencies_where_something_failed() -> None:
    """One that fails half of its segments would look faster: it must not win."""
    done = rounds(*[(20_000, 40_000)] * 6)
    done[2] = replace(done[2], a=replace(done[2].a, failed=20))
    found = compare(("a", "b"), done)
    assert {figure.says for figure in found.figures} == {"unjudged"}
    assert "A left 20 failed" in named(found, "p99").reason
    assert not found.told


def asked(out: Path, **more: Any) -> LoadOptions:
    load = Load(duration_s=0.5, arrivals="poisson", observations_per_second=40)
    return LoadOptions(data=ONE_EACH, system="", out=out, load=load, **more)


async def test_a_comparison_takes_turns_under_one_load_a_round(tmp_path: Path) -> None:
    told: list[tuple[int, Side]] = []
    found = await execute_comparison(
        asked(tmp_path),
        ("null", "it=tests.load.systems:FixedTime:service_ms=20"),
        2,
        tell=lambda number, side, _: told.append((number, side)),
    )
    assert told == [(1, "A"), (1, "B"), (2, "B"), (2, "A")]
    assert [each.first for each in found.rounds] == ["A", "B"]
    for each in found.rounds:  # the same load for both, another one each round
        assert each.a.segments == each.b.segments > 0
        for name in ("load", "dataset", "machine"):
            assert each.a.identity[name] == each.b.identity[name]
        assert (each.a.systems, each.b.systems) == (("null",), ("it",))
    assert len({each.a.identity["load"] for each in found.rounds}) == 2
    a, b = (getattr(found.rounds[1], side).stages["remembered"].p50_us for side in "ab")
    assert named(found, "p50").ratios[1] == a / b
    written = msgspec.json.decode((tmp_path / "compare.json").read_bytes(), type=Comparison)
    assert written == found
    assert all((tmp_path / f"0{n}-{side}" / "latency.json").is_file() for n in (1, 2) for side in "AB")
    with pytest.raises(ConfigError, match=r"already holds a compare\.json"):
        await execute_comparison(asked(tmp_path), ("null", "null"), 2)


async def test_a_comparison_that_is_stopped_leaves_the_rounds_that_it_has_measured(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        await execute_comparison(
            asked(tmp_path), ("null", "null"), 9, tell=lambda number, *_: number == 3 and scope.cancel()
        )
    assert scope.cancelled_caught
    written = msgspec.json.decode((tmp_path / "compare.json").read_bytes(), type=Comparison)
    assert len(written.rounds) == 2
    assert not written.told
    assert "It goes no further: it was stopped before its end." in write_report(tmp_path).read_text()


def test_ctrl_c_during_a_comparison_keeps_what_was_measured(tmp_path: Path) -> None:
    asked = ("--data", ONE_EACH, "--rate", 6000, "--duration", 1, "--rounds", 50, "--out", "r")
    with started("load", "--compare", "null", "null", *asked, cwd=tmp_path) as process:
        wait_for((tmp_path / "r" / "compare.json").is_file, process)
        ran = interrupt(process)
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.splitlines()[-1] == (
        "egostream: stopped; the loads that were measured are in r: `egostream report r` shows what they tell"
    )
    assert egostream("report", "r", cwd=tmp_path).code == 0
    assert "it was stopped before its end" in (tmp_path / "r" / "report.html").read_text()


async def test_a_second_system_that_is_none_is_found_before_the_first_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown memory system 'nobody'"):
        await execute_comparison(asked(tmp_path / "run"), ("null", "nobody"), 5)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name the memory system"),
        (("null", "--compare", "null", "rag_raw"), "give one SYSTEM (or --attach LABEL), or --compare A B"),
        (("--attach", "mine", "--compare", "null", "null"), "give one SYSTEM (or --attach LABEL)"),
        (("--compare", "null", "null", "--sweep", "rate"), "--sweep looks at one system"),
        (("--compare", "null", "null", "--objective", "lag"), "--objective goes with --sweep"),
    ],
)
def test_the_command_takes_one_system_or_two(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    ran = egostream("load", *arguments, "--data", ONE_EACH, "--rate", 6000, "--out", tmp_path / "run")
    assert (ran.code, says in one_line(ran)) == (2, True), ran.err
    assert not (tmp_path / "run").exists()


def test_the_command_prints_each_figure_and_that_too_few_rounds_tell_nothing(tmp_path: Path) -> None:
    arguments = (
        "--data",
        ONE_EACH,
        "--rate",
        6000,
        "--duration",
        1,
        "--rounds",
        1,
        "--out",
        tmp_path / "run",
    )
    ran = egostream("load", "--compare", "null", "full_context", *arguments)
    assert ran.code == 4, ran.err
    assert "Medians and ratios of 1 round" in ran.out
    assert "not told: 1 round is too few to tell: take 5 or more" in ran.out
    assert "round 1 of 1, B: p99" in ran.err
    assert (tmp_path / "run" / "report.html").is_file()
    ran = egostream("load", "--compare", "null", "null", *arguments, "--overwrite", "--json", "-q")
    assert (ran.code, ran.err) == (4, "")
    assert ran.json["systems"] == ["null", "null"]
