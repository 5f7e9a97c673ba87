"""Valid runs give no finding: random ones by the thousand, ended or under way."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.audit import AUDIT_TOPICS, Auditor
from producers.conductor import Conductor
from simulator.events import (
    CommittedEvent,
    DeadLetterEvent,
    DeltaEvent,
    FeedbackEvent,
    LaneFailedEvent,
    MemoryRecord,
    ObservationEvent,
    OutlineEvent,
    ProbeEvent,
    ResponseEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from simulator.intake import decode_records
from tests.audit.forgery import Forgery
from tests.audit.worlds import Shape, World

shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**32),
    streams=st.integers(1, 3),
    segments=st.integers(1, 5),
    anchors=st.integers(0, 5),
    systems=st.integers(1, 2),
    partitions=st.integers(1, 3),
    isolation=st.sampled_from(["branch", "shared"]),
    ablate=st.booleans(),
    failing=st.sampled_from([0.0, 0.0, 0.1, 0.4]),
    outages=st.sampled_from([0.0, 0.0, 0.2]),
    attached=st.booleans(),
    silent_after=st.none() | st.integers(0, 12),
    canaries=st.integers(0, 6),
    restarts=st.booleans(),
    rubbish=st.booleans(),
    probes=st.booleans(),
).map(lambda shape: shape if shape.isolation == "branch" and not shape.probes else _without_ablation(shape))


def _without_ablation(shape: Shape) -> Shape:
    return replace(shape, ablate=False)


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes)
def test_a_thousand_random_runs_give_no_finding(shape: Shape) -> None:
    certificate = World(shape).run().audit()
    assert certificate.findings == ()
    assert certificate.open == ()
    assert certificate.ended


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes, st.integers(0, 150))
def test_a_run_under_way_is_open_and_breaks_nothing(shape: Shape, steps: int) -> None:
    world = World(shape).run(steps)
    certificate = world.audit()
    assert certificate.findings == ()
    assert certificate.ended == world.ended
    if not world.ended:
        assert certificate.open
    else:  # a run with nothing to ask ends with its deltas: the replay's own end may be written after it
        owed = ("published, and no end", "its replay has not said so yet")
        assert all(note.endswith(owed) for note in certificate.open)


@pytest.mark.parametrize(("segment", "findings"), [(0, []), (1, ["commit_in_main"])])
def test_a_record_that_a_commit_and_later_the_main_memory_rewrite_alike_is_no_leak_if_it_was_there_before(
    segment: int, findings: list[str]
) -> None:
    log = Forgery(World(Shape(seed=3, segments=4, anchors=6)).run())
    committed = log.one(CommittedEvent, lambda event: event.as_of == 0 and event.error is None)
    deltas = log.all(DeltaEvent, lambda event: event.lane == committed.lane)
    old = MemoryRecord(id="s0/m0", text="a page", event_time_us=0)
    new = replace(old, op="update", text="a page, with a summary")
    log.change(deltas[segment], records=(*deltas[segment].records, old))
    log.change(deltas[2], records=(*deltas[2].records, new))
    log.change(committed, records=(*committed.records, new))
    assert [finding.rule for finding in log.audit().findings] == findings


def test_random_runs_are_of_all_kinds() -> None:
    """Else a thousand of them would show little."""
    seen: set[str] = set()
    for seed in range(60):
        shape = Shape(
            seed=seed,
            streams=2,
            anchors=4,
            systems=2,
            partitions=2,
            ablate=seed % 2 == 0,
            failing=0.1,
            outages=0.1,
            attached=True,
            silent_after=seed % 30,
            rubbish=True,
        )
        for event in World(shape).run().events():
            match event:
                case DeltaEvent(error=str()) | ResponseEvent(error=str()):
                    seen.add("failed")
                case DeltaEvent() if {record.op for record in event.records} > {"add"}:
                    seen.add("changed")
                case FeedbackEvent():
                    seen.add(event.type)
                case ResponseEvent(phase="R2"):
                    seen.add(event.arm)
                case LaneFailedEvent():
                    seen.add("lane given up")
                case TrajectoryClosedEvent(reason="no answer within 1 s"):
                    seen.add("trajectory given up")
                case DeadLetterEvent():
                    seen.add("buried")
                case VerdictEvent() if event.votes:
                    seen.add("voted")
                case VerdictEvent(reason="the judge is down"):
                    seen.add("outage")
    assert seen == {
        *(
            "failed",
            "changed",
            "affirm",
            "revise",
            "committed",
            "uncommitted",
            "lane given up",
            "trajectory given up",
        ),
        *("buried", "voted", "outage"),
    }


def test_random_runs_of_probes_are_of_all_kinds() -> None:
    seen: set[str] = set()
    for seed in range(60):
        shape = Shape(
            seed=seed,
            streams=2,
            anchors=6,
            systems=2,
            partitions=2,
            failing=0.1,
            outages=0.1,
            attached=True,
            silent_after=seed % 30,
            probes=True,
        )
        for event in World(shape).run().events():
            match event:
                case ProbeEvent() if event.asked_time_us != event.event_time_us:
                    seen.add("due later" if event.asked_time_us > event.event_time_us else "asked offline")
                case OutlineEvent() if event.sessions:
                    seen.add("sessions")
                case ResponseEvent() if event.text.startswith("You ask: "):
                    seen.add("echo")
                case TrajectoryClosedEvent() if event.unjudged:
                    seen.add("given up" if event.reason.startswith("no answer within") else "failed")
                case VerdictEvent(outcome="unjudged"):
                    seen.add("unjudged")
                case VerdictEvent() if event.votes:
                    seen.add("rate by votes" if event.value is None else "mean by votes")
                case VerdictEvent():
                    seen.add("rate" if event.value is None else "mean")
                case LaneFailedEvent():
                    seen.add("lane given up")
    assert seen == {
        *("due later", "asked offline", "sessions", "echo", "given up", "failed", "unjudged"),
        *("rate by votes", "mean by votes", "rate", "mean", "lane given up"),
    }


def test_gold_that_is_anothers_option_or_is_overheard_proves_nothing() -> None:
    """As where one fact is asked about on two days: the data set itself says what the other's answer is."""
    options = ("behind the piano; the fern that grows in the hall", "under the stairs")
    world = World(Shape(seed=3, anchors=6, segments=5, probes=True))
    first, second = [probe for probe in world.anchors if isinstance(probe, ProbeEvent)][:2]
    shown = "\n".join((first.question, *options))
    world.anchors[world.anchors.index(first)] = replace(first, options=options, text=shown)
    world.anchors[world.anchors.index(second)] = replace(second, gold=replace(second.gold, answer=options[0]))
    world.conductor = Conductor(world.started, world.anchors)
    assert world.run().audit().findings == ()

    heard = World(Shape(seed=3, anchors=6, segments=5, probes=True))
    said = next(event for event in heard.upcoming if isinstance(event, ObservationEvent))
    probe = heard.anchors[0]
    assert isinstance(probe, ProbeEvent)
    heard.upcoming[heard.upcoming.index(said)] = replace(said, text=f"Then: {probe.gold.memories[0]}!")
    assert heard.run().audit().findings == ()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes, st.integers(0, 150), st.integers(0, 12))
def test_a_log_that_grows_while_it_is_read_breaks_nothing(shape: Shape, steps: int, between: int) -> None:
    """Each topic is read to where it ends by then: later topics rest on what earlier ones did not hold yet."""
    world = World(shape).run(steps)
    settled = {place: len(records) for place, records in world.records.items()}
    auditor = Auditor(world.started, settled)
    for name in AUDIT_TOPICS:
        world.run(between)
        for partition in range(world.started.partitions):
            records = world.records.get((getattr(world.topics, name), partition), [])
            events, unreadable = decode_records(world.started.run, records)
            for letter in unreadable:
                auditor.unreadable(letter)
            for event, record in events:
                auditor.feed(event, record)
    assert auditor.certificate().findings == ()
