"""What the log already holds of a lane, so that a new owner rebuilds its memory and goes on where it was.

Rebuilding means ingesting the stream again from its first segment. Nothing is answered or published twice:
where a result is not the same each time, what the log holds wins over doing it again. That a memory is not the same as
the log says shows in its deltas (`consumers.rebuild`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from consumers.rebuild import Rebuild
from simulator.events import (
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    ResponseEvent,
    RunStartedEvent,
    TaskEvent,
)
from simulator.intake import decode_records, read_to_end
from simulator.log.protocol import Log
from simulator.topics import Topics


class LaneHistory(msgspec.Struct):
    """One lane's past, without that of closed trajectories (but for their commits in isolation `shared`)."""

    deltas: int = 0
    """How many segments have their delta in the log."""
    released: int = -1
    """No trajectory will begin on the snapshots up to this one."""
    closed: set[str] = msgspec.field(default_factory=set)
    """Trajectories that have ended."""
    results: dict[str, ResponseEvent | CommittedEvent] = msgspec.field(default_factory=dict)
    """Id → response or committed event of an open trajectory."""
    open_on: Counter[int] = msgspec.field(default_factory=Counter)
    """Segment → open trajectories that began there and fork its snapshot again."""
    commits: list[CommitEvent] = msgspec.field(default_factory=list)
    """Isolation `shared`: the commits that the one memory took, in their order."""
    rebuild: Rebuild = msgspec.field(default_factory=Rebuild)
    """What the memory comes to when it is built again, against what the log says of it."""


async def read_histories(
    log: Log,
    started: RunStartedEvent,
    closed: dict[str, set[str]],
    released: dict[str, int],
    rebuilds: dict[str, int],
    lanes: Collection[str],
) -> dict[str, LaneHistory]:
    """The past of some lanes. `closed`, `released` and `rebuilds` (lane → trajectories, segment, number of the last
    rebuild) are what the control topic says; the trajectories are shared with the histories: they go on growing."""
    topics = Topics.of(started.run)
    histories = {
        lane: LaneHistory(
            closed=closed.setdefault(lane, set()),
            released=released.get(lane, -1),
            rebuild=Rebuild(rebuilds.get(lane, 0) + 1),
        )
        for lane in lanes
    }
    keys = {lane.encode() for lane in lanes}
    committed: set[str] = set()
    commits: list[CommitEvent] = []
    async for record in read_to_end(log, [topics.deltas, topics.responses, topics.tasks, topics.commits]):
        if record.key not in keys:
            continue
        for event, _ in decode_records(started.run, [record])[0]:
            if isinstance(event, DeltaEvent) and event.lane in histories:
                history = histories[event.lane]
                history.deltas = max(history.deltas, event.segment + 1)
                history.rebuild.expect(event)
                continue
            if not isinstance(event, ResponseEvent | CommittedEvent | TaskEvent | CommitEvent):
                continue
            history = histories[event.lane]
            if isinstance(event, CommittedEvent):
                if event.error is None:
                    committed.add(event.trajectory)
                if started.isolation == "shared" or event.trajectory not in history.closed:
                    history.rebuild.expect(event)
            if isinstance(event, CommitEvent):
                commits.append(event)
            elif event.trajectory in history.closed:
                continue
            elif isinstance(event, TaskEvent):
                history.open_on[event.segment] += event.phase == "T1"
            else:
                history.results.setdefault(event.id, event)
    if started.isolation == "shared":
        for commit in commits:
            if commit.trajectory in committed:
                histories[commit.lane].commits.append(commit)
    return histories
