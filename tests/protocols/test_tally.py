"""The tally against what it stands for: a set of verdicts, an outcome and a flag for each trajectory."""

from __future__ import annotations

from collections import defaultdict
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from simulator.events import Metric, Outcome, ProbeMetric
from simulator.protocols.streammembench import METRICS, expected_metrics
from simulator.protocols.tally import Tally
from tests.protocols.probes import probe_of
from tests.protocols.scripted import anchor_of

NAMES = ("x@A/s0/e0", "x@A/s0/e1", "x@B/s0/e0")
moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(METRICS)),
        st.tuples(st.sampled_from(NAMES), st.sampled_from(["pass", "fail", "unjudged"])),
        st.tuples(st.sampled_from(NAMES), st.just("close")),
        st.tuples(st.sampled_from(["A", "B"]), st.just("forget")),
    ),
    max_size=60,
)


@given(moves, st.booleans())
def test_a_number_holds_what_sets_would(moved: list[tuple[str, str]], ablate: bool) -> None:
    tally = Tally(ablate_commit=ablate)
    metrics: dict[str, set[Metric]] = defaultdict(set)
    ieu: dict[str, Outcome] = {}
    closed: set[str] = set()
    for name, what in moved:
        if what == "close":
            tally.close(name)
            closed.add(name)
        elif what == "forget":
            tally.forget_verdicts({name})
            for other in [n for n in NAMES if f"@{name}/" in n]:
                metrics.pop(other, None)
                ieu.pop(other, None)
        elif what in ("pass", "fail", "unjudged"):
            outcome: Outcome = what  # type: ignore[assignment]  # one of the three
            tally.judge_r1(name, outcome)
            ieu[name] = outcome
        else:
            metric: Metric = what  # type: ignore[assignment]  # one of METRICS
            assert tally.add(name, metric) == (metric not in metrics[name])
            metrics[name].add(metric)
        for each in NAMES:
            assert tally.ieu(each) == ieu.get(each)
            assert tally.closed(each) == (each in closed)
            expected = expected_metrics(ieu.get(each), ablate_commit=ablate)
            assert tally.finished(each) == (
                each in closed and each in ieu and metrics[each].issuperset(expected)
            )


PROBES = {
    "x@A/s0/p0": probe_of("A", 0, metrics=("decision", "gated_score")),
    "x@A/s0/p1": probe_of("A", 0, 1, metrics=get_args(ProbeMetric)),
    "x@B/s0/p0": probe_of("B", 0, metrics=("qa",)),
}
of_probes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([*PROBES]), st.sampled_from([*get_args(ProbeMetric), "ieu", "fidelity"])),
        st.tuples(st.sampled_from([*PROBES, NAMES[0]]), st.just("close")),
        st.tuples(st.sampled_from(["A", "B"]), st.just("forget")),
    ),
    max_size=60,
)


@given(of_probes, st.booleans())
def test_a_number_holds_what_sets_would_of_probes(moved: list[tuple[str, str]], ablate: bool) -> None:
    tally = Tally(ablate_commit=ablate)
    for name, probe in PROBES.items():
        tally.expect(name, probe)
    tally.expect(NAMES[0], anchor_of("A", 0))
    metrics: dict[str, set[str]] = defaultdict(set)
    closed: set[str] = set()
    for name, what in moved:
        if what == "close":
            tally.close(name)
            closed.add(name)
        elif what == "forget":
            tally.forget_verdicts({name})
            for other in [n for n in PROBES if f"@{name}/" in n]:
                metrics.pop(other, None)
        else:
            metric: Metric = what  # type: ignore[assignment]  # one of them
            assert tally.add(name, metric) == (metric not in metrics[name])
            metrics[name].add(metric)
        for each, probe in PROBES.items():
            assert tally.closed(each) == (each in closed)
            assert tally.ieu(each) is None
            assert tally.missing(each) == [m for m in probe.metrics if m not in metrics[each]]
            assert tally.finished(each) == (each in closed and not tally.missing(each))
        assert not tally.finished(NAMES[0])


def test_a_finished_anchor_is_a_number_that_the_interpreter_shares() -> None:
    tally = Tally(ablate_commit=True)
    for metric in METRICS:
        tally.add(NAMES[0], metric)
    tally.judge_r1(NAMES[0], "unjudged")
    tally.close(NAMES[0])
    assert tally.finished(NAMES[0])
    assert tally._bits[NAMES[0]] < 256
