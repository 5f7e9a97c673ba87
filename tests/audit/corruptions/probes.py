"""Corruptions of a run of probes: of what is asked, answered, revealed and judged, and of the outlines. Each with the
rule under which it is found."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from simulator.events import (
    CommitEvent,
    DeltaEvent,
    FeedbackEvent,
    MemoryRecord,
    Metric,
    OutlineEvent,
    ProbeEvent,
    ResponseEvent,
    SegmentClosedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    Turn,
    VerdictEvent,
    Vote,
)
from simulator.protocols.subjects import RATES
from simulator.protocols.trajectory import common_of
from tests.audit.corruptions.common import Corruption, answer, rests_on, rests_on_later
from tests.audit.forgery import Forgery


def probe_of(log: Forgery, trajectory: str) -> ProbeEvent:
    stream, _, name = trajectory.partition("@")[2].partition("/")
    return log.one(ProbeEvent, lambda p: p.anchor == f"{stream}/{name}")


def judged(log: Forgery, test: Callable[[VerdictEvent], bool] = lambda _: True) -> VerdictEvent:
    return log.one(VerdictEvent, lambda v: v.outcome != "unjudged" and test(v))


def mean(log: Forgery) -> VerdictEvent:
    return judged(log, lambda v: v.metric not in RATES)


def of(*metrics: Metric) -> Callable[[VerdictEvent], bool]:
    return lambda v: v.metric in metrics


# --- what is asked and answered ---------------------------------------------------------------------------


def another_question(log: Forgery) -> str:
    return log.change(log.one(TaskEvent), text="How are you?").id


def question_before_its_delta(log: Forgery) -> str:
    task = log.one(TaskEvent)
    log.set_wall(task, "wall_us", log.world.wall_us - 3_600_000_000)
    return task.id


def question_without_its_delta(log: Forgery) -> str:
    task = log.one(TaskEvent)
    log.drop(log.one(DeltaEvent, lambda d: d.lane == task.lane and d.segment == task.segment))
    return task.id


def question_on_an_earlier_segment(log: Forgery) -> str:
    return log.change(log.one(TaskEvent, lambda t: t.segment > 0), segment=0).id


def question_before_it_is_due(log: Forgery) -> str:
    """Of one that is due only a while after its segment has ended."""
    late = log.one(ProbeEvent, lambda p: p.asked_time_us > p.event_time_us)
    task = log.one(TaskEvent, lambda t: probe_of(log, t.trajectory) is late)
    return log.change(task, event_time_us=late.event_time_us).id


def answer_at_another_time(log: Forgery) -> str:
    response = answer(log)
    return log.change(response, event_time_us=response.event_time_us + 1_000_000).id


def rests_on_a_newer_segment(log: Forgery) -> str:
    return rests_on_later(log)


def rests_on_what_is_newer_than_the_question(log: Forgery) -> str:
    response = answer(log)
    delta = log.one(DeltaEvent, lambda d: d.lane == response.lane and d.segment == 0)
    return rests_on(log, response, delta.records[0], event_time_us=response.event_time_us + 1)


def rests_on_nothing_that_was_written(log: Forgery) -> str:
    return rests_on(log, answer(log), MemoryRecord(id="nobody's", text="made up", event_time_us=0))


def second_answer(log: Forgery) -> str:
    response = answer(log)
    log.add(replace(response, id=f"{response.id}/again", text="on second thoughts"), response)
    return f"{response.id}/again"


def answer_to_no_question(log: Forgery) -> str:
    response = answer(log)
    log.drop(log.one(TaskEvent, lambda t: t.trajectory == response.trajectory))
    return response.id


def no_answer(log: Forgery) -> str:
    response = answer(log)
    log.drop(response)
    return f"{response.trajectory}/R1"


def commit_of_a_probe(log: Forgery) -> str:
    response = answer(log)
    commit = CommitEvent(
        **common_of(response, response.trajectory, "commit"),
        step=4,
        interaction=(Turn(role="user", text="remember that"),),
    )
    log.append(commit, wall_us=log.world.wall_us)
    return commit.id


def feedback_to_a_probe(log: Forgery) -> str:
    response = answer(log)
    feedback = FeedbackEvent(
        **common_of(response, response.trajectory, "F"),
        step=2,
        type="affirm",
        text="fine",
    )
    log.append(feedback, wall_us=log.world.wall_us)
    return feedback.id


def asked_again(log: Forgery) -> str:
    task = log.one(TaskEvent)
    log.add(replace(task, id=f"{task.trajectory}/T2", phase="T2", step=6), task)
    return f"{task.trajectory}/T2"


def never_closed(log: Forgery) -> str:
    closed = log.one(TrajectoryClosedEvent)
    log.drop(closed)
    return closed.id


def answered_and_given_up(log: Forgery) -> str:
    return log.change(log.one(TrajectoryClosedEvent), reason="enough").id


def answered_and_not_to_be_judged(log: Forgery) -> str:
    closed = log.one(TrajectoryClosedEvent)
    return log.change(closed, unjudged=probe_of(log, closed.trajectory).metrics).id


# --- what is revealed -------------------------------------------------------------------------------------


def gold_in_the_question(log: Forgery) -> str:
    task = log.one(TaskEvent, lambda t: not probe_of(log, t.trajectory).options)
    return log.change(task, text=f"{task.text} {probe_of(log, task.trajectory).gold.answer}").id


def anothers_gold_in_the_question(log: Forgery) -> str:
    task = log.one(TaskEvent)
    own = probe_of(log, task.trajectory)
    other = log.one(ProbeEvent, lambda p: p.anchor != own.anchor)
    return log.change(task, text=f"{task.text} {other.gold.memories[0].upper()}").id


def gold_in_control(log: Forgery) -> str:
    gold = log.one(ProbeEvent).gold.memories[0]
    return log.change(log.one(TrajectoryClosedEvent), reason=f"because {gold}").id


def gold_in_the_answer(log: Forgery) -> str:
    response = answer(log)
    return log.change(response, text=probe_of(log, response.trajectory).gold.memories[0]).id


def anothers_question_in_the_answer(log: Forgery) -> str:
    asked = log.all(TaskEvent)
    for task in asked:
        for other in asked:
            if len(other.text) >= 40 and other.text not in task.text and task.text not in other.text:
                response = log.one(ResponseEvent, lambda r, t=task: r.trajectory == t.trajectory)
                return log.change(response, text=f"somebody asks: {other.text}").id
    raise LookupError


# --- what was judged --------------------------------------------------------------------------------------


def no_verdict(log: Forgery) -> str:
    verdict = mean(log)
    log.drop(verdict)
    return verdict.id


def second_verdict(log: Forgery) -> str:
    verdict = mean(log)
    log.add(replace(verdict, id=f"{verdict.id}/again"), verdict)
    return f"{verdict.id}/again"


def verdict_that_nobody_asked_for(log: Forgery) -> str:
    verdict = judged(log, of("decision"))
    log.add(replace(verdict, id=f"{verdict.trajectory}/mcq_accuracy", metric="mcq_accuracy"), verdict)
    return f"{verdict.trajectory}/mcq_accuracy"


def verdict_on_a_reaction(log: Forgery) -> str:
    verdict = judged(log, of("decision"))
    log.add(replace(verdict, id=f"{verdict.trajectory}/fidelity", metric="fidelity"), verdict)
    return f"{verdict.trajectory}/fidelity"


def judged_without_an_answer(log: Forgery) -> str:
    verdict = mean(log)
    log.drop(log.one(ResponseEvent, lambda r: r.trajectory == verdict.trajectory))
    return verdict.id


def verdict_on_something_else(log: Forgery) -> str:
    return log.change(mean(log), causes=("something",)).id


def verdict_at_another_time(log: Forgery) -> str:
    verdict = mean(log)
    return log.change(verdict, event_time_us=verdict.event_time_us + 1_000_000).id


def value_above_one(log: Forgery) -> str:
    return log.change(mean(log), value=1.5, outcome="fail", votes=()).id


def value_below_zero(log: Forgery) -> str:
    return log.change(mean(log), value=-0.1, outcome="fail", votes=()).id


def value_left_out(log: Forgery) -> str:
    """Without it a mean would count a fail as 0, and a pass as 1."""
    return log.change(judged(log, of("ndcg@10")), value=None).id


def value_left_out_beside_votes(log: Forgery) -> str:
    return log.change(judged(log, lambda v: v.metric == "qa" and bool(v.votes)), value=None).id


def value_of_a_rate(log: Forgery) -> str:
    return log.change(judged(log, of("decision")), value=1.0, outcome="pass").id


def value_of_what_is_unjudged(log: Forgery) -> str:
    return log.change(mean(log), outcome="unjudged", reason="down", votes=()).id


def pass_below_one(log: Forgery) -> str:
    return log.change(judged(log, of("ndcg@10")), outcome="pass", value=0.99).id


def fail_at_one(log: Forgery) -> str:
    return log.change(judged(log, of("recall_any@10")), outcome="fail", value=1.0).id


def votes(*values: float | None) -> tuple[Vote, ...]:
    return tuple(
        Vote(outcome="unjudged") if v is None else Vote(outcome="pass" if v == 1 else "fail", value=v)
        for v in values
    )


def value_that_is_not_the_median(log: Forgery) -> str:
    return log.change(judged(log, of("qa")), outcome="fail", value=0.5, votes=votes(0.0, 1.0, 1.0)).id


def upper_one_of_two_in_the_middle(log: Forgery) -> str:
    return log.change(judged(log, of("helpful")), outcome="pass", value=1.0, votes=votes(0.5, 1.0)).id


def value_of_too_few_votes(log: Forgery) -> str:
    return log.change(judged(log, of("qa")), outcome="fail", value=0.5, votes=votes(0.5, None, None)).id


def unjudged_against_its_votes(log: Forgery) -> str:
    """A bad rating disappears if it is said that nobody could judge."""
    bad = votes(0.0, 0.0, 0.0)
    return log.change(judged(log, of("qa")), outcome="unjudged", reason="down", value=None, votes=bad).id


def yes_without_a_majority(log: Forgery) -> str:
    return log.change(judged(log, of("open_accuracy")), outcome="fail", votes=votes(0.0, 1.0)).id


def yes_against_its_votes(log: Forgery) -> str:
    return log.change(judged(log, of("open_accuracy")), outcome="pass", votes=votes(0.0, 1.0, 0.0)).id


# --- probes and outlines ----------------------------------------------------------------------------------


def drop_a_probe(log: Forgery) -> str:
    task = log.one(TaskEvent)
    log.drop(probe_of(log, task.trajectory))
    return task.id


def move_a_probe(log: Forgery) -> str:
    probe = log.one(ProbeEvent)
    return log.change(probe, event_time_us=probe.event_time_us - 1_000_000).id


def outline_that_lies(log: Forgery) -> str:
    outline = log.one(OutlineEvent, lambda o: len(o.segment_ends_us) > 1)
    first, *others = outline.segment_ends_us
    return log.change(outline, segment_ends_us=(first + 1_000_000, *others)).id


def outline_that_is_short(log: Forgery) -> str:
    """The last segment's records would be of none."""
    outline = log.one(OutlineEvent)
    return log.change(outline, segment_ends_us=outline.segment_ends_us[:-1]).id


