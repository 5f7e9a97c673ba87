"""The fold, fed in every order that a log can give, against a plain count of the same events."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.follow import feed
from consumers.gauges import Gauges, State
from consumers.latency import STAGES, LatencyFold
from producers.arrivals import Load
from producers.questions import QuestionLoad
from simulator.events import (
    DeadLetterEvent,
    LaneFailedEvent,
    ObservationEvent,
    ProcessSampleEvent,
    ReadyEvent,
    Replayed,
    ReplayEndedEvent,
    ResponseEvent,
    RunStartedEvent,
    Usage,
)
from simulator.intake import decode_records
from simulator.load.single import LoadOptions, execute_load, plan_load
from simulator.log import StoredRecord
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import open_run
from simulator.waits import CONDUCTOR_ROLE
from tests.load.test_latency import NOW_US, Fed, closed, delta, released, stamped, started, whole
from tests.metrics.recount import bucketed, counted, nonzero, recount, stored
from tests.probes.helpers import LIFEDIAL

DATA = "synthetic:seed=5,wearers=2,segments_per_day=8,observations_per_segment=4,anchors_per_day=8"
SPOILT = "slow=tests.workers.slow_memory:SlowMemory:ms=0,spoilt=true"


class Ran:
    """The records of a run, by partition."""

    def __init__(self, out: Path) -> None:
        anyio.run(self._read, out)

    async def _read(self, out: Path) -> None:
        async with open_run(out) as (log, self.started):
            self.partitions: dict[tuple[str, int], list[StoredRecord]] = defaultdict(list)
            for record in await stored(log, self.started):
                self.partitions[record.topic, record.partition].append(record)

    def mixed(self, random: Random) -> list[StoredRecord]:
        """Partition by partition in order, between them in none; sometimes one partition runs far ahead."""
        left = {place: list(reversed(records)) for place, records in self.partitions.items()}
        mixed: list[StoredRecord] = []
        while left:
            place = random.choice(sorted(left))
            count = min(random.choice((1, 1, 5, 1000)), len(left[place]))
            mixed += [left[place].pop() for _ in range(count)]
            if not left[place]:
                del left[place]
        return mixed


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    folder = tmp_path_factory.mktemp("runs")
    for name, more in (
        ("branch", {}),
        ("ablated", {"ablate_commit": True}),
        ("shared", {"isolation": "shared"}),
    ):
        options = RunOptions(data=DATA, systems=("null", SPOILT), out=folder / name, **more)  # type: ignore[arg-type]
        anyio.run(execute, plan_run(options))
    load = Load(wearers=3, duration_s=1.5, rate=1500)
    system = "tests.load.systems:FixedTime:service_ms=5,fails_at=2"
    anyio.run(execute_load, plan_load(LoadOptions(data=DATA, system=system, out=folder / "load", load=load)))
    questions = QuestionLoad(per_second=20, idle_s=0.5)
    asked = LoadOptions(data=DATA, system="null", out=folder / "asked", load=load, questions=questions)
    anyio.run(execute_load, plan_load(asked))
    return [Ran(folder / name) for name in ("branch", "ablated", "shared", "asked", "load")]


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("probes")
    options = RunOptions(
        data=LIFEDIAL, benchmark="lifedialbench", systems=("null", SPOILT), out=out, asked="both"
    )
    anyio.run(execute, plan_run(options))
    return Ran(out)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_in_any_order_of_topics_the_totals_are_a_plain_count(
    runs: list[Ran], probes: Ran, data: st.DataObject
) -> None:
    ran = data.draw(st.sampled_from([*runs, probes]))
    random = Random(data.draw(st.integers(0, 2**32)))
    mixed = ran.mixed(random)
    gauges = Gauges(ran.started)
    fed, look_at = 0, random.randrange(len(mixed))
    while fed < len(mixed):
        size = random.choice((7, 100, 300))
        feed(gauges, ran.started.run, mixed[fed : fed + size])
        fed = min(fed + size, len(mixed))
        state = gauges.state(NOW_US)
        for lane in state.lanes:  # what is read of one topic and not yet of another is no negative lag
            assert min(lane.lag_segments, lane.lag_observations, lane.lag_event_time_s) >= 0
        if fed - size <= look_at < fed:
            expected, found = nonzero(recount(ran.started, mixed[:fed])), nonzero(counted(state))
            for name in ("remembered", "failed"):  # of segments whose end was read
                for labels, number in found.pop(name).items():
                    assert number <= expected[name][labels]
                del expected[name]
            assert found == expected
    state = gauges.state(NOW_US)
    assert nonzero(counted(state)) == nonzero(recount(ran.started, mixed))
    assert gauges.over
    assert not any(lane.lag_segments or lane.lag_observations for lane in state.lanes)
    assert not any(state.open_trajectories.values())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_latencies_of_a_load_are_those_of_its_report(runs: list[Ran], seed: int) -> None:
    ran = runs[-1]
    mixed, late_us = ran.mixed(Random(seed)), list[int]()
    gauges, latency = Gauges(ran.started, late_us.append), LatencyFold(ran.started)
    feed(gauges, ran.started.run, mixed)
    for event, record in decode_records(ran.started.run, mixed)[0]:
        latency.feed(event, record.headers)
    report, state = latency.report(), gauges.state(NOW_US)
    assert report.remembered > 0
    assert report.failed == 3
    (system,) = ran.started.systems
    for stage in STAGES:
        numbers, found = report.stages[stage], state.latency[system, stage]
        assert numbers is not None
        assert (found.n, found.sum_us) == (numbers.n, round(numbers.mean_us * numbers.n))
    ingest = report.stages["ingest"]
    assert ingest is not None
    assert state.calls[system, "ingest"].n == ingest.n + report.failed
    assert list(state.latency[system, "remembered"].counts) == bucketed(late_us)
    assert (report.remembered, report.failed) == (
        sum(lane.remembered for lane in state.lanes),
        sum(lane.failed for lane in state.lanes),
    )


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_answers_of_a_load_are_those_of_its_report(runs: list[Ran], seed: int) -> None:
    ran = runs[-2]
    mixed = ran.mixed(Random(seed))
    gauges, latency = Gauges(ran.started), LatencyFold(ran.started)
    feed(gauges, ran.started.run, mixed)
    for event, record in decode_records(ran.started.run, mixed)[0]:
        latency.feed(event, record.headers)
    report, state = latency.report().answers, gauges.state(NOW_US)
    assert report is not None
    parts = [part.stages["received"] for part in (report.loaded, report.idle)]
    received = [numbers for numbers in parts if numbers is not None]
    found = state.answers["null",]
    assert found.n == sum(numbers.n for numbers in received) > 20
    assert found.sum_us == sum(round(numbers.mean_us * numbers.n) for numbers in received)


def folded(fed: list[Fed], anchors: int = 0, boot: str = "") -> State:
    begun = replace(started("A"), anchors=anchors)
    gauges = Gauges(begun)
    gauges.feed(begun, (("boot", boot.encode()),))
    for event, headers in fed:
        gauges.feed(event, headers)
    return gauges.state(NOW_US + 10_000_000)


def test_the_lag_is_what_is_published_and_not_remembered() -> None:
    ends = [closed("A", i, i * 1000, i * 1000, size=4) for i in range(5)]
    (lane,) = folded(ends).lanes
    assert (lane.lag_segments, lane.lag_observations, lane.lag_event_time_s) == (5, 20, 1500.0)
    deltas = [delta("it@A", 0, wall_us=10), delta("it@A", 1, wall_us=11, error="no room")]
    (lane,) = folded([*deltas, *ends]).lanes
    assert (lane.remembered, lane.failed) == (1, 1)
    assert (lane.lag_segments, lane.lag_observations, lane.lag_event_time_s) == (3, 12, 900.0)


def test_a_release_covers_all_before_it() -> None:
    lane = "it@A"
    ends = [closed("A", i, i * 10, i * 10) for i in range(4)]
    deltas = [delta(lane, i, wall_us=50 + i) for i in range(4)]
    releases = [released(lane, 1, 60), released(lane, 2, 70)]
    for fed in ([*ends, *deltas, *releases], [*releases, *deltas, *ends], [*deltas, *releases, *ends]):
        remembered = folded(fed).latency["it", "remembered"]
        assert (remembered.n, remembered.sum_us) == (3, (60 - 0) + (60 - 10) + (70 - 20))


def observed(seq: int, due_us: int, published_us: int) -> Fed:
    event = ObservationEvent(
        id=f"A/obs/{seq}", run="run", event_time_us=seq, stream="A", seq=seq, source="dialog", text="said"
    )
    return event, stamped(due_us=NOW_US + due_us, wall_us=NOW_US + published_us)


def test_a_replay_that_is_late_offers_no_less() -> None:
    """10 a second were due from -40 s to now; only those until 20 s ago were published, the last right now."""
    fed = [observed(n, n * 100_000 - 30_000_000, 10_000_000) for n in range(200)]
    recent = folded(fed).recent
    assert recent.offered_observations_per_s == 10.0
    assert recent.late_us == 20_100_000
    ended = ReplayEndedEvent(id="replay/ended", run="run", event_time_us=0, observations=200)
    assert folded([*fed, (ended, stamped(wall_us=NOW_US))]).recent.offered_observations_per_s == 0.0


def test_stamps_by_another_clock_are_left_out() -> None:
    """The agent runs on another machine, whose clock nobody here knows; then the conductor as well."""
    ours, theirs = (("boot", b"0a"),), (("boot", b"0b"),)
    (end, of_end), (wrote, of_delta), (freed, of_release) = whole("A", 0, 0, 700, 900)
    for conductor, remembered in ((ours, 1), (theirs, 0)):
        fed = [(end, of_end), (wrote, of_delta + theirs), (freed, of_release + conductor)]
        state = folded(fed, boot="0a")
        assert [state.latency["it", stage].n for stage in STAGES] == [1, 0, 0, 0, 0, remembered]
        assert state.recent.latencies == remembered
        assert state.lanes[0].remembered == 1
        assert state.calls["it", "ingest"].sum_us == 200  # a difference on one clock, whichever that is


def test_before_the_first_event_is_read_nothing_is_known_of_clocks() -> None:
    gauges = Gauges(started("A"))
    for event, headers in whole("A", 0, 0, 700, 900):
        gauges.feed(event, headers)
    assert gauges.state(NOW_US).lanes[0].remembered == 0
    gauges.feed(started("A"), ())
    state = gauges.state(NOW_US)
    assert state.lanes[0].remembered == 1
    assert state.latency["it", "remembered"].sum_us == 902


def test_the_newest_ten_seconds() -> None:
    """100 observations in each segment, due and remembered each second; the agent 2 s late."""
    fed: list[Fed] = []
    for i in range(-20, 10):
        at_us = i * 1_000_000
        fed += [
            *(observed(i * 100 + n, at_us - 10_000 * n, at_us + 30) for n in range(100)),
            closed("A", i + 20, at_us, at_us, size=100),
            delta("it@A", i + 20, wall_us=at_us + 1_500_000),
            released("it@A", i + 20, at_us + 2_000_000),
        ]
    recent = folded(fed).recent
    assert recent.offered_segments_per_s == 1.0
    assert recent.offered_observations_per_s == 100.0
    assert recent.late_us == 30
    assert recent.achieved_segments_per_s == 1.0  # those due from -2 s to 7 s
    assert recent.achieved_observations_per_s == 100.0
    assert (recent.latencies, recent.p50_us, recent.p99_us) == (11, 2_000_000, 2_000_000)


def test_a_stamp_from_the_far_future_spoils_nothing() -> None:
    """An attached agent's clock may say anything. In a run with trajectories, what its delta says counts."""
    ends = [closed("A", i, i * 1_000_000, i * 1_000_000) for i in range(9)]
    late = [delta("it@A", i, wall_us=i * 1_000_000 + 7) for i in range(1, 9)]
    for said in (1_000_000_000_000_000, 11_000_000):  # in thirty years; in two seconds
        fed = [*ends, delta("it@A", 0, wall_us=said), *late]
        recent = folded(fed, anchors=1).recent
        assert (recent.latencies, recent.p50_us, recent.p99_us) == (8, 7, 7)
        assert recent.achieved_segments_per_s == 8 / 9


