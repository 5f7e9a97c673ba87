"""`egostream ctl`: pause, resume or speed up a running replay."""

from __future__ import annotations

from typing import Literal

import click
import msgspec

from producers.control import send_control
from simulator.cli import common
from simulator.cli.given import given_run, run_argument
from simulator.cli.run import parse_rate
from simulator.errors import ConfigError
from simulator.events import ReplayControlEvent
from simulator.runfolder import has_ended

_ACTIONS: dict[str, Literal["pause", "resume", "set_rate"]] = {
    "pause": "pause",
    "resume": "resume",
    "rate": "set_rate",
}


@click.command(epilog="Example: egostream ctl runs/live rate 600")
@run_argument
@click.argument("action", type=click.Choice(list(_ACTIONS)), metavar="pause|resume|rate")
@click.argument("rate", required=False, type=parse_rate, metavar="[RATE]")
@common.command_options
def ctl(run: str, action: str, rate: float | None, settings: common.Settings) -> None:
    """Tell the running replay of RUN (its folder, or kafka://HOST:PORT/RUN-ID) to pause, to resume, or to go at
    another RATE (simulated seconds per real second, or inf).

    It travels on the run's control topic: any process with access to the log can say it, and the log keeps it. Nothing
    is lost or skipped by it.
    """
    if (rate is not None) != (action == "rate"):
        raise ConfigError(
            f"`ctl RUN {action}` takes {'a rate, as in: rate 60' if action == 'rate' else 'no rate'}"
        )

    async def send() -> ReplayControlEvent:
        async with given_run(run) as (log, started):
            if await has_ended(log, started.run):
                raise ConfigError(f"{started.run} has ended: there is nothing to {action}")
            return await send_control(log, started, _ACTIONS[action], rate)

    sent = common.run_async(send)
    if settings.json:
        common.print_json(msgspec.to_builtins(sent))
    else:
        common.say(f"told {sent.run}: {action}{'' if rate is None else f' {rate:g}'}")
