"""The state machine of one trajectory, and many of them under any interleaving."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.errors import InvariantError
from simulator.events import (
    CommitEvent,
    Event,
    FeedbackDraft,
    LaneEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
    Turn,
    kind_of,
)
from simulator.protocols.streammembench import BASIS, AnchorTrajectory, expected_metrics
from simulator.protocols.trajectory import INPUTS, STEPS, Input, input_of, trajectory_id
from tests.protocols.scripted import (
    END_US,
    LANE,
    Fate,
    anchor_of,
    answers,
    delta_of,
    ieu_of,
    refuses_each,
    response_to,
    run_through,
)


def names(events: list[Event]) -> list[str]:
    return [event.id.rsplit("/", 1)[1] for event in events]


def test_affirmed_trajectory_goes_from_t1_to_r2() -> None:
    trajectory, _, gave = run_through(Fate(None, "pass"))
    assert names(gave) == ["T1", "F", "commit", "T2", "closed"]
    assert trajectory.closed
    commit = gave[2]
    assert isinstance(commit, CommitEvent)
    assert commit.interaction == (
        Turn(role="user", text="first A1_JAKE/s9/e0"),
        Turn(role="assistant", text="answer R1"),
        Turn(role="user", text="F pass"),
    )
    closed = gave[-1]
    assert isinstance(closed, TrajectoryClosedEvent)
    assert (closed.reason, closed.unjudged) == ("", ())


def test_revised_trajectory_commits_the_second_answer_too() -> None:
    _, _, gave = run_through(Fate(None, "fail"))
    assert names(gave) == ["T1", "F", "commit", "T2", "closed"]
    commit = gave[2]
    assert isinstance(commit, CommitEvent)
    assert [turn.text for turn in commit.interaction][2:] == ["F fail", "answer R_F"]
    assert [turn.role for turn in commit.interaction] == ["user", "assistant", "user", "assistant"]


def test_ablation_asks_t2_in_both_arms() -> None:
    _, _, gave = run_through(Fate(None, "pass"), ablate=True)
    assert names(gave) == ["T1", "F", "commit", "T2", "T2-uncommitted", "closed"]
    assert isinstance(gave[2], CommitEvent)
    assert gave[2].keep_uncommitted
    tasks = [event for event in gave if isinstance(event, TaskEvent)]
    assert [(task.phase, task.arm, task.step) for task in tasks] == [
        ("T1", "committed", 0),
        ("T2", "committed", 6),
        ("T2", "uncommitted", 8),
    ]
    assert tasks[1].text == tasks[2].text == "second A1_JAKE/s9/e0"


def test_events_stand_at_the_end_of_their_segment_and_name_their_causes() -> None:
    _, _, gave = run_through(Fate(None, "fail"))
    by_name = dict(zip(names(gave), gave, strict=True))
    place = f"{LANE}/s9/e0"
    assert {(e.run, e.stream, e.as_of, e.event_time_us) for e in gave} == {("run", "A1_JAKE", 9, END_US)}
    assert all(isinstance(e, LaneEvent) and e.lane == LANE for e in gave)
    assert {name: event.causes for name, event in by_name.items()} == {
        "T1": (f"{LANE}/delta/9",),
        "F": (f"{place}/R1", f"{place}/ieu"),
        "commit": (f"{place}/R_F",),
        "T2": (f"{place}/committed",),
        "closed": (f"{place}/R2",),
    }
    steps = {name: e.step for name, e in by_name.items() if isinstance(e, TrajectoryEvent)}
    assert steps == {"T1": 0, "F": 2, "commit": 4, "T2": 6}


def test_nothing_that_agents_read_holds_the_gold() -> None:
    _, _, gave = run_through(Fate(None, "fail"), ablate=True)
    wire = b"".join(msgspec.json.encode(event) for event in gave)
    assert b"gold" not in wire
    assert b"shure_coffee" not in wire


@pytest.mark.parametrize(
    ("fate", "emitted", "reason", "unjudged"),
    [
        (Fate("delta", "pass"), [], "ingest failed: disk full", ("fidelity", "ieu", "fi", "fur")),
        (Fate("R1", "pass"), ["T1"], "R1 failed: out of memory", ("ieu", "fi", "fur")),
        (Fate(None, "unjudged"), ["T1"], "no feedback could be given: judge down", ("fur",)),
        (Fate("R_F", "fail"), ["T1", "F"], "R_F failed: out of memory", ("fi", "fur")),
        (Fate("committed", "pass"), ["T1", "F", "commit"], "commit failed: out of memory", ("fur",)),
        (Fate("committed", "fail"), ["T1", "F", "commit"], "commit failed: out of memory", ("fur",)),
        (Fate("R2", "fail"), ["T1", "F", "commit", "T2"], "R2 failed: out of memory", ("fur",)),
    ],
)
def test_a_failure_closes_the_trajectory_and_names_what_cannot_be_judged(
    fate: Fate, emitted: list[str], reason: str, unjudged: tuple[str, ...]
) -> None:
    trajectory, _, gave = run_through(fate)
    assert names(gave) == [*emitted, "closed"]
    assert trajectory.closed
    closed = gave[-1]
    assert isinstance(closed, TrajectoryClosedEvent)
    assert (closed.reason, closed.unjudged) == (reason, unjudged)


@pytest.mark.parametrize(("arm", "metric"), [("R2", "fur"), ("R2-uncommitted", "fur_uncommitted")])
def test_one_failed_arm_leaves_the_other_judged(arm: Input, metric: str) -> None:
    trajectory, took, gave = run_through(Fate(arm, "pass"), ablate=True)
    assert {"R2", "R2-uncommitted"} <= trajectory.taken.keys()
    closed = gave[-1]
    assert isinstance(closed, TrajectoryClosedEvent)
    assert closed.unjudged == (metric,)
    assert len(took) == 6


def test_the_verdict_on_r1_may_arrive_before_r1() -> None:
    anchor = anchor_of()
    early, late = (AnchorTrajectory(lane=LANE, anchor=anchor) for _ in range(2))
    (task,) = early.feed(delta_of(anchor))
    late.feed(delta_of(anchor))
    assert isinstance(task, TaskEvent)
    answer, verdict = response_to(task), ieu_of(early.id, LANE, anchor, "fail")
    assert early.feed(verdict) == []
    assert early.waiting == ("R1",)
    assert early.feed(answer) == late.feed(answer) + late.feed(verdict) != []
    assert early == late


def test_an_unjudged_verdict_of_a_failed_ingest_may_come_on_either_side() -> None:
    anchor = anchor_of()
    for before in (True, False):
        trajectory = AnchorTrajectory(lane=LANE, anchor=anchor)
        events: list[Event] = [delta_of(anchor, error="disk full")]
        events.insert(0 if before else 1, ieu_of(trajectory.id, LANE, anchor, "unjudged"))
        assert names([out for event in events for out in trajectory.feed(event)]) == ["closed"]


def test_an_unjudged_verdict_before_the_delta_is_kept_until_r1_is_there() -> None:
    anchor = anchor_of()
    trajectory = AnchorTrajectory(lane=LANE, anchor=anchor)
    assert trajectory.feed(ieu_of(trajectory.id, LANE, anchor, "unjudged")) == []
    (task,) = trajectory.feed(delta_of(anchor))
    assert trajectory.waiting == ("R1",)
    assert isinstance(task, TaskEvent)
    assert names(trajectory.feed(response_to(task))) == ["closed"]


def test_what_cannot_be_right_is_refused_with_its_ids() -> None:
    anchor = anchor_of()
    trajectory = AnchorTrajectory(lane=LANE, anchor=anchor)
    verdict = ieu_of(trajectory.id, LANE, anchor, "pass")
    with pytest.raises(InvariantError, match="waits for delta") as refused:
        trajectory.feed(verdict)
    assert refused.value.events == (verdict.id,)
    (task,) = trajectory.feed(delta_of(anchor))
    assert isinstance(task, TaskEvent)
    answer = response_to(task)
    early_r2 = response_to(replace(task, phase="T2", step=6))
    wrong: list[Event] = [
        early_r2,
        replace(answer, as_of=10),
        replace(answer, step=3),
        replace(answer, phase="R_F"),
        replace(answer, arm="uncommitted"),
        replace(answer, trajectory=f"{LANE}/s9/e1"),
        replace(answer, lane="null@A1_JAKE"),
        replace(answer, run="another"),
        replace(answer, id=f"{LANE}/delta/9"),
        delta_of(anchor_of(segment=10)),
        replace(delta_of(anchor), id="another delta"),
        replace(verdict, feedback=None),
        replace(verdict, feedback=FeedbackDraft(type="revise", text="no")),
    ]
    refuses_each(trajectory, wrong)


def test_a_failed_r1_that_was_judged_is_refused() -> None:
    anchor = anchor_of()
    trajectory = AnchorTrajectory(lane=LANE, anchor=anchor)
    (task,) = trajectory.feed(delta_of(anchor))
    assert isinstance(task, TaskEvent)
    trajectory.feed(ieu_of(trajectory.id, LANE, anchor, "fail"))
    with pytest.raises(InvariantError, match="yet it was judged"):
        trajectory.feed(response_to(task, error="boom"))


def test_after_the_close_duplicates_are_ignored_and_anything_else_is_refused() -> None:
    trajectory, took, _ = run_through(Fate(None, "fail"))
    assert [out for event in took for out in trajectory.feed(event)] == []
    second = replace(took[1], id="another R1")
    with pytest.raises(InvariantError, match="two of R1") as refused:
        trajectory.feed(second)
    assert set(refused.value.events) == {took[1].id, "another R1"}


def test_events_that_drive_no_trajectory_change_nothing() -> None:
    trajectory, _, gave = run_through(Fate(None, "pass"))
    before = msgspec.json.encode(trajectory)
    fidelity = replace(
        ieu_of(trajectory.id, LANE, trajectory.anchor, "pass"), metric="fidelity", feedback=None
    )
    assert [out for event in [*gave, fidelity] for out in trajectory.feed(event)] == []
    assert msgspec.json.encode(trajectory) == before


def test_expected_metrics_ask_for_fi_only_where_r1_failed() -> None:
    assert expected_metrics("pass") == ("fidelity", "ieu", "fur")
    assert expected_metrics("fail") == ("fidelity", "ieu", "fi", "fur")
    assert expected_metrics("unjudged") == expected_metrics(None) == ("fidelity", "ieu", "fur")
    assert expected_metrics("fail", ablate_commit=True)[-1] == "fur_uncommitted"


FATES = st.builds(
    Fate, st.sampled_from([None, None, None, *INPUTS]), st.sampled_from(["pass", "fail", "unjudged"])
)


@settings(max_examples=150, deadline=None)
@given(fates=st.lists(FATES, min_size=1, max_size=8), ablate=st.booleans(), data=st.data())
def test_any_interleaving_of_many_trajectories_ends_each_in_order(
    fates: list[Fate], ablate: bool, data: st.DataObject
) -> None:
    lanes = [f"{system}@A1_JAKE" for system in ("null", "oracle")]
    places = [(lane, anchor_of(number=number)) for lane in lanes for number in range(4)][: len(fates)]
    trajectories = {
        trajectory_id(lane, anchor): AnchorTrajectory(lane=lane, anchor=anchor, ablate_commit=ablate)
        for lane, anchor in places
    }
    fate_of = dict(zip(trajectories, fates, strict=False))
    on_the_way: list[tuple[str, Event]] = []
    for key, trajectory in trajectories.items():
        error = "disk full" if fate_of[key].fails == "delta" else None
        on_the_way.append((key, delta_of(trajectory.anchor, trajectory.lane, error)))
    took: dict[str, list[Event]] = defaultdict(list)
    gave: dict[str, list[Event]] = defaultdict(list)
    states: dict[str, list[bytes]] = defaultdict(list)
    while on_the_way:
        at = data.draw(st.integers(0, len(on_the_way) - 1))
        key, event = on_the_way.pop(at)
        trajectory = trajectories[key]
        repeated = event.id in {seen.id for seen in took[key]}
        out = trajectory.feed(event)
        assert not (repeated and out)
        took[key].append(event)
        states[key].append(msgspec.json.encode(trajectory))
        gave[key] += out
        for given_event in out:
            answered = answers(fate_of[key], trajectory.lane, trajectory.anchor, given_event)
            on_the_way += [(key, answer) for answer in answered]
        if not repeated and data.draw(st.integers(0, 3)) == 0:
            on_the_way.append((key, data.draw(st.sampled_from(took[key]))))

    emitted = [event for events in gave.values() for event in events]
    assert max(Counter(event.id for event in emitted).values()) == 1
    for key, trajectory in trajectories.items():
        fate, events = fate_of[key], gave[key]
        assert trajectory.closed
        assert kind_of(events[-1]) == "trajectory_closed"
        steps = [event.step for event in events if isinstance(event, TrajectoryEvent)]
        assert steps == sorted(steps)
        assert names(events) == expected_events(fate, ablate)
        taken = {event.id for event in took[key]}
        assert all(cause in taken for event in events for cause in event.causes)
        closed = events[-1]
        assert isinstance(closed, TrajectoryClosedEvent)
        # Without a verdict on R1 yet, nobody knows whether R_F would have been asked for.
        asked = expected_metrics(trajectory.ieu or "fail", ablate_commit=ablate)
        judged_on = {BASIS[metric] for metric in asked}
        assert {BASIS[metric] for metric in closed.unjudged} == judged_on - (
            trajectory.taken.keys() - trajectory.failures.keys()
        )
        # A fold: every prefix fed again gives the state it had then, and in causal order the same events.
        prefix = data.draw(st.integers(1, len(took[key])))
        assert msgspec.json.encode(refed(trajectory, took[key][:prefix])[0]) == states[key][prefix - 1]
        again, same = refed(trajectory, took[key])
        assert (again, same) == (trajectory, events)
        causal = sorted(took[key], key=lambda event: INPUTS.index(input_of(event) or "delta"))
        again, same = refed(trajectory, causal)
        assert again.closed
        assert same == events


def refed(trajectory: AnchorTrajectory, events: list[Event]) -> tuple[AnchorTrajectory, list[Event]]:
    fresh = AnchorTrajectory(
        lane=trajectory.lane, anchor=trajectory.anchor, ablate_commit=trajectory.ablate_commit
    )
    return fresh, [out for event in events for out in fresh.feed(event)]


def expected_events(fate: Fate, ablate: bool) -> list[str]:
    """Written out apart from the state machine: what a fate must lead to."""
    if fate.fails == "delta":
        return ["closed"]
    if fate.fails == "R1" or fate.outcome == "unjudged":
        return ["T1", "closed"]
    if fate.outcome == "fail" and fate.fails == "R_F":
        return ["T1", "F", "closed"]
    if fate.fails == "committed":
        return ["T1", "F", "commit", "closed"]
    arms = ["T2", "T2-uncommitted"] if ablate else ["T2"]
    return ["T1", "F", "commit", *arms, "closed"]


def test_a_prefix_from_the_log_gives_the_state_it_had_then() -> None:
    _, took, _ = run_through(Fate(None, "fail"), ablate=True)
    live = AnchorTrajectory(lane=LANE, anchor=anchor_of(), ablate_commit=True)
    for length, event in enumerate(took, 1):
        live.feed(event)
        again, _ = refed(live, took[:length])
        assert again == live
        stored = msgspec.json.decode(msgspec.json.encode(live), type=AnchorTrajectory)
        assert stored == live


def test_steps_count_up_along_the_protocol() -> None:
    assert list(STEPS.values()) == list(range(10))