def test_a_stamp_that_is_no_time_is_none() -> None:
    event, _ = delta("it@A", 0)
    nonsense = (("read_us", b"soon"), ("began_us", b"9" * 5000), ("wall_us", b"-1"))
    state = folded([closed("A", 0, 0, 1), (event, nonsense)])
    assert [state.latency["it", stage].n for stage in STAGES] == [1, 0, 0, 0, 0, 0]


def event_of_nobody(lane: str) -> Fed:
    event = ResponseEvent(
        id="x", run="run", event_time_us=0, stream="A", lane=lane, trajectory="t", step=1, phase="R1"
    )
    return event, stamped(wall_us=NOW_US)


def test_what_attached_agents_write_makes_no_labels() -> None:
    nobody = ReadyEvent(id="ready/x", run="run", event_time_us=0, role="agent.nobody")
    fed = [
        *whole("A", 0, 0, 5, 10),
        event_of_nobody("nobody@A"),
        (nobody, stamped(wall_us=NOW_US)),
        delta("it@nowhere", 0, wall_us=5),
        delta("it@A", 7, wall_us=5),  # out of place
        delta("it@A", 0, wall_us=5),  # twice
    ]
    before, after = folded(fed[:3]), folded(fed)
    assert after.counts.keys() == before.counts.keys()
    for name in after.counts:
        assert after.counts[name].keys() == before.counts[name].keys()
    assert after.lanes == before.lanes
    assert after.latency == before.latency
    assert "agent.nobody" not in after.last_us


