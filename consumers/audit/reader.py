"""Reads a log once through its auditor."""

from __future__ import annotations

from collections.abc import Callable

from consumers.audit.auditor import AUDIT_TOPICS, Auditor
from consumers.audit.certificate import Certificate
from simulator.events import RunStartedEvent
from simulator.intake import decode_records, read_to_end
from simulator.log.protocol import Log, StoredRecord
from simulator.topics import Topics

_BATCH = 2000


async def audit_log(
    log: Log, started: RunStartedEvent, progress: Callable[[int, int], None] | None = None
) -> Certificate:
    """Audit a run on any log, ended or under way: every topic once, to where it ends when its turn comes.

    Where each ended before is noted first: what was there then rests on what is read, and nothing else is said to
    lack anything. `progress` is told records read and in all. Raises LogError.
    """
    topics = Topics.of(started.run)
    settled = {(tp.topic, tp.partition): end for tp, end in (await log.end_offsets(topics)).items()}
    total, done = sum(settled.values()), 0
    auditor = Auditor(started, settled)
    batch: list[StoredRecord] = []

    def feed() -> None:
        nonlocal done
        events, unreadable = decode_records(started.run, batch)
        for letter in unreadable:
            auditor.unreadable(letter)
        for event, record in events:
            auditor.feed(event, record)
        done += len(batch)
        batch.clear()
        if progress is not None:
            progress(min(done, total), total)

    for name in AUDIT_TOPICS:
        async for record in read_to_end(log, [getattr(topics, name)]):
            batch.append(record)
            if len(batch) == _BATCH:
                feed()
        feed()
    return auditor.certificate()
