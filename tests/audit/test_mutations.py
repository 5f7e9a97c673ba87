"""Every way that we know of to corrupt a valid log: each is found, under the right rule and with the event that is
to blame."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from msgspec.structs import replace

from consumers.audit import Finding
from simulator.events import (
    AnchorEvent,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    FeedbackDraft,
    FeedbackEvent,
    MemoryRecord,
    ObservationEvent,
    ReplayEndedEvent,
    ResponseEvent,
    RetrievedRecord,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    StreamEndedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    Turn,
    VerdictEvent,
    Vote,
)
from simulator.intake import dead_letter
from simulator.marks import mark_of
from tests.audit.forgery import Forgery
from tests.audit.worlds import Shape, World

Corruption = Callable[[Forgery], str]
"""Corrupts a log and gives the id of the event that is to blame."""

BRANCH = Shape(seed=11, streams=2, segments=5, anchors=5, systems=2, partitions=2, ablate=True, canaries=4)
SHARED = Shape(seed=5, streams=1, segments=4, anchors=4, systems=1, isolation="shared")


@cache
def world(shape: Shape) -> World:
    return World(shape).run()


def forge(shape: Shape, corrupt: Corruption) -> tuple[str, list[Finding]]:
    forgery = Forgery(world(shape))
    blamed = corrupt(forgery)
    return blamed, list(forgery.audit().findings)


def same_stream(log: Forgery, count: int) -> list[ObservationEvent]:
    first = log.one(ObservationEvent)
    return log.all(ObservationEvent, lambda o: o.stream == first.stream)[:count]


# --- 1: streams -------------------------------------------------------------------------------------------


def swap_two_observations(log: Forgery) -> str:
    one, two = same_stream(log, 2)
    log.swap(one, two)
    return one.id


def drop_an_observation(log: Forgery) -> str:
    _, two, three = same_stream(log, 3)
    log.drop(two)
    return three.id


def duplicate_an_observation(log: Forgery) -> str:
    one = log.one(ObservationEvent)
    log.add(one, one)
    return one.id


def shift_an_event_time(log: Forgery) -> str:
    late = same_stream(log, 2)[1]
    return log.change(late, event_time_us=late.event_time_us - 3_600_000_000).id


def shift_bounds(log: Forgery) -> str:
    closed = log.one(SegmentClosedEvent, lambda e: e.segment == 1)
    return log.change(closed, first_seq=closed.first_seq + 1).id


def skip_a_segment_number(log: Forgery) -> str:
    closed = log.one(SegmentClosedEvent, lambda e: e.segment == 1)
    number = closed.segment + 7
    return log.change(closed, segment=number, as_of=number, id=f"{closed.stream}/segment/{number}").id


def drop_a_segment_end(log: Forgery) -> str:
    closed = log.one(SegmentClosedEvent, lambda e: e.segment == 0)
    log.drop(closed)
    return f"sys0@{closed.stream}/delta/0"


def observation_after_the_end(log: Forgery) -> str:
    ended = log.one(StreamEndedEvent)
    last = log.all(ObservationEvent, lambda o: o.stream == ended.stream)[-1]
    more = replace(
        last, seq=last.seq + 1, id=f"{last.stream}/obs/{last.seq + 1}", event_time_us=ended.event_time_us
    )
    log.add(more, ended)
    return more.id


def miscount_a_stream(log: Forgery) -> str:
    ended = log.one(StreamEndedEvent)
    return log.change(ended, observations=ended.observations + 1).id


def drop_the_end_of_a_stream(log: Forgery) -> str:
    log.drop(log.one(StreamEndedEvent))
    return "replay/ended"


def miscount_the_replay(log: Forgery) -> str:
    return log.change(log.one(ReplayEndedEvent), observations=1).id


# --- 2: deltas --------------------------------------------------------------------------------------------


def late_delta(log: Forgery) -> DeltaEvent:
    return log.one(DeltaEvent, lambda d: d.segment == 1)


def drop_a_delta(log: Forgery) -> str:
    delta = late_delta(log)
    log.drop(delta)
    return delta.id


def two_deltas(log: Forgery) -> str:
    delta = late_delta(log)
    log.add(delta, delta)
    return delta.id


def swap_two_deltas(log: Forgery) -> str:
    delta = late_delta(log)
    before = log.one(DeltaEvent, lambda d: d.lane == delta.lane and d.segment == 0)
    log.swap(before, delta)
    return before.id


def forge_as_of_of_a_delta(log: Forgery) -> str:
    return log.change(late_delta(log), as_of=0).id


def forge_the_causes_of_a_delta(log: Forgery) -> str:
    return log.change(late_delta(log), causes=("S0/segment/0",)).id


def delta_at_another_time(log: Forgery) -> str:
    delta = late_delta(log)
    return log.change(delta, event_time_us=delta.event_time_us + 1_000_000).id


def delta_before_its_segment_closed(log: Forgery) -> str:
    delta = late_delta(log)
    log.set_wall(delta, "began_us", log.world.wall_us - 3_600_000_000)
    return delta.id


def delta_newer_than_its_segment(log: Forgery) -> str:
    delta = late_delta(log)
    record = replace(delta.records[0], event_time_us=delta.event_time_us + 1)
    return log.change(delta, records=(record,)).id


# --- 3: tasks and what answers rest on --------------------------------------------------------------------


def answer(log: Forgery, phase: str = "R1", arm: str = "committed") -> ResponseEvent:
    return log.one(ResponseEvent, lambda r: r.phase == phase and r.arm == arm)


def rests_on(log: Forgery, response: ResponseEvent, record: MemoryRecord, **fields: object) -> str:
    found = RetrievedRecord(id=record.id, text=record.text, event_time_us=record.event_time_us)
    return log.change(response, retrieved=(replace(found, **fields),)).id  # type: ignore[arg-type]  # names of fields


def from_a_newer_segment(log: Forgery) -> str:
    response = log.one(
        ResponseEvent,
        lambda r: bool(log.all(DeltaEvent, lambda d: d.lane == r.lane and d.segment > (r.as_of or 0))),
    )
    later = log.one(DeltaEvent, lambda d: d.lane == response.lane and d.segment > (response.as_of or 0))
    return rests_on(log, response, later.records[0], event_time_us=response.event_time_us)


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


# --- 4: what follows what ---------------------------------------------------------------------------------


def revised(log: Forgery) -> FeedbackEvent:
    return log.one(FeedbackEvent, lambda f: f.type == "revise")


def affirmed(log: Forgery) -> FeedbackEvent:
    return log.one(FeedbackEvent, lambda f: f.type == "affirm")


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


# --- 5: isolation -----------------------------------------------------------------------------------------


def commit_elsewhere(log: Forgery) -> tuple[CommittedEvent, str]:
    """A commit, and another trajectory of its lane."""
    for committed in log.all(CommittedEvent):
        for task in log.all(TaskEvent):
            if task.lane == committed.lane and task.trajectory != committed.trajectory:
                return committed, task.trajectory
    raise LookupError


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


# --- 6: what nobody may read too early --------------------------------------------------------------------


def anchor_of(log: Forgery, trajectory: str) -> AnchorEvent:
    return log.one(
        AnchorEvent,
        lambda a: (
            trajectory.endswith(a.anchor.removeprefix(f"{a.stream}/")) and f"@{a.stream}/" in trajectory
        ),
    )


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


# --- 7: verdicts ------------------------------------------------------------------------------------------


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


# --- form: what every event must be -----------------------------------------------------------------------


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


# --- canaries ---------------------------------------------------------------------------------------------


def planted(log: Forgery) -> tuple[str, str, int]:
    """A mark that was planted after some segment, its stream, and that segment."""
    for observation in log.all(ObservationEvent, lambda o: "canary" in o.text):
        closed = log.one(
            SegmentClosedEvent, lambda c, o=observation: c.stream == o.stream and c.last_seq >= o.seq
        )
        if closed.segment > 0:
            return mark_of(3, observation.stream, observation.seq), observation.stream, closed.segment
    raise LookupError


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
    ("seq_order", swap_two_observations),
    ("seq_gap", drop_an_observation),
    ("seq_order", duplicate_an_observation),
    ("time_order", shift_an_event_time),
    ("segment_bounds", shift_bounds),
    ("segment_order", skip_a_segment_number),
    ("delta_without_segment", drop_a_segment_end),
    ("after_end", observation_after_the_end),
    ("stream_end", miscount_a_stream),
    ("stream_missing", drop_the_end_of_a_stream),
    ("replay_total", miscount_the_replay),
    ("delta_missing", drop_a_delta),
    ("delta_twice", two_deltas),
    ("delta_order", swap_two_deltas),
    ("delta_as_of", forge_as_of_of_a_delta),
    ("delta_causes", forge_the_causes_of_a_delta),
    ("delta_time", delta_at_another_time),
    ("delta_early", delta_before_its_segment_closed),
    ("delta_newer", delta_newer_than_its_segment),
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
    ("foreign_commit", anothers_commit),
    ("before_commit", its_own_commit_too_early),
    ("uncommitted_sees_commit", commit_in_the_arm_without),
    ("commit_in_main", commit_in_the_main_memory),
    ("conversation_in_main", conversation_in_the_main_memory),
    ("foreign_conversation", conversation_in_another_commit),
    ("foreign_lane", record_of_another_lane),
    ("uncommitted_branch", branch_not_kept),
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
    ("trajectory", drop_an_anchor),
    ("anchor_time", move_an_anchor),
    ("release_missing", never_released),
    ("canary_early", canary_before_its_time),
    ("canary_stream", canary_in_another_stream),
    ("canary_unknown", canary_that_nobody_planted),
    ("canary_moved", canary_moved),
]


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


SHARED_CORRUPTIONS: list[tuple[str, Corruption]] = [
    ("interleaved", interleave_trajectories),
    ("ingest_between", ingest_before_the_commit),
    ("foreign_commit", commit_of_a_later_turn),
]


@pytest.mark.parametrize("shape", [BRANCH, SHARED], ids=["branch", "shared"])
def test_the_log_to_be_corrupted_is_sound(shape: Shape) -> None:
    certificate = world(shape).audit()
    assert certificate.findings == ()
    assert all(certificate.checked.values())


@pytest.mark.parametrize(("rule", "corrupt"), CORRUPTIONS, ids=[c.__name__ for _, c in CORRUPTIONS])
def test_corruption_is_found(rule: str, corrupt: Corruption) -> None:
    check(BRANCH, rule, corrupt)


@pytest.mark.parametrize(
    ("rule", "corrupt"), SHARED_CORRUPTIONS, ids=[c.__name__ for _, c in SHARED_CORRUPTIONS]
)
def test_corruption_of_a_shared_memory_is_found(rule: str, corrupt: Corruption) -> None:
    check(SHARED, rule, corrupt)


def check(shape: Shape, rule: str, corrupt: Corruption) -> None:
    blamed, findings = forge(shape, corrupt)
    blames = [(finding.rule, finding.events) for finding in findings]
    assert any(found == rule and blamed in events for found, events in blames), blames
    assert all(finding.explanation for finding in findings)
