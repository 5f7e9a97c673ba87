"""The watchdog: a silent stall becomes an error that names the missing event, its cause and its role.

It keeps a time of its own, by when records reach it, so that a log begun last week is not late today, and a process
(or a whole machine) that was stopped does not take its own sleep for everybody's.
"""

from __future__ import annotations

import anyio

from consumers.status import StatusFold, role_of
from simulator.errors import StallError
from simulator.events import RunStartedEvent
from simulator.intake import decode_records, read_subjects
from simulator.log.protocol import Log
from simulator.topics import Topics
from simulator.waits import CONDUCTOR_ROLE, REPLAYER_ROLE, Missing, stalled

_POLL_S = 1.0
_BATCH = 2000
_GAP_S = 0.25
"""Between two looks: woken for each batch of observations, it took more than the conductor that it runs beside."""
_LONGEST_STEP_S = 5.0
"""Its own time goes no further between two looks: beyond that, it was this process that stood still."""


async def watch(log: Log, started: RunStartedEvent, limit_s: float, *, replayer: bool = False) -> None:
    """Follow a run until it ends. Raises StallError when a role owes something and nothing of it has come for
    `limit_s`. `replayer`: also when the replayer publishes nothing for so long, which only who knows the run's rate
    can say to be too long; paused time does not count."""
    topics = Topics.of(started.run)
    fold = StatusFold(started, await read_subjects(log, started.run))
    moved_us: dict[str, int] = {}
    now_us = looked_us = 0
    step_s = anyio.current_time()
    read = [topic for topic in topics if topic not in (topics.anchors, topics.dead)]
    async with log.subscribe(read) as subscription:
        while not fold.ended:
            records = await subscription.poll(max_records=_BATCH, timeout_s=min(_POLL_S, limit_s / 4))
            if len(records) < _BATCH:
                await anyio.sleep(min(_GAP_S, limit_s / 8))
            before_s, step_s = step_s, anyio.current_time()
            now_us += round(min(step_s - before_s, _LONGEST_STEP_S, limit_s / 2) * 1e6)
            few = [r for r in records if ("kind", b"observation") not in r.headers]
            if len(few) < len(records):  # there are many, and all alike here
                moved_us[REPLAYER_ROLE] = now_us
            paused = fold.paused
            for event, _ in decode_records(started.run, few)[0]:
                fold.feed(event, now_us)
                moved_us[role_of(event)] = now_us
            if paused or fold.paused:
                moved_us[REPLAYER_ROLE] = now_us
            if now_us - looked_us < min(limit_s / 10, 10.0) * 1e6:
                continue  # a look goes through all trajectories
            looked_us = now_us
            missing = silent(fold, moved_us, now_us, round(limit_s * 1e6), replayer=replayer)
            if missing:
                raise StallError(stalled("watchdog", limit_s, missing))


def silent(
    fold: StatusFold, moved_us: dict[str, int], now_us: int, limit_us: int, *, replayer: bool
) -> list[Missing]:
    """What is owed by roles of which nothing has come for `limit_us`, while nothing moves: the oldest first.

    `moved_us`: role → when its newest event came. An agent or the judge is silent when it owes something for so
    long; the conductor, and the replayer (only with `replayer`: by the log alone one can't know what its clock
    waits for), only while none of those owes anything.
    """
    owed = fold.owed()
    late = [one for one in owed if now_us - max(one.since_us, moved_us.get(one.role, 0)) > limit_us]
    workers = [one for one in owed if one.role != CONDUCTOR_ROLE]
    found = [one.missing for one in late if one.role != CONDUCTOR_ROLE or not workers]
    if found or owed or not replayer or fold.paused or fold.ended:
        return found
    segment = fold.next_published()
    if segment is None or now_us - max(segment.since_us, moved_us.get(REPLAYER_ROLE, 0)) <= limit_us:
        return []
    return [segment.missing]
