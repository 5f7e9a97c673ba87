"""Corruptions of tasks and of what answers rest on: invariant 3. Each with the rule under which it is found."""

from __future__ import annotations

from msgspec.structs import replace

from simulator.events import (
    DeltaEvent,
    MemoryRecord,
    ResponseEvent,
    TaskEvent,
)
from tests.audit.corruptions.common import (
    Corruption,
    answer,
    rests_on,
    rests_on_later,
)
from tests.audit.forgery import Forgery


def from_a_newer_segment(log: Forgery) -> str:
    return rests_on_later(log)


def newer_than_the_task(log: Forgery) -> str:
    response = answer(log)
    delta = log.one(DeltaEvent, lambda d: d.lane == response.lane and d.segment == 0)
    return rests_on(log, response, delta.records[0], event_time_us=response.event_time_us + 1)


def made_up_record(log: Forgery) -> str:
    record = MemoryRecord(id="nobody's", text="made up", event_time_us=0)
    return rests_on(log, answer(log), record)


def changed_text(log: Forgery) -> str:
    response = log.one(ResponseEvent, lambda r: bool(r.retrieved))
    found = replace(response.retrieved[0], text="as it never was")
    return log.change(response, retrieved=(found,)).id


def changed_time(log: Forgery) -> str:
    response = log.one(ResponseEvent, lambda r: bool(r.retrieved))
    found = replace(response.retrieved[0], event_time_us=0)
    return log.change(response, retrieved=(found,)).id


def text_before_an_update(log: Forgery) -> str:
    response = answer(log)
    delta = log.one(DeltaEvent, lambda d: d.lane == response.lane and d.segment == 0)
    old = MemoryRecord(id="twice", text="old", event_time_us=0)
    new = MemoryRecord(id="twice", text="new", event_time_us=0, op="update")
    log.change(delta, records=(*delta.records, old, new))
    return rests_on(log, response, old)


def deleted(log: Forgery) -> str:
    response = answer(log)
    delta = log.one(DeltaEvent, lambda d: d.lane == response.lane and d.segment == 0)
    kept = MemoryRecord(id="gone", text="it was here", event_time_us=0)
    log.change(delta, records=(*delta.records, kept, replace(kept, op="delete")))
    return rests_on(log, response, kept)


def response_as_of_another_segment(log: Forgery) -> str:
    response = answer(log)
    return log.change(response, as_of=(response.as_of or 0) + 1).id


def response_at_another_time(log: Forgery) -> str:
    response = answer(log)
    return log.change(response, event_time_us=response.event_time_us + 1_000_000).id


def task_without_its_delta(log: Forgery) -> str:
    task = log.one(TaskEvent)
    log.drop(log.one(DeltaEvent, lambda d: d.lane == task.lane and d.segment == task.segment))
    return task.id


def task_that_names_no_delta(log: Forgery) -> str:
    return log.change(log.one(TaskEvent), causes=("something",)).id


def task_before_its_delta(log: Forgery) -> str:
    task = log.one(TaskEvent)
    log.set_wall(task, "wall_us", log.world.wall_us - 3_600_000_000)
    return task.id


def task_of_another_segment(log: Forgery) -> str:
    task = log.one(TaskEvent)
    return log.change(task, segment=task.segment + 1).id


def another_t1(log: Forgery) -> str:
    return log.change(log.one(TaskEvent, lambda t: t.phase == "T1"), text="How are you?").id


def another_t2(log: Forgery) -> str:
    return log.change(log.one(TaskEvent, lambda t: t.phase == "T2"), text="How are you?").id


def drop_t1(log: Forgery) -> str:
    task = log.one(TaskEvent, lambda t: t.phase == "T1")
    log.drop(task)
    return task.id


def t2_foreseen(log: Forgery) -> str:
    response = answer(log)
    t2 = log.one(TaskEvent, lambda t: t.trajectory == response.trajectory and t.phase == "T2")
    return log.change(response, text=f"You will ask: {t2.text}").id


CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("future_record", from_a_newer_segment),
    ("newer_record", newer_than_the_task),
    ("unknown_record", made_up_record),
    ("record_text", changed_text),
    ("record_time", changed_time),
    ("record_text", text_before_an_update),
    ("deleted_record", deleted),
    ("as_of", response_as_of_another_segment),
    ("event_time", response_at_another_time),
    ("task_without_delta", task_without_its_delta),
    ("causes", task_that_names_no_delta),
    ("before_cause", task_before_its_delta),
    ("task_segment", task_of_another_segment),
    ("task_text", another_t1),
    ("task_text", another_t2),
    ("missing", drop_t1),
    ("foreseen_task", t2_foreseen),
]
