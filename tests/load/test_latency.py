"""The fold, on logs made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.latency import LatencyFold, LatencyReport
from consumers.process_use import UsePoint
from simulator.events import (
    AnyEvent,
    DeltaEvent,
    ObservationEvent,
    ProcessSampleEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
)
from simulator.log.protocol import Headers

Fed = tuple[AnyEvent, Headers]
NOW_US = 1_700_000_000_000_000
SEGMENT_US = 300_000_000


def started(*streams: str) -> RunStartedEvent:
    return RunStartedEvent(
        id="run/started",
        run="run",
        event_time_us=0,
        identity={},
        streams=streams,
        segments=dict.fromkeys(streams, 1),
        systems=("it",),
        privileged=(),
        anchors=0,
        partitions=1,
        isolation="shared",
    )


def stamped(**times_us: int) -> Headers:
    return tuple((name, str(value).encode()) for name, value in times_us.items())


def closed(stream: str, segment: int, due_us: int, published_us: int, size: int = 1) -> Fed:
    event = SegmentClosedEvent(
        id=f"{stream}/segment/{segment}",
        run="run",
        event_time_us=(segment + 1) * SEGMENT_US,
        stream=stream,
        segment=segment,
        day="DAY1",
        segment_id=segment,
        start_time_us=segment * SEGMENT_US,
        first_seq=segment * size,
        last_seq=(segment + 1) * size - 1,
    )
    return event, stamped(due_us=NOW_US + due_us, wall_us=NOW_US + published_us)


def delta(lane: str, segment: int, error: str | None = None, **times_us: int) -> Fed:
    event = DeltaEvent(
        id=f"{lane}/delta/{segment}",
        run="run",
        event_time_us=0,
        stream=lane.partition("@")[2],
        lane=lane,
        segment=segment,
        error=error,
    )
    return event, stamped(**{name: NOW_US + time_us for name, time_us in times_us.items()})


def released(lane: str, segment: int, read_us: int) -> Fed:
    stream = lane.partition("@")[2]
    event = SegmentReleasedEvent(
        id=f"{lane}/released/{segment}",
        run="run",
        event_time_us=0,
        stream=stream,
        lane=lane,
        segment=segment,
    )
    return event, stamped(read_us=NOW_US + read_us)


def whole(stream: str, segment: int, due_us: int, begun_us: int, ended_us: int) -> list[Fed]:
    """All of one segment, each stage 1 µs after what it waits for."""
    lane = f"it@{stream}"
    times_us = {
        "read_us": due_us + 2,
        "began_us": begun_us,
        "ended_us": ended_us,
        "wall_us": ended_us + 1,
    }
    return [
        closed(stream, segment, due_us, due_us + 1),
        delta(lane, segment, **times_us),
        released(lane, segment, ended_us + 2),
    ]


def folded(fed: Iterable[Fed], *streams: str) -> LatencyReport:
    fold = LatencyFold(started(*(streams or ("A",))))
    for event, headers in fed:
        fold.feed(event, headers)
    return fold.report()


def stalled_minute() -> list[Fed]:
    """100 segments/s for a minute, each ingested in 5 ms; but that at 10 s takes 10 s."""
    fed: list[Fed] = []
    free_us = 0
    for segment in range(6000):
        due_us = segment * 10_000
        begun_us = max(due_us + 3, free_us)
        free_us = begun_us + (10_000_000 if segment == 1000 else 5_000)
        fed += whole("A", segment, due_us, begun_us, free_us)
    return fed


def test_a_stall_of_10_s_in_a_minute_shows_as_worked_out_by_hand() -> None:
    """From the stall on, segment i is due at 10 i ms and ends at 10 s + 5 i ms: it took 10 s - 5 i ms, until at
    i = 2000 all is caught up. Of the 6000, 60 (one in a hundred) took more than 9.7 s, 600 (one in ten) more than
    7 s."""
    report = folded(stalled_minute())
    due, sent = report.stages["remembered"], report.stages["ingest"]
    assert due is not None
    assert sent is not None
    assert report.remembered == due.n == 6000
    from_due = (due.p50_us, due.p90_us, due.p99_us, due.max_us)
    assert from_due == pytest.approx((5_000, 7_000_000, 9_700_000, 10_000_000), rel=0.02)
    # a client that waits for each answer would have seen one slow call, and nothing else
    from_call = (sent.p50_us, sent.p90_us, sent.p99_us, sent.max_us)
    assert from_call == pytest.approx((5_000, 5_000, 5_000, 10_000_000), rel=0.02)
    assert sent.p999_us == pytest.approx(5_000, rel=0.02)
    assert report.highest.segments == pytest.approx(1000, abs=2)
    assert report.highest.event_time_s == pytest.approx(300_000, rel=0.01)
    assert [round(point.segments, -1) for point in report.lag if point.at_s in (5, 15, 20, 25, 40)] == [
        0,
        500,
        1000,
        500,
        0,
    ]
    assert report.offered_segments_per_s == pytest.approx(100)
    assert report.achieved_segments_per_s == pytest.approx(100, rel=0.001)


lives = st.lists(
    st.tuples(st.integers(0, 50_000), st.integers(0, 50_000), st.integers(0, 9)), min_size=1, max_size=30
)


@settings(deadline=None, max_examples=30)
@given(lives, st.integers(0, 1000))
def test_the_order_in_which_topics_are_read_changes_nothing(
    life: list[tuple[int, int, int]], seed: int
) -> None:
    fed: list[Fed] = []
    at_us = {"A": 0, "B": 0}
    numbers = {"A": 0, "B": 0}
    for gap_us, service_us, kind in life:
        stream = "AB"[kind % 2]
        at_us[stream] += gap_us
        mine = whole(
            stream, numbers[stream], at_us[stream], at_us[stream] + 3, at_us[stream] + 3 + service_us
        )
        fed += mine[: {8: 1, 9: 2}.get(kind, 3)]  # without its delta, without a release
        numbers[stream] += 1
    expected = folded(fed, "A", "B")
    Random(seed).shuffle(fed)
    assert folded(fed, "A", "B") == expected
    assert expected.segments == len(life) == expected.remembered + expected.unfinished
    assert expected.unfinished == sum(kind == 8 for _, _, kind in life)


@given(st.lists(st.tuples(st.integers(1, 90_000), st.integers(1, 50)), min_size=2, max_size=12))
def test_what_keeps_up_achieves_what_is_offered_however_uneven_its_segments_are(
    life: list[tuple[int, int]],
) -> None:
    fed: list[Fed] = []
    due_us = 0
    for number, (gap_us, size) in enumerate(life):
        due_us += gap_us
        _, *rest = whole("A", number, due_us, due_us + 3, due_us + 700)
        fed += [closed("A", number, due_us, due_us + 1, size), *rest]
    report = folded(fed)
    observations, took_s = sum(size for _, size in life[1:]), sum(gap_us for gap_us, _ in life[1:]) / 1e6
    assert report.offered_observations_per_s == pytest.approx(observations / took_s)
    assert report.offered_segments_per_s == pytest.approx((len(life) - 1) / took_s)
    achieved = (report.achieved_observations_per_s, report.achieved_segments_per_s)
    if len(life) < 5:  # the time between two hangs on how late each of them was
        assert achieved == (None, None)
    else:
        assert achieved == (report.offered_observations_per_s, report.offered_segments_per_s)


def test_each_stage_runs_from_due() -> None:
    report = folded(whole("A", 0, 0, 700, 900))
    found = {name: numbers.max_us for name, numbers in report.stages.items() if numbers is not None}
    assert found == {
        "published": 1,
        "read": 2,
        "begun": 700,
        "ended": 900,
        "written": 901,
        "remembered": 902,
        "ingest": 200,
        "from_send": 901,
    }


def test_a_release_shows_that_all_before_it_had_been_read() -> None:
    lane = "it@A"
    fed = [
        *(closed("A", i, i * 10, i * 10) for i in range(3)),
        *(delta(lane, i, wall_us=50 + i) for i in range(3)),
        released(lane, 1, 60),
    ]
    report = folded(fed)
    remembered, written = report.stages["remembered"], report.stages["written"]
    assert remembered is not None
    assert written is not None
    assert (remembered.n, remembered.max_us) == (2, 60)
    assert written.n == 3
    assert report.stages["begun"] is None  # an attached agent that does not say


def test_failed_and_unfinished_segments_have_no_latency_and_are_counted() -> None:
    fed = [
        *whole("A", 0, 0, 5, 6),
        closed("A", 1, 10, 11),
        delta("it@A", 1, error="no room", began_us=20, ended_us=9_000_000, wall_us=9_000_001),
        closed("A", 2, 20, 21, size=1),
    ]
    report = folded(fed)
    assert (report.segments, report.remembered, report.failed, report.unfinished) == (3, 1, 1, 1)
    assert [report.stages[name].n for name in ("remembered", "ingest") if report.stages[name]] == [1, 1]  # type: ignore[union-attr]  # asked for
    assert report.lag[-1].segments == 1


def test_what_was_due_at_no_time_has_no_latency() -> None:
    event, _ = closed("A", 0, 0, 0)
    report = folded([(event, stamped(wall_us=NOW_US)), delta("it@A", 0, wall_us=5)])
    assert (report.segments, report.remembered, report.lag) == (0, 0, ())
    assert report.offered_segments_per_s is None


def test_pacing_and_what_the_process_used() -> None:
    def observed(seq: int) -> Fed:
        event = ObservationEvent(
            id=f"A/obs/{seq}", run="run", event_time_us=seq, stream="A", seq=seq, source="dialog", text="said"
        )
        return event, stamped(due_us=NOW_US + seq * 1000, wall_us=NOW_US + seq * 1000 + 70)

    def sample(number: int, lag_us: int) -> Fed:
        event = ProcessSampleEvent(
            id=f"sample/load/{number}", run="run", event_time_us=0, process="load", sample=number
        )
        used = {"cpu_us": 5_000_000 + number * 250_000, "rss_bytes": 1000 - number, "loop_lag_us": lag_us}
        children = {"children_cpu_us": number * 500_000, "children_rss_bytes": 7}
        return event, stamped(wall_us=NOW_US + number * 1_000_000, **used, **children)

    report = folded([sample(2, 30), *map(observed, range(11)), sample(0, 10), sample(1, 90)])
    assert report.pacing is not None
    assert (report.pacing.n, report.pacing.p50_us, report.pacing.max_us) == (11, 70, 70)
    assert report.observations == 11
    (use,) = report.processes
    assert (use.samples, use.cpu, use.children_cpu) == (3, 0.25, 0.5)
    assert (use.rss_max_bytes, use.loop_lag_p50_us, use.loop_lag_max_us) == (1000, 30, 90)
    assert use.points == ()  # nothing was due from which on to count the time

    segment = whole("A", 0, 500_000, 500_010, 1_600_000)
    (use,) = folded([*segment, sample(2, 30), sample(0, 10), sample(1, 90)]).processes
    assert use.points == (
        UsePoint(at_s=0.5, cpu=0.75, rss_bytes=1006, loop_lag_us=90),
        UsePoint(at_s=1.5, cpu=0.75, rss_bytes=1005, loop_lag_us=30),
    )


@pytest.mark.parametrize(("segments", "step_s"), [(40, 0.1), (2000, 0.2), (20_000, 2.0)])
def test_lag_is_told_at_some_hundred_moments_and_on_average_between(segments: int, step_s: float) -> None:
    """A segment each 50 ms, each remembered 10 ms after it was due: 0.2 on average (Little's law)."""
    fed: list[Fed] = []
    for number in range(segments):
        due_us = number * 50_000
        fed += whole("A", number, due_us, due_us + 3, due_us + 9_998)
    lag = folded(fed).lag
    assert len(lag) <= 601
    assert [point.at_s for point in lag[1:4]] == pytest.approx([step_s, 2 * step_s, 3 * step_s])
    assert {round(point.mean_segments, 3) for point in lag[1:-1]} == {0.2}
    last = lag[-1]
    assert (last.due_observations, last.remembered_observations) == (segments, segments)
    assert (last.segments, last.observations) == (0, 0)