def test_tokens_by_what_they_were_used_for() -> None:
    wrote, headers = delta("it@A", 0, wall_us=5)
    answer, _ = event_of_nobody("it@A")
    fed = [
        (replace(wrote, usage=Usage(prompt_tokens=3, completion_tokens=4)), headers),
        (
            replace(answer, usage=Usage(prompt_tokens=5), replayed=Replayed(usage=Usage(prompt_tokens=7))),
            headers,
        ),
    ]
    assert nonzero(folded(fed).counts)["tokens"] == {
        ("it", "ingest", "prompt"): 3,
        ("it", "ingest", "completion"): 4,
        ("it", "answer", "prompt"): 5,
        ("it", "replay", "prompt"): 7,
    }


def test_a_record_that_several_bury_is_one_dead_letter() -> None:
    letters = [
        DeadLetterEvent(
            id=f"dead/run.deltas/0/{offset}",
            run="run",
            event_time_us=0,
            topic="run.deltas",
            partition=0,
            offset=offset,
            reason="why",
            value=b"x",
        )
        for offset in (1, 1, 2)
    ]
    state = folded([(letter, stamped(wall_us=NOW_US)) for letter in letters])
    assert state.counts["dead"]["deltas",] == 2
    assert sum(state.counts["dead"].values()) == 2


