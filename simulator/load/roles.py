"""What each process of `egostream load --agents` does: one role of the load, for as long as the load goes on."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import anyio.to_thread

from adapters.registry import parse_spec
from simulator.clock import Clock
from simulator.errors import ConfigError
from simulator.load.machine import in_real_time
from simulator.load.single import LoadPart, plan_load, uncollected
from simulator.models import ModelOptions
from simulator.run import run_replayer
from simulator.waits import CONDUCTOR_ROLE, REPLAYER_ROLE
from simulator.workers import agent_worker, conductor_worker, metered, run_on

_WAIT_S = 60.0
"""The run is there before its processes are started."""


async def play(part: LoadPart) -> None:
    """Play a part until the run has ended. Raises what that role does."""
    if part.role == REPLAYER_ROLE:
        await _replay(part)
    elif part.role == CONDUCTOR_ROLE:
        await conductor_worker(part.log, part.run, call_timeout_s=part.options.call_timeout_s)
    else:
        await agent_worker(
            part.log,
            part.run,
            parse_spec(part.options.system),
            wait_s=_WAIT_S,
            call_timeout_s=part.options.call_timeout_s,
            process=part.name,
            models=ModelOptions(models=part.options.models),
            out=part.options.out,
        )


async def _replay(part: LoadPart) -> None:
    """Lay the load out as the one who asked for it has, and replay it. Raises ConfigError where it comes to another."""
    async with run_on(part.log, part.run, _WAIT_S) as (log, started):
        load = await anyio.to_thread.run_sync(partial(plan_load, part.options, asked_us=part.asked_us))
        if load.plan.started != started:
            raise ConfigError(f"{part.options.data} is not what it was when the load began: begin it again")
        with uncollected(), in_real_time() if part.options.real_time else nullcontext():
            async with metered(log, started, part.name, children=False):
                await run_replayer(log, load.plan, Clock(started.event_time_us, load.offered.rate))
