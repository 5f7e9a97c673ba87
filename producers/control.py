"""What a person tells a running replay, through the control topic: pause, resume, another rate."""

from __future__ import annotations

import math
from typing import Literal

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from simulator.clock import Clock
from simulator.events import ReplayControlEvent, RunEndedEvent, RunStartedEvent
from simulator.intake import decode_records
from simulator.log.protocol import Log
from simulator.topics import Recorder, Topics, wall_us


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
    *,
    task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
) -> None:
    """Follow the control topic and set the clock by it, until the run ends or the task is cancelled. Started before
    the replay: then nothing is missed that is said once the run can be found. What was said to a replay that was cut
    short is not said to the one that goes on."""
    topics = Topics.of(started.run)
    begun = any((await log.end_offsets([topics.observations])).values())
    start = await log.end_offsets([topics.control]) if begun else {}
    async with log.subscribe([topics.control], start=start) as subscription:
        task_status.started()
        while True:
            for event, _ in decode_records(started.run, await subscription.poll())[0]:
                if isinstance(event, RunEndedEvent):
                    return
                if not isinstance(event, ReplayControlEvent):
                    continue
                if event.action == "pause":
                    clock.pause()
                elif event.action == "resume":
                    clock.resume()
                else:
                    clock.set_rate(math.inf if event.rate is None else event.rate)
