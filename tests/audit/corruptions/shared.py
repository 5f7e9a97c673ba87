"""Corruptions of isolation `shared`: invariant 5. Each with the rule under which it is found."""

from __future__ import annotations

from simulator.events import (
    CommittedEvent,
    DeltaEvent,
    ResponseEvent,
    TaskEvent,
)
from tests.audit.corruptions.common import (
    Corruption,
    rests_on,
)
from tests.audit.forgery import Forgery


def interleave_trajectories(log: Forgery) -> str:
    """The first T2 of a lane comes after the second T1."""
    tasks = log.all(TaskEvent)
    log.swap(tasks[1], tasks[2])
    return tasks[1].id


def ingest_before_the_commit(log: Forgery) -> str:
    for committed in log.all(CommittedEvent):
        following = log.all(DeltaEvent, lambda d, c=committed: d.segment == (c.as_of or 0) + 1)
        if following:
            log.swap(committed, following[0])
            return following[0].id
    raise LookupError


def commit_of_a_later_turn(log: Forgery) -> str:
    first, *_, last = log.all(CommittedEvent)
    response = log.one(ResponseEvent, lambda r: r.trajectory == first.trajectory and r.phase == "R2")
    return rests_on(log, response, last.records[0], event_time_us=0)


CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("interleaved", interleave_trajectories),
    ("ingest_between", ingest_before_the_commit),
    ("foreign_commit", commit_of_a_later_turn),
]
