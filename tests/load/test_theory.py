"""Queues as theory has them: the real replayer, log, agent and conductor, in virtual time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from consumers.histogram import Histogram
from consumers.latency import LatencyReport
from producers.arrivals import Arrivals, Load
from simulator.load.single import LoadOptions, execute_load, plan_load
from tests.load.queues import ONE_EACH, arrivals_s, waits_s
from tests.load.virtual import run

STEP_US = 2
"""What rounding due times and stamps to a microsecond may come to."""


def loaded(
    monkeypatch: pytest.MonkeyPatch, out: Path, system: str, load: Load, drain_s: float = 1000.0
) -> LatencyReport:
    options = LoadOptions(
        data=ONE_EACH, system=f"it=tests.load.systems:FixedTime:{system}", out=out, load=load, drain_s=drain_s
    )
    return run(monkeypatch, partial(execute_load, plan_load(options)))


def test_the_schedule_is_poisson_and_so_waits_are_those_of_an_m_d_1_queue() -> None:
    ends_s = arrivals_s("poisson", 100, 600_000)
    for utilisation in (0.5, 0.8, 0.9):
        service_s = utilisation / 100
        mean_s = float(np.mean(waits_s(ends_s, service_s)))
        theory_s = utilisation * service_s / (2 * (1 - utilisation))
        assert mean_s == pytest.approx(theory_s, rel=0.05), utilisation


@pytest.mark.parametrize(
    ("arrivals", "utilisation"), [("regular", 0.9), ("poisson", 0.5), ("poisson", 0.8), ("poisson", 0.9)]
)
def test_the_agent_waits_as_long_as_the_recursion_says_for_the_same_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrivals: Arrivals, utilisation: float
) -> None:
    """With the test above: its mean wait is that of M/D/1. Some hundred segments would not show it, since waits are
    long correlated; here each percentile has to agree, for it is the same schedule. Regular arrivals never wait."""
    service_s, count = 0.01, 200
    per_second = utilisation / service_s
    load = Load(duration_s=count / per_second, arrivals=arrivals, observations_per_second=per_second, seed=1)
    report = loaded(monkeypatch, tmp_path, "service_ms=10", load)
    expected_s = waits_s(arrivals_s(arrivals, per_second, count), service_s)
    begun, ended = report.stages["begun"], report.stages["ended"]
    assert begun is not None
    assert ended is not None
    assert begun.n == len(expected_s) == report.remembered
    assert begun.mean_us == pytest.approx(np.mean(expected_s) * 1e6, rel=0.001, abs=STEP_US)
    ours = Histogram(round(wait * 1e6) for wait in expected_s).percentiles()
    assert ours is not None
    for name in ("p50_us", "p90_us", "p99_us", "max_us"):
        assert getattr(begun, name) == pytest.approx(getattr(ours, name), rel=0.001, abs=STEP_US)
    assert ended.mean_us == pytest.approx(begun.mean_us + service_s * 1e6, rel=0.001, abs=STEP_US)
    if arrivals == "regular":
        assert begun.max_us <= STEP_US
    else:
        assert begun.max_us > service_s * 1e6


# At 100 segments/s one ingest of a minute takes 10 s, the others 5 ms. Counted from there, segment i is due at 10 i ms
# and ends at 10 s + 5 i ms: it took 10 s - 5 i ms, until at i = 2000 all is caught up. So 2000 of 6000 were late; of
# all, one in a hundred (60) took more than 9.7 s, one in ten (600) more than 7 s, and the half of them 5 ms. All
# that is for ten `tenths`; for one, each but the 5 ms is a tenth.
STALL_US = {"p90_us": 700_000, "p99_us": 970_000, "max_us": 1_000_000}


@pytest.mark.parametrize(("blocking", "tenths"), [(False, 1), (True, 10)])
def test_a_stall_counts_for_all_that_it_delayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocking: bool, tenths: int
) -> None:
    stall = f"stall_at={200 * tenths},stall_ms={1000 * tenths},blocking={str(blocking).lower()}"
    load = Load(duration_s=6 * tenths, rate=30_000)
    report = loaded(monkeypatch, tmp_path, f"service_ms=5,{stall}", load)
    assert report.remembered == 600 * tenths
    remembered, ingest, from_send = (report.stages[name] for name in ("remembered", "ingest", "from_send"))
    assert remembered is not None
    assert ingest is not None
    assert from_send is not None
    assert remembered.p50_us == pytest.approx(5_000, rel=0.02)
    for name, expected_us in STALL_US.items():
        assert getattr(remembered, name) == pytest.approx(expected_us * tenths, rel=0.02), name
    # A client that waits for each answer before it sends the next would have sent when the ingest begins, and seen:
    for name in ("p50_us", "p90_us", "p99_us"):
        assert getattr(ingest, name) == pytest.approx(5_000, rel=0.02), name
    assert ingest.max_us == pytest.approx(1_000_000 * tenths, rel=0.02)
    if blocking:
        # The replayer stood still as well, and sent the first thousand late: from then they took 5 i ms, and the next
        # thousand what is left of 10 s. So 600 took more than 3.5 s, and 60 more than 4.85 s.
        for name, expected_us in (("p90_us", 350_000), ("p99_us", 485_000)):
            assert getattr(from_send, name) == pytest.approx(expected_us * tenths, rel=0.02), name
    else:
        assert from_send.p99_us == pytest.approx(remembered.p99_us, rel=0.001)  # it was sent in time
    assert report.highest.segments == pytest.approx(100 * tenths, abs=2)
    assert report.highest.event_time_s == pytest.approx(100 * tenths * 300, rel=0.02)
