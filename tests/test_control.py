"""What a person tells a replay: heard from the moment at which the replay was asked for."""

from __future__ import annotations

from pathlib import Path

import anyio
from msgspec.structs import replace

from producers.control import obey_control, send_control
from simulator.clock import Clock
from simulator.events import RunEndedEvent
from simulator.log import SqliteLog
from simulator.topics import Recorder, Topics, wall_us
from tests.roles.test_conductor import started_with


async def test_what_is_said_while_a_replay_is_being_resumed_is_heard(tmp_path: Path) -> None:
    started = replace(started_with(1, 0), event_time_us=1)
    recorder = Recorder.for_run(started)
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(Topics.of("run").partitions(1))
        await log.append([recorder.record(started)])
        await send_control(log, started, "set_rate", 7)  # to the one that was cut short
        asked_us = wall_us() + 1
        await anyio.sleep(0.001)
        await send_control(log, started, "pause")  # while the data is read
        clock = Clock(0, 2)
        async with anyio.create_task_group() as tasks:
            await tasks.start(obey_control, log, started, clock, asked_us)
            assert (clock.paused, clock.rate) == (True, 2)
            # From now on it hears all, whatever the clock of the one who says it
            slow = replace(await send_control(log, started, "resume"), id="again", action="set_rate", rate=9)
            await log.append([recorder.record(slow, wall_us=0)])
            with anyio.fail_after(30):
                while (clock.paused, clock.rate) != (False, 9):  # noqa: ASYNC110  # a clock tells nobody of its rate
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def test_a_run_that_has_ended_is_followed_to_its_end(tmp_path: Path) -> None:
    started = started_with(1, 0)
    recorder = Recorder.for_run(started)
    ended = RunEndedEvent(id="run/ended", run="run", event_time_us=0, trajectories=0, verdicts=0, unjudged=0)
    async with SqliteLog.open(tmp_path / "log.db") as log:
        await log.create_topics(Topics.of("run").partitions(1))
        await log.append([recorder.record(started), recorder.record(ended)])
        async with anyio.create_task_group() as tasks:
            await tasks.start(obey_control, log, started, Clock(0, 1), wall_us())
            tasks.cancel_scope.cancel()