def test_processes_lanes_given_up_and_who_wrote_last() -> None:
    def sample(number: int, cpu_us: int) -> Fed:
        event = ProcessSampleEvent(
            id=f"sample/load/{number}", run="run", event_time_us=0, process="load", sample=number
        )
        more = {"rss_bytes": 7, "children_cpu_us": 3 * number, "children_rss_bytes": 9, "loop_lag_us": 11}
        return event, stamped(wall_us=NOW_US + number * 1_000_000, cpu_us=cpu_us, **more)

    failed = LaneFailedEvent(
        id="it@A/failed", run="run", event_time_us=0, stream="A", lane="it@A", reason="silent"
    )
    samples = [sample(number, number * 250_000) for number in range(30)]
    state = folded([*samples, (failed, stamped(wall_us=NOW_US + 5))])
    use = state.processes["load"]
    assert (use.cpu_us, use.cpu, use.loop_lag_us, use.rss_bytes) == (29 * 250_000, 0.25, 11, 7)
    assert state.lanes[0].given_up
    assert state.last_us == {CONDUCTOR_ROLE: NOW_US + 5}


def test_what_can_be_foreseen_stands_at_zero(runs: list[Ran], probes: Ran) -> None:
    branch: RunStartedEvent = runs[0].started
    state = Gauges(branch).state(NOW_US)
    assert state.counts["verdicts"]["null", "fur", "unjudged"] == 0
    assert len(state.counts["verdicts"]) == 2 * 4 * 3
    assert state.counts["dead"]["responses",] == 0
    of_probes = Gauges(probes.started).state(NOW_US).counts["verdicts"]
    assert {metric for _, metric, _ in of_probes} == {"mcq_accuracy", "mcq_accuracy_offline"}
    assert set(of_probes.values()) == {0}
