"""What a person tells a running replay, through the control topic: pause, resume, another rate."""

from __future__ import annotations

import math
from typing import Literal

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


async def obey_control(log: Log, started: RunStartedEvent, clock: Clock) -> None:
    """Follow the control topic from now on and set the clock by it, until the run ends or the task is
    cancelled."""
    async with log.subscribe([Topics.of(started.run).control], start="latest") as subscription:
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
