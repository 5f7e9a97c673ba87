"""What a system kept and how fast it was, per hour of stream, on events worked out by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from consumers.scoreboard import Scoreboard
from consumers.scores import Pace
from simulator.events import DeltaEvent, Event, OutlineEvent, ResponseEvent, RunStartedEvent, SessionSpan
from simulator.log.protocol import Headers
from tests.protocols.probes import probe_of

S = 1_000_000


def outline(stream: str, ends_s: list[int], *sessions: tuple[int, int, int, int]) -> OutlineEvent:
    """Sessions: first and last segment, start and end in seconds."""
    return OutlineEvent(
        id=f"{stream}/outline",
        run="run",
        stream=stream,
        event_time_us=ends_s[-1] * S,
        segment_ends_us=tuple(end * S for end in ends_s),
        sessions=tuple(
            SessionSpan(
                name=f"s{first}",
                first_segment=first,
                last_segment=last,
                start_time_us=start * S,
                end_time_us=end * S,
            )
            for first, last, start, end in sessions
        ),
    )


def delta(
    stream: str, segment: int, stored: int, took_s: float, error: str | None = None
) -> tuple[Event, Headers]:
    event = DeltaEvent(
        id=f"x@{stream}/delta/{segment}",
        run="run",
        stream=stream,
        lane=f"x@{stream}",
        event_time_us=0,
        segment=segment,
        stored_bytes=stored,
        error=error,
    )
    return event, took(took_s)


def took(seconds: float, first_token_s: float | None = None) -> Headers:
    walls = {"began_us": 5 * S, "ended_us": round((5 + seconds) * S)}
    if first_token_s is not None:
        walls["first_token_us"] = round((5 + first_token_s) * S)
    return tuple((name, str(value).encode()) for name, value in walls.items())


def answer(stream: str, seconds: float, first_token_s: float | None = None) -> tuple[Event, Headers]:
    event = ResponseEvent(
        id=f"x@{stream}/s0/p0/R1",
        run="run",
        stream=stream,
        lane=f"x@{stream}",
        event_time_us=0,
        trajectory=f"x@{stream}/s0/p0",
        step=1,
        phase="R1",
    )
    return event, took(seconds, first_token_s)


BEGUN = RunStartedEvent(
    id="run/started",
    run="run",
    event_time_us=0,
    identity={},
    streams=("A", "B"),
    segments={"A": 3, "B": 1},
    systems=("x",),
    privileged=(),
    anchors=2,
    partitions=1,
    isolation="branch",
    protocol="apm",
)
WHOLE: list[tuple[Event, Headers]] = [
    (BEGUN, ()),
    # two sessions of 200 s and 100 s, with 200 s between them that are no stream
    (outline("A", [100, 200, 500], (0, 1, 0, 200), (2, 2, 400, 500)), ()),
    (outline("B", [600], (0, 0, 0, 600)), ()),
    *((probe_of(stream, 0, metrics=("mcq_accuracy",)), ()) for stream in "AB"),
    delta("A", 0, 1000, 2.0),
    delta("A", 1, 500, 1.0),
    delta("A", 2, -300, 1.0),
    delta("B", 0, 2000, 4.0),
    answer("A", 0.75, 0.25),
    answer("B", 0.25, 0.75),
]


def pace_of(events: list[tuple[Event, Headers]]) -> Pace:
    board = Scoreboard()
    for event, headers in events:
        board.feed(event, headers)
    scores = board.scores()
    assert scores is not None
    (pace,) = scores.pace
    return pace


def test_peak_and_real_time_factor_by_hand() -> None:
    pace = pace_of(WHOLE)
    # A kept 1,500 B when its first session ended and 1,200 B at the end, in 300 s: 18,000 B an hour; B 12,000
    assert pace.peak_bytes_per_hour == pytest.approx(18_000)
    # 8 s of ingests and 1 s of answers in 900 s of sessions
    assert pace.replay_real_time_factor == pytest.approx(0.01)
    assert pace.first_token_seconds is not None
    assert (pace.first_token_seconds.n, pace.first_token_seconds.mean) == (2, pytest.approx(0.5))
    assert pace_of(WHOLE[:1] + WHOLE[:0:-1]) == pace


def test_a_failed_ingest_keeps_nothing_and_took_its_time() -> None:
    failed = [delta("A", 1, 500, 1.0, "disk full") if e.id == "x@A/delta/1" else (e, h) for e, h in WHOLE]
    pace = pace_of(failed)
    assert pace.peak_bytes_per_hour == pytest.approx(12_000)  # of A and of B
    assert pace.replay_real_time_factor == pytest.approx(0.01)


def test_a_stream_that_is_not_whole_has_no_peak_yet() -> None:
    lacking = [(e, h) for e, h in WHOLE if e.id != "x@A/delta/2"]
    assert pace_of(lacking).peak_bytes_per_hour == pytest.approx(12_000)
    nothing = pace_of([(e, h) for e, h in WHOLE if not isinstance(e, DeltaEvent)])
    assert nothing.peak_bytes_per_hour is None
    assert nothing.replay_real_time_factor == pytest.approx(1 / 900)


def test_what_lies_in_no_session_is_no_part_of_it() -> None:
    """Of A only the first two segments are a whole session; and somebody wrote of a segment that is not there."""
    short = [
        (outline("A", [100, 200, 500], (0, 1, 0, 200)), ()) if e.id == "A/outline" else (e, h)
        for e, h in WHOLE
    ]
    pace = pace_of([*short, delta("A", 10**9, 10**9, 1000.0)])
    assert pace.peak_bytes_per_hour == pytest.approx(1500 * 18)
    assert pace.replay_real_time_factor == pytest.approx((2 + 1 + 4 + 1) / 800)


def test_without_sessions_there_is_no_pace() -> None:
    board = Scoreboard()
    for event, headers in WHOLE:
        bare = replace(event, sessions=()) if isinstance(event, OutlineEvent) else event
        board.feed(bare, headers)
    scores = board.scores()
    assert scores is not None
    assert scores.pace == ()
