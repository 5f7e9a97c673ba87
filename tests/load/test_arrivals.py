from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.arrivals import Arrivals, Load, Offered, offer
from producers.datasets import read_dataset
from producers.lifelog import Lifelog, RawObservation, SegmentSpan
from producers.timeline import timeline
from simulator.errors import ConfigError
from simulator.events import ObservationEvent, SegmentClosedEvent

DATA = read_dataset(
    "synthetic:wearers=2,days=2,segments_per_day=3,observations_per_segment=4,anchors_per_day=0"
).lifelogs

loads = st.builds(
    Load,
    wearers=st.integers(1, 7),
    duration_s=st.floats(1, 20),
    arrivals=st.sampled_from(["regular", "poisson"]),
    rate=st.floats(600, 5000),
    seed=st.integers(0, 3),
)


def ends_s(offered: Offered) -> list[float]:
    """When the segments of all lanes end, in real seconds after the load began."""
    begin_us = min(log.segments[0].start_time_us for log in offered.lifelogs.values())
    ends_us = [span.end_time_us for log in offered.lifelogs.values() for span in log.segments]
    return sorted((end_us - begin_us) / 1e6 / offered.rate for end_us in ends_us)


@settings(deadline=None, max_examples=40)
@given(loads)
def test_a_load_is_a_stream_as_any_other(load: Load) -> None:
    """In order, gapless, every observation in its segment, nothing after the end, and the same each time."""
    offered = offer(DATA, load)
    assert offered == offer(DATA, load)
    assert len(offered.lifelogs) <= (load.wearers or 0)
    for lifelog in offered.lifelogs.values():
        at = 0
        for span in lifelog.segments:
            assert span.first_seq == at <= span.last_seq
            at = span.last_seq + 1
            for raw in lifelog.observations[span.first_seq : at]:
                assert span.start_time_us <= raw.event_time_us < span.end_time_us
        assert at == len(lifelog.observations)
        for before, now in itertools.pairwise(lifelog.segments):
            assert before.end_time_us <= now.start_time_us
            assert (before.day, before.segment_id) != (now.day, now.segment_id)
        texts = [raw.text for raw in DATA[lifelog.stream.partition(".")[0]].observations]
        assert {raw.text for raw in lifelog.observations} <= set(texts)
    assert ends_s(offered)[-1] <= load.duration_s + 1e-3
    events = list(timeline(list(offered.lifelogs.values()), "run"))
    times_us = [event.event_time_us for event in events]
    assert times_us == sorted(times_us)
    assert sum(isinstance(event, ObservationEvent) for event in events) == offered.observations
    assert sum(isinstance(event, SegmentClosedEvent) for event in events) == len(ends_s(offered))


def test_regular_segments_of_all_lanes_end_evenly() -> None:
    offered = offer(DATA, Load(wearers=3, duration_s=10, rate=300))
    gaps_s = [now - before for before, now in itertools.pairwise(ends_s(offered))]
    assert gaps_s == pytest.approx([1 / 3] * len(gaps_s), abs=1e-5)
    assert list(offered.lifelogs) == [*DATA, f"{next(iter(DATA))}.2"]


def uneven(stream: str, sizes: list[int]) -> Lifelog:
    observations: list[RawObservation] = []
    spans: list[SegmentSpan] = []
    for i, size in enumerate(sizes):
        spans.append(
            SegmentSpan("DAY1", i, i * 100, (i + 1) * 100, len(observations), len(observations) + size - 1)
        )
        observations += [RawObservation(i * 100 + k, "dialog", "said", "DAY1") for k in range(size)]
    return Lifelog(stream, observations, spans)


@pytest.mark.parametrize("arrivals", ["regular", "poisson"])
def test_an_observation_rate_is_that_of_all_lanes_however_long_their_segments_are(arrivals: Arrivals) -> None:
    data = {"A": uneven("A", [1, 5, 30]), "B": uneven("B", [2, 2])}
    load = Load(wearers=4, duration_s=2000, observations_per_second=20, arrivals=arrivals)
    offered = offer(data, load)
    for lifelog in offered.lifelogs.values():
        within = 0.02 if arrivals == "regular" else 0.15
        assert len(lifelog.observations) / load.duration_s == pytest.approx(5, rel=within)


def test_lanes_of_one_stream_do_not_read_the_same_text_at_once() -> None:
    offered = offer({"A": uneven("A", [1, 2, 3, 4])}, Load(wearers=4, duration_s=20, rate=300))
    first_sizes = [lifelog.segments[0].last_seq + 1 for lifelog in offered.lifelogs.values()]
    assert first_sizes == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (Load(wearers=0, duration_s=1, rate=1), "wearers is 0"),
        (Load(wearers=1, duration_s=1), "either --rate or --observations-per-second"),
        (Load(wearers=1, duration_s=1, rate=1, observations_per_second=1), "either --rate or"),
        (Load(wearers=1, duration_s=1, rate=float("inf")), "rate is inf"),
        (
            Load(wearers=1, duration_s=1, observations_per_second=float("nan")),
            "observations_per_second is nan",
        ),
        (Load(wearers=1, duration_s=1, rate=10), "one takes 30 s at this rate"),
        (Load(wearers=9, duration_s=1e6, rate=6000), "fit in memory"),
    ],
)
def test_what_can_not_be_offered_is_refused_with_what_to_do(load: Load, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        offer(DATA, load)


def test_lanes_need_names_of_their_own_and_data() -> None:
    with pytest.raises(ConfigError, match=r"A\.2"):
        offer({"A": uneven("A", [1]), "A.2": uneven("A.2", [1])}, Load(wearers=4, duration_s=9, rate=300))
    with pytest.raises(ConfigError, match="no segment to offer"):
        offer({"A": uneven("A", [])}, Load(duration_s=9, rate=300))
