"""Corruptions of what every event must be, and of canaries. Each with the rule under which it is found."""

from __future__ import annotations

from msgspec.structs import replace

from simulator.events import (
    AnchorEvent,
    DeltaEvent,
    MemoryRecord,
    ObservationEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentReleasedEvent,
    TakenEvent,
    TaskEvent,
    VerdictEvent,
)
from simulator.intake import dead_letter
from simulator.protocols.trajectory import about
from tests.audit.corruptions.common import (
    Corruption,
    answer,
    planted,
)
from tests.audit.forgery import Forgery


def another_id(log: Forgery) -> str:
    return log.change(log.one(VerdictEvent), id="verdict-17").id


def the_same_event_twice(log: Forgery) -> str:
    task = log.one(TaskEvent)
    log.add(task, task)
    return task.id


def wrong_partition(log: Forgery) -> str:
    task = log.one(TaskEvent)
    (topic, partition), index = log.place(task)
    _, record = log.log[topic, partition].pop(index)
    log.log.setdefault((topic, 1 - partition), []).append((task, record._replace(partition=1 - partition)))
    return task.id


def wrong_key(log: Forgery) -> str:
    delta = log.one(DeltaEvent)
    log.change_record(delta, key=b"somebody")
    return delta.id


def wrong_stamp(log: Forgery) -> str:
    observation = log.one(ObservationEvent)
    log.change_record(observation, timestamp_ms=17)
    return observation.id


def wrong_header(log: Forgery) -> str:
    observation = log.one(ObservationEvent)
    log.change_record(observation, headers=(("kind", b"verdict"),))
    return observation.id


def unknown_lane(log: Forgery) -> str:
    delta = log.one(DeltaEvent)
    return log.change(
        delta, lane=f"ghost@{delta.stream}", id=f"ghost@{delta.stream}/delta/{delta.segment}"
    ).id


def unknown_stream(log: Forgery) -> str:
    observation = log.one(ObservationEvent)
    return log.change(observation, stream="S9", id=f"S9/obs/{observation.seq}").id


def unknown_trajectory(log: Forgery) -> str:
    task = log.one(TaskEvent)
    ghost = f"{task.lane}/s0/e99"
    return log.change(task, trajectory=ghost, id=f"{ghost}/{task.phase}").id


def another_identity(log: Forgery) -> str:
    started = log.one(RunStartedEvent)
    log.started = log.change(started, identity={**started.identity, "seed": "3", "top_k": "99"})
    return started.id


def two_beginnings(log: Forgery) -> str:
    started = log.one(RunStartedEvent)
    log.add(replace(started, id="run/started", anchors=started.anchors), started)
    return started.id


def two_ends(log: Forgery) -> str:
    ended = log.one(RunEndedEvent)
    log.add(ended, ended)
    return ended.id


def unreadable(log: Forgery) -> str:
    response = answer(log)
    place, index = log.place(response)
    log.change_record(response, value=b"\xff{")
    return f"{place[0]}/{place[1]}/{index}"


def another_runs_event(log: Forgery) -> str:
    verdict = log.one(VerdictEvent)
    place, index = log.place(verdict)
    log.change(verdict, run="run-other")
    return f"{place[0]}/{place[1]}/{index}"


def bury_a_verdict(log: Forgery) -> str:
    """A bad verdict disappears if somebody says that it could not be used."""
    verdict = log.one(VerdictEvent)
    (topic, partition), index = log.place(verdict)
    record = log.record(verdict)._replace(topic=topic, partition=partition, offset=index)
    log.append(dead_letter(log.started.run, record, "was not to my taste"))
    return verdict.id


def bury_what_is_not_there(log: Forgery) -> str:
    record = log.record(log.one(VerdictEvent))._replace(offset=10**6)
    letter = dead_letter(log.started.run, record, "gone")
    log.append(letter)
    return letter.id


def taken(log: Forgery, event: DeltaEvent | ResponseEvent) -> str:
    (topic, partition), offset = log.place(event)
    said = TakenEvent(**about(event, f"{event.id}/taken"), topic=topic, partition=partition, offset=offset)
    log.append(said)
    return said.id


def taken_of_our_own(log: Forgery) -> str:
    return taken(log, answer(log))


def drop_an_anchor(log: Forgery) -> str:
    anchor = log.one(AnchorEvent)
    log.drop(anchor)
    lane = f"sys0@{anchor.stream}"
    return f"{lane}/{anchor.anchor.removeprefix(anchor.stream + '/')}/T1"


def move_an_anchor(log: Forgery) -> str:
    anchor = log.one(AnchorEvent)
    return log.change(anchor, event_time_us=anchor.event_time_us + 1_000_000).id


def never_released(log: Forgery) -> str:
    released = log.all(SegmentReleasedEvent)[-1]
    log.drop(released)
    return f"{released.lane}/released"


def canary_before_its_time(log: Forgery) -> str:
    mark, stream, segment = planted(log)
    delta = log.one(DeltaEvent, lambda d: d.stream == stream and d.segment < segment)
    return log.change(delta, records=(*delta.records, MemoryRecord(id="x", text=mark, event_time_us=0))).id


def canary_in_another_stream(log: Forgery) -> str:
    mark, stream, _ = planted(log)
    response = log.one(ResponseEvent, lambda r: r.stream != stream)
    return log.change(response, text=f"I heard {mark}").id


def canary_that_nobody_planted(log: Forgery) -> str:
    return log.change(answer(log), text="canary0123456789ab").id


def canary_moved(log: Forgery) -> str:
    mark, stream, _ = planted(log)
    other = log.one(ObservationEvent, lambda o: o.stream == stream and mark not in o.text)
    return log.change(other, text=mark).id


CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("id", another_id),
    ("duplicate", the_same_event_twice),
    ("partition", wrong_partition),
    ("key", wrong_key),
    ("stamp", wrong_stamp),
    ("header", wrong_header),
    ("lane", unknown_lane),
    ("stream", unknown_stream),
    ("trajectory", unknown_trajectory),
    ("run_id", another_identity),
    ("run_started", two_beginnings),
    ("run_ended", two_ends),
    ("unburied", unreadable),
    ("unburied", another_runs_event),
    ("buried", bury_a_verdict),
    ("dead_letter", bury_what_is_not_there),
    ("taken", taken_of_our_own),
    ("trajectory", drop_an_anchor),
    ("anchor_time", move_an_anchor),
    ("release_missing", never_released),
    ("canary_early", canary_before_its_time),
    ("canary_stream", canary_in_another_stream),
    ("canary_unknown", canary_that_nobody_planted),
    ("canary_moved", canary_moved),
]
