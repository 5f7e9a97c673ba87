"""The timeline: numbering, order and ranges of the events of a replay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from producers.lifelog import DAY1_US, DAY_US, SEGMENT_US, Lifelog, RawObservation, SegmentSpan
from producers.timeline import Part, Upcoming, stretches, timeline
from simulator.events import Event, ObservationEvent, SegmentClosedEvent, StreamEndedEvent, decode, encode


def lifelog(stream: str, windows: list[tuple[int, list[int]]]) -> Lifelog:
    """Segments from (window number since DAY1, offsets of its observations in seconds)."""
    observations: list[RawObservation] = []
    segments: list[SegmentSpan] = []
    for window, offsets_s in windows:
        start_us = DAY1_US + window * SEGMENT_US
        day = f"DAY{1 + window * SEGMENT_US // DAY_US}"
        first = len(observations)
        observations += [
            RawObservation(
                start_us + s * 1_000_000, "dialog", f"{stream} {window} {s}", day, i, start_us + s + 1
            )
            for i, s in enumerate(sorted(offsets_s))
        ]
        segments.append(
            SegmentSpan(day, window, start_us, start_us + SEGMENT_US, first, len(observations) - 1)
        )
    return Lifelog(stream, observations, segments)


windows = st.dictionaries(
    st.integers(0, 3 * 288 - 1), st.lists(st.integers(0, 299), min_size=1, max_size=5), max_size=8
).map(lambda chosen: sorted(chosen.items()))
two_streams = st.tuples(windows, windows).map(
    lambda pair: [lifelog(name, w) for name, w in zip(("A", "B"), pair, strict=True)]
)
bounds = st.one_of(st.none(), st.integers(0, 3 * 288).map(lambda w: DAY1_US + w * SEGMENT_US))


def of_stream(events: list[Event], stream: str) -> list[Event]:
    return [event for event in events if event.stream == stream]


def test_one_stream_in_full() -> None:
    log = lifelog("A", [(0, [1, 2]), (2, [0])])
    events = list(timeline([log], "r"))
    assert [event.id for event in events] == [
        "A/obs/0",
        "A/obs/1",
        "A/segment/0",
        "A/obs/2",
        "A/segment/1",
        "A/ended",
    ]
    first, closed, ended = events[0], events[2], events[5]
    assert first == ObservationEvent(
        id="A/obs/0",
        run="r",
        event_time_us=DAY1_US + 1_000_000,
        stream="A",
        seq=0,
        source="dialog",
        text="A 0 1",
        day="DAY1",
        stream_index=0,
        end_time_us=DAY1_US + 2,
    )
    assert closed == SegmentClosedEvent(
        id="A/segment/0",
        run="r",
        event_time_us=DAY1_US + SEGMENT_US,
        stream="A",
        as_of=0,
        causes=("A/obs/1",),
        segment=0,
        day="DAY1",
        segment_id=0,
        start_time_us=DAY1_US,
        first_seq=0,
        last_seq=1,
    )
    assert ended == StreamEndedEvent(
        id="A/ended",
        run="r",
        event_time_us=DAY1_US + 3 * SEGMENT_US,
        stream="A",
        as_of=1,
        causes=("A/segment/1",),
        observations=3,
        segments=2,
    )


def test_a_segment_that_ends_when_the_next_begins_is_closed_first() -> None:
    events = list(timeline([lifelog("A", [(0, [299]), (1, [0])])], "r"))
    assert [event.id for event in events[:3]] == ["A/obs/0", "A/segment/0", "A/obs/1"]
    assert events[1].event_time_us == events[2].event_time_us


def test_start_and_end_keep_whole_segments_and_their_numbers() -> None:
    log = lifelog("A", [(0, [1]), (1, [1, 2]), (2, [1]), (3, [1])])
    events = list(timeline([log], "r", start_us=DAY1_US + 1, end_us=DAY1_US + 4 * SEGMENT_US - 1))
    assert [event.id for event in events] == [
        "A/obs/1",
        "A/obs/2",
        "A/segment/1",
        "A/obs/3",
        "A/segment/2",
        "A/ended",
    ]
    ended = events[-1]
    assert isinstance(ended, StreamEndedEvent)
    assert (ended.observations, ended.segments) == (3, 2)


def test_a_stream_without_a_segment_in_range_still_ends() -> None:
    logs = [lifelog("A", [(0, [1])]), lifelog("B", [(5, [1])])]
    events = list(timeline(logs, "r", start_us=DAY1_US + SEGMENT_US))
    assert [event.id for event in events] == ["B/obs/0", "A/ended", "B/segment/0", "B/ended"]
    ended = next(event for event in events if event.id == "A/ended")
    assert ended == StreamEndedEvent(
        id="A/ended",
        run="r",
        event_time_us=DAY1_US + 6 * SEGMENT_US,
        stream="A",
        as_of=-1,
        observations=0,
        segments=0,
    )


def test_loop_goes_on_counting_on_later_days() -> None:
    logs = [lifelog("A", [(0, [1]), (288, [1])]), lifelog("B", [(288, [1])])]  # DAY1 and DAY2
    events = list(timeline(logs, "r", loop=2))
    observations = [event for event in of_stream(events, "A") if isinstance(event, ObservationEvent)]
    assert [o.id for o in observations] == ["A/obs/0", "A/obs/1", "A/obs/2", "A/obs/3"]
    assert [o.day for o in observations] == ["DAY1", "DAY2", "DAY3", "DAY4"]
    assert observations[2].event_time_us - observations[0].event_time_us == 2 * DAY_US
    of_b = [event for event in of_stream(events, "B") if isinstance(event, ObservationEvent)]
    assert [o.event_time_us - of_b[0].event_time_us for o in of_b] == [0, 2 * DAY_US]
    ended = of_stream(events, "A")[-1]
    assert isinstance(ended, StreamEndedEvent)
    assert (ended.observations, ended.segments, ended.as_of) == (4, 4, 3)


def test_a_day_that_is_full_to_midnight_is_one_day() -> None:
    events = list(timeline([lifelog("A", [(0, [0]), (287, [0])])], "r", loop=2))
    days = [event.day for event in events if isinstance(event, SegmentClosedEvent)]
    assert days == ["DAY1", "DAY1", "DAY2", "DAY2"]


def test_loop_names_other_days_by_what_was_added() -> None:
    span = SegmentSpan("2025-12-15", 0, DAY1_US, DAY1_US + SEGMENT_US, 0, 0)
    log = Lifelog("A", [RawObservation(DAY1_US, "dialog", "x", "2025-12-15")], [span])
    closed = [event for event in timeline([log], "r", loop=2) if isinstance(event, SegmentClosedEvent)]
    assert [event.day for event in closed] == ["2025-12-15", "2025-12-15+1"]


@given(two_streams, st.integers(1, 3), bounds, bounds)
def test_order_numbers_and_ids_hold_for_any_lifelogs(
    logs: list[Lifelog], loop: int, start_us: int | None, end_us: int | None
) -> None:
    events = list(timeline(logs, "r", start_us=start_us, end_us=end_us, loop=loop))
    times = [event.event_time_us for event in events]
    assert times == sorted(times)
    assert len({event.id for event in events}) == len(events)
    for log in logs:
        part = Part.of(log, start_us, end_us)
        own = of_stream(events, log.stream)
        observations = [event for event in own if isinstance(event, ObservationEvent)]
        closed = [event for event in own if isinstance(event, SegmentClosedEvent)]
        assert isinstance(own[-1], StreamEndedEvent)
        assert (own[-1].observations, own[-1].segments) == (len(observations), len(closed))
        base = part.seqs.start
        assert [o.seq for o in observations] == list(range(base, base + loop * len(part.seqs)))
        assert [c.segment for c in closed] == list(
            range(part.segments.start, part.segments.start + loop * len(part.segments))
        )
        texts = [log.observations[seq].text for seq in part.seqs]
        assert [o.text for o in observations] == texts * loop
        for event in closed:
            place = own.index(event)
            before = {e.seq for e in own[:place] if isinstance(e, ObservationEvent)}
            after = {e.seq for e in own[place:] if isinstance(e, ObservationEvent)}
            assert event.first_seq in before
            assert max(before) == event.last_seq
            assert not after or min(after) == event.last_seq + 1
            assert event.causes == (f"{log.stream}/obs/{event.last_seq}",)


@given(two_streams)
def test_the_events_survive_the_wire_and_are_the_same_each_time(logs: list[Lifelog]) -> None:
    events = list(timeline(logs, "r"))
    assert [decode(encode(event)) for event in events] == events == list(timeline(logs, "r"))


@given(two_streams, st.integers(1, 2))
def test_stretches_are_of_one_stream_and_end_where_a_segment_does(logs: list[Lifelog], loop: int) -> None:
    events: list[Event] = []
    for stretch in stretches(logs, "r", loop=loop):
        assert len({event.stream for event in stretch}) == 1
        assert all(isinstance(event, ObservationEvent) for event in stretch[:-1])
        events += stretch
    # a stable sort by time of one stream after the other is the merge
    alone = [event for log in logs for event in events if event.stream == log.stream]
    assert events == sorted(alone, key=lambda event: event.event_time_us)


@given(two_streams, st.lists(st.tuples(st.integers(0, 1100), st.integers(1, 4)), max_size=30))
def test_takes_what_is_due_and_no_more_than_asked_for(
    logs: list[Lifelog], steps: list[tuple[int, int]]
) -> None:
    events = list(timeline(logs, "r"))
    upcoming = Upcoming(stretches(logs, "r"))
    taken: list[Event] = []
    for window, most in [*steps, *[(10_000, 3)] * len(events)]:
        horizon_us = DAY1_US + window * SEGMENT_US
        some = upcoming.take(horizon_us, most)
        taken += some
        assert len(some) <= most
        assert all(event.event_time_us <= horizon_us for event in some)
        assert taken == events[: len(taken)]
        assert upcoming.head == (events[len(taken)] if len(taken) < len(events) else None)
        if not some and upcoming.head is not None:
            assert upcoming.head.event_time_us > horizon_us
    assert taken == events
