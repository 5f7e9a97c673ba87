"""The tally against what it stands for: a set of verdicts, an outcome and a flag for each trajectory."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from simulator.events import Metric, Outcome
from simulator.protocols.streammembench import METRICS, expected_metrics
from simulator.protocols.tally import Tally

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
