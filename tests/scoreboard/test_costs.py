"""What systems cost, by their events and the times that stand beside these."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from consumers.amounts import Amount
from consumers.scoreboard import Scoreboard
from simulator.events import DeltaEvent, Event, ResponseEvent, RunStartedEvent, Usage
from simulator.log.protocol import Headers
from simulator.protocols.streammembench import METRICS
from tests.protocols.scripted import Fate, anchor_of
from tests.scoreboard.helpers import ANCHORS, Plan, good, log_of, shown

Scored = tuple[Event, Headers]


def headers(began_us: int, ended_us: int) -> Headers:
    return (("kind", b"x"), ("began_us", str(began_us).encode()), ("ended_us", str(ended_us).encode()))


def test_costs_come_from_events_and_headers() -> None:
    plans = [
        good(),
        good("fail"),
        *[good()] * 2,
        Plan(Fate("delta", "pass"), dict.fromkeys(METRICS, "pass")),
        good(),
    ]
    anchors = [*ANCHORS[:5], anchor_of("A", 9)]
    board = Scoreboard()
    for event in log_of(["llm"], anchors, plans):
        given_headers: Headers = ()
        if isinstance(event, DeltaEvent):
            usage = Usage(prompt_tokens=100, completion_tokens=event.segment)
            event = replace(event, stored_bytes=1000 + event.segment, usage=usage)  # the one that is fed
            given_headers = headers(1_000_000, 3_000_000)
        elif isinstance(event, ResponseEvent):
            event = replace(event, usage=Usage(prompt_tokens=7))  # likewise
            given_headers = headers(500, 250_500) if event.phase == "R1" else headers(0, 9_000_000)
        board.feed(event, given_headers)
    scores = board.scores()
    assert scores is not None
    (cost,) = scores.costs
    assert cost.stored_bytes is not None
    assert cost.stored_bytes.total == 1000 + 1004 + 1009
    assert cost.ingest_seconds is not None
    assert (cost.ingest_seconds.n, cost.ingest_seconds.mean) == (3, 2.0)
    assert cost.answer_seconds is not None
    assert (cost.answer_seconds.n, cost.answer_seconds.mean) == (5, 0.25)
    assert cost.ingest_tokens is not None
    assert cost.ingest_tokens.total == 400 + 0 + 4 + 8 + 9  # the failed ingest was paid as well
    assert cost.trajectory_tokens is not None
    assert cost.trajectory_tokens.total == 7 * (2 * 5 + 1)


@pytest.mark.parametrize("odd", [(("began_us", b"x"), ("ended_us", b"1")), (("began_us", b"1"),), ()])
def test_times_that_an_agent_did_not_give_are_no_data(odd: Headers) -> None:
    board = Scoreboard()
    for event in log_of(["null"], ANCHORS[:1], [good()]):
        board.feed(event, odd)
    scores = board.scores()
    assert scores is not None
    assert scores.costs[0].ingest_seconds is None
    assert "–" in shown(scores)


def measured(event: Event, took_us: int, *, cached: bool = False, down: tuple[int, ...] = ()) -> Scored:
    """The event with what it took and cost. `down`: segments whose ingest and answers failed."""
    times = (*headers(0, took_us), *([("model_cached", b"1")] if cached else []))
    usage = Usage(prompt_tokens=100, calls=1)
    match event:
        case DeltaEvent():
            lost = {"error": "down", "records": (), "usage": Usage()} if event.segment in down else {}
            return replace(event, **{"stored_bytes": 10, "usage": usage, **lost}), times
        case ResponseEvent():
            lost = {"error": "down", "text": "", "usage": Usage()} if event.as_of in down else {}
            return replace(event, **{"usage": usage, **lost}), times
        case _:
            return event, ()


def board_of(events: Iterable[Scored]) -> Scoreboard:
    board = Scoreboard()
    for event, given in events:
        board.feed(event, given)
    return board


def test_what_a_retry_did_again_counts_once_and_what_came_out_the_same_keeps_its_times() -> None:
    anchors = [anchor_of("A", segment) for segment in range(4)]
    log = log_of(["llm"], anchors, [good()] * 4)
    board = board_of(measured(event, 2_000_000, down=(1,)) for event in log)
    began = log[0]
    assert isinstance(began, RunStartedEvent)
    only = tuple(f"llm@A/s{segment}/e0" for segment in (1, 2, 3))
    retry = [replace(began, only=only), *log[1:]]
    board.take_retry(board_of(measured(event, 1_000, cached=True, down=(3,)) for event in retry))
    once = board.scores()
    board.take_retry(board_of(measured(event, 4_000_000) for event in retry))
    twice = board.scores()
    undisturbed = board_of(measured(event, 2_000_000) for event in log).scores()
    assert once is not None
    assert twice is not None
    assert undisturbed is not None
    (cost,) = once.costs  # one of four was down at last, and another came from the cache
    assert cost.stored_bytes == Amount(n=3, mean=10.0, total=30.0)
    assert cost.ingest_seconds == cost.answer_seconds == Amount(n=3, mean=4.001 / 3, total=4.001)
    assert cost.ingest_tokens == Amount(n=4, mean=75.0, total=300.0)
    assert cost.trajectory_tokens == Amount(n=4, mean=150.0, total=600.0)
    assert [(spent.role, spent.operations, spent.cached) for spent in once.spending] == [
        ("ingest", 3, 1),
        ("answer", 6, 2),
    ]
    timed = Amount(n=4, mean=8.001 / 4, total=8.001)
    (cost,), (whole,) = twice.costs, undisturbed.costs
    assert cost == replace(whole, ingest_seconds=timed, answer_seconds=timed)
    assert [(spent.operations, spent.calls, spent.tokens, spent.cached) for spent in twice.spending] == [
        (spent.operations, spent.calls, spent.tokens, cached)
        for spent, cached in zip(undisturbed.spending, (1, 2), strict=True)
    ]
    assert [spent.seconds and spent.seconds.total for spent in twice.spending] == [8.0, 16.0]


def test_ingests_that_a_retry_only_repeats_are_not_counted() -> None:
    log = log_of(["llm"], [anchor_of("A", segment) for segment in range(4)], [good()] * 4)
    board = board_of(measured(event, 2_000_000) for event in log)
    before = board.scores()
    began = log[0]
    assert isinstance(began, RunStartedEvent)
    retry = [replace(began, only=("llm@A/s3/e0",)), *log[1:]]
    again = (
        replace(event, stored_bytes=99) if isinstance(event, DeltaEvent) else event  # as a random one's would
        for event in retry
    )
    board.take_retry(board_of((event, headers(0, 9_000_000)) for event in again))
    after = board.scores()
    assert before is not None
    assert after is not None
    assert after.costs[0].stored_bytes == before.costs[0].stored_bytes
    assert after.costs[0].ingest_seconds == before.costs[0].ingest_seconds
    assert after.costs[0].answer_seconds == Amount(n=4, mean=15 / 4, total=15.0)
    assert after.costs[0].trajectory_tokens == Amount(n=4, mean=150.0, total=600.0)


def test_segments_that_the_run_never_had_are_those_of_the_retry() -> None:
    """Of a lane that was given up, since its attached agent had gone."""
    log = log_of(["llm"], [anchor_of("A", segment) for segment in range(4)], [good()] * 4)
    began = log[0]
    assert isinstance(began, RunStartedEvent)
    retry = [replace(began, only=tuple(f"llm@A/s{segment}/e0" for segment in range(1, 4))), *log[1:]]
    board = board_of(
        measured(event, 2_000_000)
        for event in log
        if not (isinstance(event, DeltaEvent) and event.segment > 0)
    )
    board.take_retry(board_of(measured(event, 2_000_000) for event in retry))
    scores, undisturbed = board.scores(), board_of(measured(event, 2_000_000) for event in log).scores()
    assert scores is not None
    assert undisturbed is not None
    assert scores.costs == undisturbed.costs
    assert scores.spending == undisturbed.spending


def test_a_second_retry_stands_for_a_first_that_failed_earlier_than_the_run() -> None:
    log = log_of(["llm"], [anchor_of("A", segment) for segment in range(4)], [good()] * 4)
    began = log[0]
    assert isinstance(began, RunStartedEvent)
    retry = [replace(began, only=("llm@A/s2/e0", "llm@A/s3/e0")), *log[1:]]

    def lacking(event: Event, down: int, *, stored_bytes: int) -> Scored:
        event, times = measured(event, 2_000_000, down=(down,))
        if isinstance(event, DeltaEvent) and event.error is None and event.segment > down:
            event = replace(event, stored_bytes=stored_bytes)
        return event, times

    board = board_of(lacking(event, 2, stored_bytes=7) for event in log)
    board.take_retry(board_of(lacking(event, 1, stored_bytes=3) for event in retry))
    first = board.scores()
    board.take_retry(board_of(measured(event, 2_000_000) for event in retry))
    second = board.scores()
    assert first is not None
    assert second is not None
    assert first.costs[0].stored_bytes == Amount(n=4, mean=6.5, total=26.0)
    assert second.costs[0].stored_bytes == Amount(n=4, mean=10.0, total=40.0)


def test_a_retry_of_which_nothing_asked_a_model_leaves_no_row_of_spending() -> None:
    log = log_of(["llm"], [anchor_of("A", segment) for segment in range(4)], [good()] * 4)
    began = log[0]
    assert isinstance(began, RunStartedEvent)
    board = board_of(measured(event, 2_000_000) for event in log)
    retry = [replace(began, only=tuple(f"llm@A/s{segment}/e0" for segment in range(4))), *log[1:]]
    board.take_retry(board_of((event, ()) for event in retry))
    scores = board.scores()
    assert scores is not None
    assert [(spent.role, spent.operations) for spent in scores.spending] == [("ingest", 4)]
