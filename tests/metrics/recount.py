"""What a log's events come to, counted plainly and all at once: what the fold is held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from consumers.gauges import State
from consumers.windows import BOUNDS_US
from simulator.events import (
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeadLetterEvent,
    DeltaEvent,
    FeedbackEvent,
    ObservationEvent,
    ReadyEvent,
    ResponseEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from simulator.intake import decode_records, read_to_end
from simulator.log.protocol import Log, StoredRecord, header_of
from simulator.runfolder import open_run
from simulator.topics import Topics


async def stored(log: Log, started: RunStartedEvent) -> list[StoredRecord]:
    """All that the endpoint reads."""
    topics = Topics.of(started.run)
    return [record async for record in read_to_end(log, [name for name in topics if name != topics.anchors])]


async def said_by_the_end(out: Path) -> int:
    """How many events are on control up to `run_ended`."""
    async with open_run(out) as (log, started):
        records = [record async for record in read_to_end(log, [Topics.of(started.run).control])]
    return [header_of(record.headers, "kind") for record in records].index(b"run_ended") + 1


def recount(started: RunStartedEvent, records: Sequence[StoredRecord]) -> dict[str, Any]:
    """Name → label values → number."""
    pairs = decode_records(started.run, records)[0]
    events = [event for event, _ in pairs]
    deltas = [event for event in events if isinstance(event, DeltaEvent)]
    closed = {event.trajectory: event for event in events if isinstance(event, TrajectoryClosedEvent)}
    begun = {e.trajectory: e.lane for e in events if isinstance(e, TaskEvent) and e.phase == "T1"}
    twice = {e.trajectory for e in events if isinstance(e, CommitEvent) and e.keep_uncommitted}
    opened = [name for name in begun if name not in closed]
    forking = any(isinstance(e, ReadyEvent) and e.means == "fork" for e in events)
    parts = [event for event in events if isinstance(event, ResponseEvent | CommittedEvent | DeltaEvent)]
    return {
        "observations": Counter((e.stream,) for e in events if isinstance(e, ObservationEvent)),
        "segments": Counter((e.stream,) for e in events if isinstance(e, SegmentClosedEvent)),
        "remembered": Counter(_lane(e) for e in deltas if e.error is None),
        "failed": Counter(_lane(e) for e in deltas if e.error is not None),
        "tasks": Counter((_system(e), e.phase) for e in events if isinstance(e, TaskEvent)),
        "responses": Counter(
            (_system(e), e.phase, "failed" if e.error else "answered")
            for e in events
            if isinstance(e, ResponseEvent)
        ),
        "feedback": Counter((_system(e), e.type) for e in events if isinstance(e, FeedbackEvent)),
        "commits": Counter((_system(e),) for e in events if isinstance(e, CommitEvent)),
        "committed": Counter(
            (_system(e), "failed" if e.error else "stored") for e in events if isinstance(e, CommittedEvent)
        ),
        "begun": Counter((lane.partition("@")[0],) for lane in begun.values()),
        "closed": Counter((_system(e), "early" if e.reason else "whole") for e in closed.values()),
        "open_trajectories": Counter(begun[name].partition("@")[0] for name in opened),
        "open_branches": Counter(
            {
                system: sum(1 + (name in twice) for name in opened if begun[name].partition("@")[0] == system)
                for system in started.systems
            }
            if started.isolation == "branch" or forking
            else {}
        ),
        "verdicts": Counter((_system(e), e.metric, e.outcome) for e in events if isinstance(e, VerdictEvent)),
        "dead": Counter(
            (topic.rpartition(".")[2],)
            for topic, _, _ in {
                (e.topic, e.partition, e.offset) for e in events if isinstance(e, DeadLetterEvent)
            }
        ),
        "model_calls": Counter(
            {
                (system, call): sum(
                    e.usage.calls for e in parts if _system(e) == system and _CALL[type(e)] == call
                )
                for system in started.systems
                for call in ("ingest", "answer", "commit")
            }
        ),
        "events": Counter((record.topic.rpartition(".")[2],) for _, record in pairs),
        "tokens": Counter(
            {
                (system, call, kind): sum(
                    getattr(e.usage, f"{kind}_tokens")
                    for e in parts
                    if _system(e) == system and _CALL[type(e)] == call
                )
                for system in started.systems
                for call in ("ingest", "answer", "commit")
                for kind in ("prompt", "completion")
            }
        ),
    }


_CALL = {DeltaEvent: "ingest", ResponseEvent: "answer", CommittedEvent: "commit"}


async def recounted(out: Path) -> dict[str, Any]:
    """The same of a run in its folder."""
    async with open_run(out) as (log, started):
        return recount(started, await stored(log, started))


def counted(state: State) -> dict[str, Any]:
    """The same of a state."""
    lanes = {(lane.system, lane.stream): lane for lane in state.lanes}
    return {
        "observations": {(name,): stream.observations for name, stream in state.streams.items()},
        "segments": {(name,): stream.segments for name, stream in state.streams.items()},
        "remembered": {labels: lane.remembered for labels, lane in lanes.items()},
        "failed": {labels: lane.failed for labels, lane in lanes.items()},
        "open_trajectories": state.open_trajectories,
        "open_branches": state.open_branches,
        **state.counts,
    }


def nonzero(counts: Mapping[str, Mapping[Any, float]]) -> dict[str, dict[Any, float]]:
    """Without the zeros, which stand for what could have been."""
    return {name: {label: value for label, value in found.items() if value} for name, found in counts.items()}


def bucketed(values_us: Iterable[int]) -> list[int]:
    """How many lie in each bucket."""
    counts = [0] * (len(BOUNDS_US) + 1)
    for value_us in values_us:
        counts[sum(bound_us < value_us for bound_us in BOUNDS_US)] += 1
    return counts


def _system(event: AnyEvent) -> str:
    return getattr(event, "lane", "").partition("@")[0]


def _lane(event: DeltaEvent) -> tuple[str, str]:
    return _system(event), event.stream