def no_outline(log: Forgery) -> str:
    outline = log.one(OutlineEvent, lambda o: bool(log.all(ProbeEvent, lambda p: p.stream == o.stream)))
    log.drop(outline)
    return outline.id


def two_outlines(log: Forgery) -> str:
    outline = log.one(OutlineEvent)
    log.add(outline, outline)
    return outline.id


def session_of_no_segment(log: Forgery) -> str:
    outline = log.one(OutlineEvent, lambda o: bool(o.sessions))
    span = replace(outline.sessions[0], last_segment=outline.sessions[0].last_segment + 1)
    return log.change(outline, sessions=(span,)).id


def session_cut_short(log: Forgery) -> str:
    """Fewer hours make more bytes an hour."""
    outline = log.one(OutlineEvent, lambda o: bool(o.sessions))
    span = replace(outline.sessions[0], end_time_us=outline.sessions[0].end_time_us - 1_000_000)
    return log.change(outline, sessions=(span,)).id


def segment_end_moved(log: Forgery) -> str:
    closed = log.one(
        SegmentClosedEvent, lambda c: bool(log.all(OutlineEvent, lambda o: o.stream == c.stream))
    )
    log.change(closed, event_time_us=closed.event_time_us + 1)
    return f"{closed.stream}/outline"


CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("task_text", another_question),
    ("before_cause", question_before_its_delta),
    ("task_without_delta", question_without_its_delta),
    ("task_segment", question_on_an_earlier_segment),
    ("event_time", question_before_it_is_due),
    ("event_time", answer_at_another_time),
    ("future_record", rests_on_a_newer_segment),
    ("newer_record", rests_on_what_is_newer_than_the_question),
    ("unknown_record", rests_on_nothing_that_was_written),
    ("twice", second_answer),
    ("unasked", answer_to_no_question),
    ("missing", no_answer),
    ("unasked", commit_of_a_probe),
    ("unasked", feedback_to_a_probe),
    ("unasked", asked_again),
    ("not_closed", never_closed),
    ("closed_reason", answered_and_given_up),
    ("closed_unjudged", answered_and_not_to_be_judged),
    ("revealed_early", gold_in_the_question),
    ("revealed_early", anothers_gold_in_the_question),
    ("revealed_early", gold_in_control),
    ("gold_in_answer", gold_in_the_answer),
    ("foreign_conversation", anothers_question_in_the_answer),
    ("verdict_missing", no_verdict),
    ("verdict_twice", second_verdict),
    ("verdict_unexpected", verdict_that_nobody_asked_for),
    ("verdict_unexpected", verdict_on_a_reaction),
    ("judged_nothing", judged_without_an_answer),
    ("verdict_causes", verdict_on_something_else),
    ("event_time", verdict_at_another_time),
    ("value", value_above_one),
    ("value", value_below_zero),
    ("value", value_left_out),
    ("value", value_left_out_beside_votes),
    ("value", value_of_a_rate),
    ("value", value_of_what_is_unjudged),
    ("value", pass_below_one),
    ("value", fail_at_one),
    ("votes", value_that_is_not_the_median),
    ("votes", upper_one_of_two_in_the_middle),
    ("votes", value_of_too_few_votes),
    ("votes", unjudged_against_its_votes),
    ("votes", yes_without_a_majority),
    ("votes", yes_against_its_votes),
    ("trajectory", drop_a_probe),
    ("anchor_time", move_a_probe),
    ("outline", outline_that_lies),
    ("outline", outline_that_is_short),
    ("outline", no_outline),
    ("duplicate", two_outlines),
    ("outline", session_of_no_segment),
    ("outline", session_cut_short),
    ("outline", segment_end_moved),
]
