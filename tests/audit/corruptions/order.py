"""Corruptions of what follows what: invariant 4. Each with the rule under which it is found."""

from __future__ import annotations

from msgspec.structs import replace

from simulator.events import (
    CommitEvent,
    CommittedEvent,
    ResponseEvent,
    TrajectoryClosedEvent,
    Turn,
)
from tests.audit.corruptions.common import (
    Corruption,
    affirmed,
    answer,
    revised,
)
from tests.audit.forgery import Forgery


def step_out_of_order(log: Forgery) -> str:
    return log.change(answer(log), step=4).id


def causes_of_r1(log: Forgery) -> str:
    return log.change(answer(log), causes=("something",)).id


def feedback_that_skips_r1(log: Forgery) -> str:
    feedback = revised(log)
    return log.change(feedback, causes=feedback.causes[1:]).id


def feedback_without_r1(log: Forgery) -> str:
    feedback = revised(log)
    log.drop(log.one(ResponseEvent, lambda r: r.trajectory == feedback.trajectory and r.phase == "R1"))
    return feedback.id


def r_f_where_nobody_asked(log: Forgery) -> str:
    feedback = affirmed(log)
    r1 = log.one(ResponseEvent, lambda r: r.trajectory == feedback.trajectory and r.phase == "R1")
    r_f = replace(r1, id=f"{r1.trajectory}/R_F", phase="R_F", step=3, causes=(feedback.id,))
    log.add(r_f, r1)
    return r_f.id


def drop_r_f(log: Forgery) -> str:
    feedback = revised(log)
    log.drop(log.one(ResponseEvent, lambda r: r.trajectory == feedback.trajectory and r.phase == "R_F"))
    return f"{feedback.trajectory}/R_F"


def drop_feedback(log: Forgery) -> str:
    feedback = revised(log)
    log.drop(feedback)
    return feedback.id


def drop_a_commit(log: Forgery) -> str:
    commit = log.one(CommitEvent)
    log.drop(commit)
    return commit.id


def drop_a_committed(log: Forgery) -> str:
    committed = log.one(CommittedEvent)
    log.drop(committed)
    return committed.id


def committed_twice(log: Forgery) -> str:
    committed = log.one(CommittedEvent)
    log.add(replace(committed, id=f"{committed.id}/again"), committed)
    return f"{committed.id}/again"


def response_before_its_task(log: Forgery) -> str:
    response = answer(log, "R2")
    log.set_wall(response, "began_us", log.world.wall_us - 3_600_000_000)
    return response.id


def other_words(log: Forgery) -> str:
    return log.change(revised(log), text="No.").id


def other_feedback(log: Forgery) -> str:
    return log.change(revised(log), type="affirm").id


def a_turn_that_never_was(log: Forgery) -> str:
    commit = log.one(CommitEvent)
    turn = Turn(role="assistant", text="as I said before")
    return log.change(commit, interaction=(*commit.interaction, turn)).id


def a_turn_changed(log: Forgery) -> str:
    commit = log.one(CommitEvent)
    first, _, *others = commit.interaction
    return log.change(commit, interaction=(first, Turn(role="assistant", text="well"), *others)).id


def not_closed(log: Forgery) -> str:
    closed = log.one(TrajectoryClosedEvent)
    log.drop(closed)
    return closed.id


def whole_and_closed_early(log: Forgery) -> str:
    return log.change(log.one(TrajectoryClosedEvent), reason="enough").id


CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("step", step_out_of_order),
    ("causes", causes_of_r1),
    ("causes", feedback_that_skips_r1),
    ("unasked", feedback_without_r1),
    ("unasked", r_f_where_nobody_asked),
    ("missing", drop_r_f),
    ("missing", drop_feedback),
    ("missing", drop_a_commit),
    ("missing", drop_a_committed),
    ("twice", committed_twice),
    ("before_cause", response_before_its_task),
    ("feedback_text", other_words),
    ("feedback_text", other_feedback),
    ("interaction", a_turn_that_never_was),
    ("interaction", a_turn_changed),
    ("not_closed", not_closed),
    ("closed_reason", whole_and_closed_early),
]
