"""The protocol that asks once: one trajectory, and many of them under any interleaving."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.events import Event, ProbeEvent, TaskEvent, TrajectoryClosedEvent
from simulator.protocols.probe import ProbeTrajectory
from simulator.protocols.subjects import new_trajectory
from simulator.protocols.trajectory import INPUTS, input_of, trajectory_id
from tests.protocols.probes import probe_of, verdict_of
from tests.protocols.scripted import END_US, LANE, anchor_of, delta_of, ieu_of, refuses_each, response_to

HOUR_US = 3_600_000_000


def begun(probe: ProbeEvent | None = None) -> tuple[ProbeTrajectory, TaskEvent]:
    probe = probe or probe_of()
    trajectory = ProbeTrajectory(lane=LANE, anchor=probe)
    (task,) = trajectory.feed(delta_of(probe))
    assert isinstance(task, TaskEvent)
    return trajectory, task


def closed_by(events: list[Event]) -> TrajectoryClosedEvent:
    (closed,) = events
    assert isinstance(closed, TrajectoryClosedEvent)
    return closed


@pytest.mark.parametrize(
    ("asked_us", "at_us"), [(END_US, END_US), (END_US + HOUR_US, END_US + HOUR_US), (0, END_US)]
)
def test_it_is_asked_once_when_it_is_due_and_never_before_its_segment_ends(asked_us: int, at_us: int) -> None:
    probe = probe_of(asked_us=asked_us)
    trajectory, task = begun(probe)
    assert (task.id, task.phase, task.step, task.text) == (f"{LANE}/s9/p0/T1", "T1", 0, probe.text)
    assert (task.event_time_us, task.as_of, task.causes) == (at_us, 9, (f"{LANE}/delta/9",))
    closed = closed_by(trajectory.feed(response_to(task)))
    assert (closed.reason, closed.unjudged, closed.causes) == ("", (), (f"{LANE}/s9/p0/R1",))
    assert (closed.event_time_us, closed.anchor) == (at_us, "A1_JAKE/s9/p0")
    assert trajectory.closed
    assert trajectory.give_up("too late") == []


def test_nothing_that_agents_read_holds_the_gold() -> None:
    trajectory, task = begun()
    wire = b"".join(msgspec.json.encode(event) for event in (task, *trajectory.feed(response_to(task))))
    for secret in (b"gold", b"its own name"):
        assert secret not in wire


def test_a_failure_leaves_all_of_its_metrics_unjudged() -> None:
    probe = probe_of(metrics=("ndcg@20", "qa", "helpful"))
    spoilt = ProbeTrajectory(lane=LANE, anchor=probe)
    closed = closed_by(spoilt.feed(delta_of(probe, error="disk full")))
    assert (closed.reason, closed.unjudged) == ("ingest failed: disk full", ("ndcg@20", "qa", "helpful"))
    trajectory, task = begun(probe)
    closed = closed_by(trajectory.feed(response_to(task, "out of memory")))
    assert (closed.reason, closed.unjudged) == ("R1 failed: out of memory", ("ndcg@20", "qa", "helpful"))
    silent, _ = begun(probe)
    closed = closed_by(silent.give_up("no answer within 1 s"))
    assert (closed.reason, closed.unjudged) == ("no answer within 1 s", ("ndcg@20", "qa", "helpful"))
    unbegun = ProbeTrajectory(lane=LANE, anchor=replace(probe, asked_time_us=END_US + 1))
    assert closed_by(unbegun.give_up("the lane failed")).event_time_us == END_US + 1


@pytest.mark.parametrize("phase", ["before", "asked", "closed"])
def test_what_can_not_be_right_is_refused_with_its_ids_and_changes_nothing(phase: str) -> None:
    asked, task = begun()
    answer = response_to(task)
    trajectory = ProbeTrajectory(lane=LANE, anchor=probe_of()) if phase == "before" else asked
    if phase == "closed":
        trajectory.feed(answer)
    anchor = anchor_of()
    wrong: list[Event] = [
        response_to(replace(task, phase="T2", step=6)),
        replace(answer, id="another R1", as_of=10),
        replace(answer, id="another R1", step=3),
        replace(answer, id="another R1", event_time_us=END_US + 1),
        replace(answer, id="another R1", trajectory=f"{LANE}/s9/p1"),
        replace(answer, id="another R1", lane="null@A1_JAKE"),
        replace(answer, id="another R1", run="another"),
        replace(answer, phase="R_F", id="R_F"),
        replace(answer, arm="uncommitted", id="odd"),
        replace(answer, id=f"{LANE}/delta/9"),
        ieu_of(trajectory.id, LANE, anchor, "pass"),
        ieu_of(trajectory.id, LANE, anchor, "unjudged"),
        delta_of(probe_of(segment=10)),
    ]
    wrong += [replace(delta_of(probe_of()), id="another delta")] if phase != "before" else [answer]
    wrong += [replace(answer, id="another R1")] if phase == "closed" else []
    refuses_each(trajectory, wrong)


def test_verdicts_and_what_it_gave_itself_change_nothing() -> None:
    probe = probe_of()
    trajectory, task = begun(probe)
    before = msgspec.json.encode(trajectory)
    for event in (task, verdict_of(trajectory.id, probe, "qa"), verdict_of(trajectory.id, probe, "ndcg@10")):
        assert trajectory.feed(event) == []
    assert msgspec.json.encode(trajectory) == before


def test_the_subject_says_which_protocol_it_is() -> None:
    assert isinstance(new_trajectory(LANE, probe_of()), ProbeTrajectory)
    assert not isinstance(new_trajectory(LANE, anchor_of()), ProbeTrajectory)
    assert trajectory_id(LANE, probe_of()) == f"{LANE}/s9/p0"


class Fate(NamedTuple):
    """What fails, when it is due, and whether the conductor loses patience before R1."""

    fails: str | None
    asked_us: int
    given_up: bool


FATES = st.builds(
    Fate, st.sampled_from([None, None, "delta", "R1"]), st.sampled_from([0, END_US + 5]), st.booleans()
)


@settings(max_examples=150, deadline=None)
@given(fates=st.lists(FATES, min_size=1, max_size=8), data=st.data())
def test_any_interleaving_of_many_ends_each_in_order(fates: list[Fate], data: st.DataObject) -> None:
    lanes = [f"{system}@A1_JAKE" for system in ("null", "oracle")]
    places = [
        (lane, probe_of(number=number, asked_us=fate.asked_us))
        for number, fate in enumerate(fates)
        for lane in lanes[: 1 + number % 2]
    ]
    trajectories = {
        trajectory_id(lane, probe): ProbeTrajectory(lane=lane, anchor=probe) for lane, probe in places
    }
    fate_of = {key: fates[int(key.rpartition("p")[2])] for key in trajectories}
    on_the_way: list[tuple[str, Event]] = [
        (key, delta_of(t.anchor, t.lane, "disk full" if fate_of[key].fails == "delta" else None))
        for key, t in trajectories.items()
    ]
    took: dict[str, list[Event]] = {key: [] for key in trajectories}
    gave: dict[str, list[Event]] = {key: [] for key in trajectories}
    states: dict[str, list[bytes]] = {key: [] for key in trajectories}
    while on_the_way:
        key, event = on_the_way.pop(data.draw(st.integers(0, len(on_the_way) - 1)))
        trajectory = trajectories[key]
        repeated = event in took[key]
        out = trajectory.feed(event)
        assert not (repeated and out)
        took[key].append(event)
        states[key].append(msgspec.json.encode(trajectory))
        gave[key] += out
        for given_event in out:
            if isinstance(given_event, TaskEvent):
                if fate_of[key].given_up:
                    gave[key] += trajectory.give_up("no answer")
                else:
                    error = "out of memory" if fate_of[key].fails == "R1" else None
                    on_the_way.append((key, response_to(given_event, error)))
                on_the_way.append((key, verdict_of(key, trajectory.anchor, "qa", trajectory.lane)))
        if not repeated and data.draw(st.integers(0, 2)) == 0:
            on_the_way.append((key, data.draw(st.sampled_from(took[key]))))

    assert max(Counter(event.id for events in gave.values() for event in events).values()) == 1
    for key, trajectory in trajectories.items():
        fate, events = fate_of[key], gave[key]
        assert trajectory.closed
        assert [e.id.rpartition("/")[2] for e in events] == (["T1"] if fate.fails != "delta" else []) + [
            "closed"
        ]
        closed = events[-1]
        assert isinstance(closed, TrajectoryClosedEvent)
        whole = fate.fails is None and not fate.given_up
        assert closed.unjudged == (() if whole else trajectory.anchor.metrics)
        assert bool(closed.reason) != whole
        taken = {event.id for event in took[key]}
        assert all(cause in taken for event in events for cause in event.causes)
        if fate.given_up and fate.fails != "delta":
            continue  # by the conductor's clock, which is in no event
        # a fold: what the log holds, fed again, gives the state it had then, and in causal order the same events
        prefix = data.draw(st.integers(1, len(took[key])))
        assert msgspec.json.encode(_refed(trajectory, took[key][:prefix])[0]) == states[key][prefix - 1]
        assert _refed(trajectory, took[key]) == (trajectory, events)
        causal = sorted(took[key], key=lambda event: INPUTS.index(input_of(event) or "R2"))
        assert _refed(trajectory, causal) == (trajectory, events)
        stored = msgspec.json.decode(msgspec.json.encode(trajectory), type=ProbeTrajectory)
        assert stored == trajectory


def _refed(trajectory: ProbeTrajectory, events: list[Event]) -> tuple[ProbeTrajectory, list[Event]]:
    fresh = ProbeTrajectory(lane=trajectory.lane, anchor=trajectory.anchor)
    return fresh, [out for event in events for out in fresh.feed(event)]
