"""Corruptions of what is revealed and of what was judged: invariants 6 and 7. Each with the rule that finds it."""

from __future__ import annotations

from msgspec.structs import replace

from simulator.events import (
    AnchorEvent,
    FeedbackDraft,
    ObservationEvent,
    ResponseEvent,
    RunEndedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
    Vote,
)
from tests.audit.corruptions.common import (
    Corruption,
    anchor_of,
    answer,
    revised,
)
from tests.audit.forgery import Forgery


def evidence_in_t1(log: Forgery) -> str:
    task = log.one(TaskEvent, lambda t: t.phase == "T1")
    return log.change(task, text=f"{task.text} {anchor_of(log, task.trajectory).evidence_statement}").id


def gold_in_an_observation(log: Forgery) -> str:
    gold = log.one(AnchorEvent).followup_task.expected_behavior
    return log.change(log.one(ObservationEvent), text=f"so he {gold.upper()}").id


def evidence_in_control(log: Forgery) -> str:
    statement = log.one(AnchorEvent).evidence_statement
    return log.change(log.one(TrajectoryClosedEvent), reason=f"because {statement}").id


def anothers_evidence_in_feedback(log: Forgery) -> str:
    feedback = revised(log)
    own = anchor_of(log, feedback.trajectory)
    other = log.one(AnchorEvent, lambda a: a.anchor != own.anchor)
    return log.change(feedback, text=f"{feedback.text} {other.evidence_statement}").id


def gold_in_an_answer(log: Forgery) -> str:
    feedback = revised(log)
    gold = anchor_of(log, feedback.trajectory).initial_task.expected_behavior
    log.drop(feedback)  # nobody told it
    response = log.one(ResponseEvent, lambda r: r.trajectory == feedback.trajectory and r.phase == "R1")
    return log.change(response, text=gold).id


def two_verdicts(log: Forgery) -> str:
    verdict = log.one(VerdictEvent)
    log.add(replace(verdict, id=f"{verdict.id}/again"), verdict)
    return f"{verdict.id}/again"


def drop_a_verdict(log: Forgery) -> str:
    verdict = log.one(VerdictEvent, lambda v: v.metric == "fur")
    log.drop(verdict)
    return verdict.id


def verdict_on_nothing(log: Forgery) -> str:
    verdict = log.one(VerdictEvent)
    ghost = f"{verdict.lane}/s0/e99"
    log.add(replace(verdict, trajectory=ghost, id=f"{ghost}/{verdict.metric}"), verdict)
    return f"{ghost}/{verdict.metric}"


def against_its_votes(log: Forgery) -> str:
    verdict = log.one(VerdictEvent, lambda v: v.outcome == "pass" and v.metric == "fidelity")
    return log.change(verdict, votes=(Vote(outcome="fail"), Vote(outcome="fail"), Vote(outcome="pass"))).id


def unjudged_without_reason(log: Forgery) -> str:
    verdict = log.one(VerdictEvent, lambda v: v.metric == "fidelity")
    return log.change(verdict, outcome="unjudged", reason="", votes=()).id


def fi_after_a_pass(log: Forgery) -> str:
    passed = log.one(VerdictEvent, lambda v: v.metric == "ieu" and v.outcome == "pass")
    fi = replace(passed, id=f"{passed.trajectory}/fi", metric="fi", feedback=None)
    log.add(fi, passed)
    return fi.id


def judged_without_an_answer(log: Forgery) -> str:
    response = answer(log, "R2")
    log.drop(response)
    return f"{response.trajectory}/fur"


def verdict_on_something_else(log: Forgery) -> str:
    return log.change(log.one(VerdictEvent, lambda v: v.metric == "fur"), causes=("something",)).id


def affirmed_failure(log: Forgery) -> str:
    verdict = log.one(VerdictEvent, lambda v: v.metric == "ieu" and v.outcome == "fail")
    return log.change(verdict, feedback=FeedbackDraft(type="affirm", text="fine")).id


def flipped_outcome(log: Forgery) -> str:
    verdict = log.one(VerdictEvent, lambda v: v.metric == "ieu" and v.outcome == "fail")
    return log.change(verdict, outcome="pass", votes=()).id


def miscount_the_run(log: Forgery) -> str:
    ended = log.one(RunEndedEvent)
    return log.change(ended, verdicts=ended.verdicts + 1).id


def fewer_unjudged(log: Forgery) -> str:
    log.change(
        log.one(VerdictEvent, lambda v: v.metric == "fidelity"), outcome="unjudged", reason="down", votes=()
    )
    return "run/ended"


CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("revealed_early", evidence_in_t1),
    ("revealed_early", gold_in_an_observation),
    ("revealed_early", evidence_in_control),
    ("revealed_early", anothers_evidence_in_feedback),
    ("gold_in_answer", gold_in_an_answer),
    ("verdict_twice", two_verdicts),
    ("verdict_missing", drop_a_verdict),
    ("verdict_without_trajectory", verdict_on_nothing),
    ("votes", against_its_votes),
    ("no_reason", unjudged_without_reason),
    ("fi_not_asked", fi_after_a_pass),
    ("judged_nothing", judged_without_an_answer),
    ("verdict_causes", verdict_on_something_else),
    ("draft", affirmed_failure),
    ("draft", flipped_outcome),
    ("run_total", miscount_the_run),
    ("run_total", fewer_unjudged),
]
