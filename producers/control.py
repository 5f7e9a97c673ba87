"""What a person tells a running replay, through the control topic: pause, resume, another rate."""

from __future__ import annotations

import math
from typing import Literal

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from simulator.clock import Clock
from simulator.events import ReplayControlEvent, RunEndedEvent, RunStartedEvent
from simulator.intake import FOLLOW_GAP_S, decode_records
from simulator.log.protocol import Log, StoredRecord
from simulator.topics import Recorder, Topics, wall_of, wall_us


async def send_control(
    log: Log,
    started: RunStartedEvent,
    action: Literal["pause", "resume", "set_rate"],
    rate: float | None = None,
) -> ReplayControlEvent:
    """Tell the replayer something. `rate`: simulated seconds per real second; infinite for as fast as the log
    allows."""
    event = ReplayControlEvent(
        id=f"replay-control/{wall_us()}",
        run=started.run,
        event_time_us=started.event_time_us,
        action=action,
        rate=None if rate == math.inf else rate,
    )
    await log.append([Recorder.for_run(started).record(event)])
    return event


async def obey_control(
    log: Log,
    started: RunStartedEvent,
    clock: Clock,
    since_us: int,
    *,
    task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
) -> None:
    """Follow the control topic and set the clock by it, until the run ends or the task is cancelled. Started before
    the replay.

    `since_us`: the wall time at which the command to replay was given, before it read its data. What is said from
    then on is heard; what was said before, to a replay that was cut short, is not said to the one that goes on. (Only
    that moment rests on wall clocks: on machines whose clocks differ, it is off by so much.)
    """
    topics = Topics.of(started.run)
    ends = await log.end_offsets([topics.control])
    async with log.subscribe([topics.control]) as subscription:
        caught_up = False
        while True:
            if not caught_up and all([await subscription.position(tp) >= end for tp, end in ends.items()]):
                caught_up = True
                task_status.started()  # what was said before holds before anything is published
            for event, record in decode_records(started.run, await subscription.poll())[0]:
                if isinstance(event, RunEndedEvent) and caught_up:
                    return
                if not isinstance(event, ReplayControlEvent):
                    continue
                if not caught_up and _said_us(record) < since_us:
                    continue
                if event.action == "pause":
                    clock.pause()
                elif event.action == "resume":
                    clock.resume()
                else:
                    clock.set_rate(math.inf if event.rate is None else event.rate)
            if caught_up:
                await anyio.sleep(FOLLOW_GAP_S)


def _said_us(record: StoredRecord) -> int:
    """When it was said, in wall time; now, where that is not noted."""
    said_us = wall_of(record.headers)
    return wall_us() if said_us is None else said_us
