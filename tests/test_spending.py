"""What models took, and how far votes agreed: folds, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.metering import Meter, added, first_token_s, metered, spent
from adapters.model import ModelUsage
from consumers.agreement import Agreement, agreements
from consumers.amounts import Amount
from consumers.scores import Mark
from consumers.spending import Spending, SpendingFold
from judges.panel import majority
from simulator.events import (
    CommittedEvent,
    DeltaEvent,
    Event,
    ModelUse,
    Outcome,
    ResponseEvent,
    RunStartedEvent,
    Usage,
    VerdictEvent,
    Vote,
    decode,
    encode,
)

LANE: dict[str, Any] = {"run": "run", "stream": "S", "event_time_us": 0, "lane": "sys@S"}
STARTED = RunStartedEvent(
    id="run/started",
    run="run",
    event_time_us=0,
    identity={},
    streams=("S",),
    segments={"S": 2},
    systems=("sys", "other"),
    privileged=(),
    anchors=4,
    partitions=1,
    isolation="branch",
    models={
        "answers": ModelUse(model="small", prompt_price=1.0, completion_price=2.0),
        "memory.sys": ModelUse(model="tiny", prompt_price=0.1, completion_price=0.1),
        "judge.big": ModelUse(model="big", prompt_price=10.0, completion_price=30.0),
    },
)


def usage(prompt: int, completion: int, calls: int = 1) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=completion, calls=calls)


def response(name: str, took: Usage) -> ResponseEvent:
    return ResponseEvent(id=name, trajectory=f"sys@S/{name}", step=1, phase="R1", usage=took, **LANE)


def verdict(name: str, *votes: Vote) -> VerdictEvent:
    return VerdictEvent(
        id=name,
        trajectory=f"sys@S/{name}",
        anchor="a",
        metric="fidelity",
        outcome="pass",
        votes=votes,
        **LANE,
    )


def headers(took_us: int, cached: int = 0) -> tuple[tuple[str, bytes], ...]:
    times = {"began_us": 1000, "ended_us": 1000 + took_us, "model_us": took_us // 2, "model_cached": cached}
    return tuple((name, str(value).encode()) for name, value in times.items())


def spendings(*fed: tuple[Event, tuple[tuple[str, bytes], ...]]) -> dict[tuple[str, str, str], Spending]:
    fold = SpendingFold()
    for event, seen in fed:
        fold.feed(event, seen)
    found = fold.spendings(STARTED, {"sys": 2, "other": 2}, {"sys": 4, "other": 4})
    return {(s.system, s.role, s.model): s for s in found}


def test_each_role_has_its_calls_tokens_money_and_seconds() -> None:
    delta = DeltaEvent(id="d", segment=0, usage=usage(100, 20, 2), **LANE)
    committed = CommittedEvent(id="c", trajectory="sys@S/e0", step=5, usage=usage(30, 10), **LANE)
    votes = (Vote(outcome="pass", judge="big", usage=usage(50, 5)),) * 3
    found = spendings(
        (delta, headers(2_000_000)),
        (response("r1", usage(1000, 100)), headers(1_000_000)),
        (response("r2", usage(1000, 300)), headers(3_000_000)),
        (response("r2", usage(1000, 300)), headers(3_000_000)),  # redelivered
        (committed, headers(500_000)),
        (verdict("v", *votes), headers(700_000)),
        (response("silent", Usage()), headers(1)),
    )
    assert list(found) == [
        ("sys", "ingest", "tiny"),
        ("sys", "answer", "small"),
        ("sys", "commit", "tiny"),
        ("sys", "judge", "big"),
    ]
    assert found["sys", "answer", "small"] == Spending(
        system="sys",
        role="answer",
        model="small",
        per="trajectory",
        operations=2,
        calls=2,
        cached=0,
        uncounted=0,
        prompt_tokens=2000,
        completion_tokens=400,
        tokens=Amount(n=4, mean=600.0, total=2400.0),
        money=Amount(n=4, mean=0.0007, total=0.0028),
        seconds=Amount(n=2, mean=2.0, total=4.0),
        model_seconds=Amount(n=2, mean=1.0, total=2.0),
    )
    ingest, judge = found["sys", "ingest", "tiny"], found["sys", "judge", "big"]
    assert (ingest.per, ingest.calls, ingest.tokens) == ("segment", 2, Amount(n=2, mean=60.0, total=120.0))
    assert (judge.calls, judge.prompt_tokens, judge.completion_tokens) == (3, 150, 15)
    assert judge.money == Amount(n=4, mean=0.00195 / 4, total=0.00195)


def test_what_the_cache_gave_counts_in_tokens_and_not_in_time() -> None:
    found = spendings(
        (response("r1", usage(10, 1)), headers(5_000_000, cached=1)),
        (response("r2", usage(10, 1)), headers(1_000_000)),
    )["sys", "answer", "small"]
    assert (found.calls, found.cached, found.prompt_tokens) == (2, 1, 20)
    assert found.seconds == Amount(n=1, mean=1.0, total=1.0)


def test_of_several_judges_each_has_its_own_and_the_cache_is_known_together_only() -> None:
    votes = (
        Vote(outcome="pass", judge="official"),
        Vote(
            outcome="pass",
            judge="big",
            votes=(Vote(outcome="pass", judge="big", usage=usage(7, 1)),) * 3,
        ),
        Vote(outcome="pass", judge="new", votes=(Vote(outcome="pass", judge="new", usage=usage(2, 2)),)),
    )
    found = spendings((verdict("v", *votes), headers(1)))
    assert {key: (s.calls, s.prompt_tokens, s.cached) for key, s in found.items()} == {
        ("sys", "judge", "big"): (3, 21, None),
        ("sys", "judge", "new"): (1, 2, None),
    }
    assert found["sys", "judge", "new"].money is None, "this run knows no price for it"


def test_who_answers_by_itself_is_not_charged_at_the_prices_of_the_model_that_answers_for_others() -> None:
    fold = SpendingFold()
    fold.feed(response("r", usage(10, 1, 0)), headers(1))
    started = msgspec.structs.replace(STARTED, answered_apart=("sys",))
    (found,) = fold.spendings(started, {}, {"sys": 1})
    assert (found.model, found.money, found.prompt_tokens, found.calls) == ("", None, 10, 0)


def test_an_answer_whose_tokens_nobody_counted_is_said_to_be_uncounted() -> None:
    found = spendings((response("r1", usage(0, 0)), headers(1)))["sys", "answer", "small"]
    assert (found.calls, found.uncounted, found.prompt_tokens) == (1, 1, 0)


def test_a_meter_counts_what_runs_inside_it_alone() -> None:
    spent(ModelUsage(seconds=9.0))
    with metered() as outer:
        spent(ModelUsage(seconds=1.0, prompt_tokens=3))
        with metered() as inner:
            taken = spent(ModelUsage(cached=True, completion_tokens=2))
    assert taken == usage(0, 2)
    assert outer.headers() == {"model_us": 1_000_000, "model_cached": 0}
    assert inner.headers() == {"model_us": 0, "model_cached": 1}
    assert Meter().headers() == {}
    assert added(usage(1, 2), usage(3, 4)) == usage(4, 6, 2)


def test_the_first_token_counts_from_the_operation_s_beginning_and_not_from_the_call_s() -> None:
    streamed = ModelUsage(seconds=0.02, first_token_s=0.015)
    assert first_token_s(streamed) is None, "nobody measures"
    with metered() as meter:
        meter.began_s -= 100.0  # a search before it took long
        assert first_token_s(ModelUsage(seconds=1.0)) is None
        since_began_s = first_token_s(streamed)
    assert since_began_s is not None
    assert since_began_s >= 100.0 - 0.005


class _Row:
    def __init__(self, **marks: Mark) -> None:
        self.marks = marks


def mark(*outcomes: Outcome, judge: str = "m") -> Mark:
    votes = tuple(Vote(outcome=outcome, judge=judge) for outcome in outcomes)
    return Mark(outcome=majority(votes).outcome, votes=votes)


def test_agreement_is_worked_out_over_cases_that_were_voted_on() -> None:
    rows: list[Any] = [
        _Row(fidelity=mark("pass", "pass", "pass"), ieu=Mark(outcome="unjudged", reason="R1 failed")),
        _Row(fidelity=mark("pass", "fail", "pass")),
        _Row(fidelity=mark("fail", "fail", "unjudged")),
        _Row(fidelity=mark("pass", "fail", "unjudged")),
        _Row(fidelity=mark("unjudged", "unjudged", "unjudged")),
    ]
    (found,) = agreements(rows)
    assert found == Agreement(
        judge="m",
        metric="fidelity",
        cases=5,
        votes=15,
        unanimous=1,
        split=2,
        undecided=2,
        ties=1,
        failed=5,
        agreement=pytest.approx((1 + 2 / 3 + 2 / 3 + 1 / 3 + 0) / 5),
    )


def test_rated_votes_agree_on_their_value_and_not_on_whether_that_is_the_highest() -> None:
    def rated(*values: float | None) -> Mark:
        votes = tuple(
            Vote(outcome="unjudged", judge="m")
            if value is None
            else Vote(outcome="pass" if value == 1 else "fail", value=value, judge="m")
            for value in values
        )
        return Mark(outcome="fail", value=0.5, votes=votes)

    cases = [rated(0.5, 0.5, 0.5), rated(0.0, 0.5, 0.5), rated(0.0, 0.5, 1.0), rated(0.5, 1.0, None)]
    rows: list[Any] = [_Row(qa=case) for case in cases]
    (found,) = agreements(rows)
    assert found == Agreement(
        judge="m",
        metric="qa",
        cases=4,
        votes=12,
        unanimous=1,
        split=1,
        undecided=2,
        ties=2,
        failed=1,
        agreement=pytest.approx((1 + 2 / 3 + 1 / 3 + 1 / 3) / 4),
    )


def test_a_panel_is_shown_as_a_whole_and_each_judge_beside_it() -> None:
    def panel(verdict: Outcome, first: Outcome, second: Outcome, third: Outcome) -> Mark:
        own = (Vote(outcome=second, judge="b"),) * 3
        votes = (
            Vote(outcome=first, judge="official"),
            Vote(outcome=second, judge="b", votes=own),
            Vote(outcome=third, judge="a"),
        )
        return Mark(outcome=verdict, votes=votes)

    rows: list[Any] = [
        _Row(fidelity=panel("pass", "pass", "pass", "fail")),
        _Row(fidelity=panel("fail", "pass", "fail", "fail")),
        _Row(fidelity=panel("unjudged", "pass", "fail", "unjudged")),
    ]
    found = {a.judge: a for a in agreements(rows)}
    assert list(found) == ["", "official", "b", "a"]
    assert (found[""].cases, found[""].split, found[""].ties) == (3, 2, 1)
    assert {name: a.with_verdict for name, a in found.items()} == {
        "": None,
        "official": 0.5,
        "b": 1.0,
        "a": 0.5,
    }
    assert (found["b"].cases, found["b"].unanimous, found["official"].cases) == (3, 3, 0)


def test_runs_without_votes_have_no_agreement() -> None:
    rows: list[Any] = [_Row(fidelity=Mark(outcome="pass"))]
    assert agreements(rows) == ()


@given(st.lists(st.sampled_from(("pass", "fail", "unjudged")), min_size=1, max_size=7))
def test_whether_a_case_is_decided_is_what_the_majority_says(outcomes: list[Outcome]) -> None:
    rows: list[Any] = [_Row(fidelity=mark(*outcomes))]
    (found,) = agreements(rows)
    assert found.undecided == (majority([Vote(outcome=o) for o in outcomes]).outcome == "unjudged")
    assert found.unanimous + found.split + found.undecided == found.cases == 1


def test_votes_of_votes_travel() -> None:
    own = Vote(outcome="pass", judge="b", reason="r", usage=usage(1, 1))
    event = verdict("v", Vote(outcome="pass", judge="b", votes=(own, own)))
    assert decode(encode(event)) == event
    old = b'{"kind":"verdict","id":"v","run":"r","event_time_us":0,"lane":"l","trajectory":"t","anchor":"a",'
    old += b'"metric":"fidelity","outcome":"pass","votes":[{"outcome":"pass","reason":"r"}]}'
    read = decode(old)
    assert isinstance(read, VerdictEvent)
    assert read.votes == (Vote(outcome="pass", reason="r"),)
