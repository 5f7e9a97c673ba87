"""`egostream attach`: somebody's own memory system as an agent of a run that is going on elsewhere."""

from __future__ import annotations

from functools import partial

import click
from msgspec.structs import replace

from adapters.registry import parse_spec
from simulator.cli import common
from simulator.workers import agent_worker


@click.command(
    epilog="""\b
Example, in two terminals with an environment each:
  egostream run --data synthetic:wearers=1 --system null --attach mine --log kafka://127.0.0.1:9092 --out runs/a
  egostream attach --system my_memory:LongestLines --as mine --log kafka://127.0.0.1:9092 --run any
"""
)
@click.option(
    "--system", required=True, metavar="SYSTEM", help="Your class as module:Class[:OPTION=VALUE,...]."
)
@click.option(
    "--as", "label", metavar="LABEL", help="The label that the run knows it by. [default: SYSTEM's own]"
)
@click.option(
    "--log",
    "log_url",
    required=True,
    metavar="LOG",
    help="The run's log: kafka://HOST:PORT, or the path of a file.",
)
@click.option(
    "--run", required=True, metavar="ID", help="Which run of that log; `any` takes the one that goes on."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the run to begin.",
)
@common.call_timeout_option
@common.command_options
def attach(
    system: str,
    label: str | None,
    log_url: str,
    run: str,
    wait_s: float,
    call_timeout_s: float,
    settings: common.Settings,
) -> None:
    """Attach a memory system to a run, from its own environment and process, until the run ends.

    The run, or `egostream load`, announces it with `--attach LABEL` and waits for it. Several may attach under one
    label and share the wearers. One that dies can be attached again: it is rebuilt from the log. What it owes for
    longer than the run's --answer-timeout is unjudged. Folders of memories that can't fork lie below $TMPDIR
    meanwhile.
    Without Python: over HTTP (docs/http-agent.md), or over Kafka alone (`egostream asyncapi`).
    """
    spec = parse_spec(system)
    if label is not None:
        spec = replace(spec, label=label)
    common.run_async(
        partial(agent_worker, log_url, run, spec, wait_s=wait_s, attached=True, call_timeout_s=call_timeout_s)
    )
    if settings.json:
        common.print_json({"role": f"agent.{spec.label}", "ended": True})
