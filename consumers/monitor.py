"""Progress of a run, as a fold over its log: the same state for the terminal, for JSON and for tests."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from simulator.events import RunEndedEvent, RunStartedEvent, VerdictEvent
from simulator.intake import FOLLOW_GAP_S, decode_records
from simulator.log.protocol import Log, StoredRecord, header_of
from simulator.topics import Topics


class Progress(msgspec.Struct):
    """What has been done and what there is to do. Lanes × segments to ingest, lanes × anchors to judge."""

    segments_total: int
    trajectories_total: int
    segments: int = 0
    trajectories: int = 0
    """Closed trajectories."""
    verdicts: int = 0
    unjudged: int = 0
    event_time_us: int = 0
    """Event time of the newest delta."""
    by_system: dict[str, int] = {}
    """System → segments ingested."""
    ended: bool = False

    @classmethod
    def of(cls, started: RunStartedEvent) -> Progress:
        """Nothing done yet."""
        return cls(
            segments_total=sum(started.segments.values()) * len(started.systems),
            trajectories_total=started.anchors * len(started.systems),
            by_system=dict.fromkeys(started.systems, 0),
        )

    def feed(self, record: StoredRecord, run: str) -> None:
        """Count one record, by its headers where they suffice: deltas can be large."""
        kind = header_of(record.headers, "kind")
        if kind == b"delta":
            self.segments += 1
            self.event_time_us = max(self.event_time_us, record.timestamp_ms * 1000)
            system = record.key.decode(errors="replace").partition("@")[0]
            self.by_system[system] = self.by_system.get(system, 0) + 1
        elif kind == b"trajectory_closed":
            self.trajectories += 1
        elif kind in (b"verdict", b"run_ended"):
            for event, _ in decode_records(run, [record])[0]:
                if isinstance(event, VerdictEvent):
                    self.verdicts += 1
                    self.unjudged += event.outcome == "unjudged"
                self.ended |= isinstance(event, RunEndedEvent)


async def monitor(log: Log, started: RunStartedEvent, show: Callable[[Progress], None]) -> None:
    """Follow a run and show its progress whenever it moves, until the run ends."""
    topics = Topics.of(started.run)
    progress = Progress.of(started)
    show(progress)
    async with log.subscribe([topics.deltas, topics.verdicts, topics.control]) as subscription:
        while not progress.ended:
            for record in await subscription.poll(max_records=500):
                progress.feed(record, started.run)
            show(progress)
            if not progress.ended:
                await anyio.sleep(FOLLOW_GAP_S)
