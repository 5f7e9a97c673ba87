"""Corruptions of isolation `branch`: invariant 5. Each with the rule under which it is found."""

from __future__ import annotations

from msgspec.structs import replace

from simulator.events import (
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    MemoryRecord,
    ResponseEvent,
    TaskEvent,
)
from tests.audit.corruptions.common import (
    Corruption,
    answer,
    commit_elsewhere,
    rests_on,
)
from tests.audit.forgery import Forgery


def anothers_commit(log: Forgery) -> str:
    committed, other = commit_elsewhere(log)
    response = log.one(ResponseEvent, lambda r: r.trajectory == other and r.phase == "R2")
    return rests_on(log, response, committed.records[0], event_time_us=0)


def its_own_commit_too_early(log: Forgery) -> str:
    response = answer(log)
    committed = log.one(CommittedEvent, lambda c: c.trajectory == response.trajectory)
    return rests_on(log, response, committed.records[0])


def commit_in_the_arm_without(log: Forgery) -> str:
    response = answer(log, "R2", "uncommitted")
    committed = log.one(CommittedEvent, lambda c: c.trajectory == response.trajectory)
    return rests_on(log, response, committed.records[0])


def commit_in_the_main_memory(log: Forgery) -> str:
    committed = log.one(CommittedEvent)
    delta = log.all(DeltaEvent, lambda d: d.lane == committed.lane)[-1]
    record = replace(committed.records[0], event_time_us=0)
    return log.change(delta, records=(*delta.records, record)).id


def conversation_in_the_main_memory(log: Forgery) -> str:
    t2 = log.one(TaskEvent, lambda t: t.phase == "T2")
    delta = log.all(DeltaEvent, lambda d: d.lane == t2.lane)[-1]
    record = MemoryRecord(id="overheard", text=f"somebody asked: {t2.text}", event_time_us=0)
    return log.change(delta, records=(*delta.records, record)).id


def conversation_in_another_commit(log: Forgery) -> str:
    committed, other = commit_elsewhere(log)
    t2 = log.one(TaskEvent, lambda t: t.trajectory == other and t.phase == "T2")
    record = replace(committed.records[0], text=f"{committed.records[0].text}\n{t2.text}")
    return log.change(committed, records=(record,)).id


def record_of_another_lane(log: Forgery) -> str:
    response = answer(log)
    record = MemoryRecord(id="theirs", text="only they know this", event_time_us=0)
    other = log.one(DeltaEvent, lambda d: d.lane != response.lane)
    log.change(other, records=(*other.records, record))
    return rests_on(log, response, record)


def branch_not_kept(log: Forgery) -> str:
    return log.change(log.one(CommitEvent), keep_uncommitted=False).id


CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("foreign_commit", anothers_commit),
    ("before_commit", its_own_commit_too_early),
    ("uncommitted_sees_commit", commit_in_the_arm_without),
    ("commit_in_main", commit_in_the_main_memory),
    ("conversation_in_main", conversation_in_the_main_memory),
    ("foreign_conversation", conversation_in_another_commit),
    ("foreign_lane", record_of_another_lane),
    ("uncommitted_branch", branch_not_kept),
]
