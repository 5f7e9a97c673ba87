"""`egostream attach`: somebody's own memory system as an agent of a run that is going on elsewhere."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from adapters.registry import parse_spec
from simulator.cli import common
from simulator.cli.driving import answers_option, drive, log_needed, out_option, wait_option, with_models


@click.command(
    epilog="""\b
Example, in two terminals with an environment each:
  egostream run --data synthetic:wearers=1 --system null --attach mine --log kafka://127.0.0.1:9092 --out runs/a
  egostream attach --system my_memory:LongestLines --as mine --log kafka://127.0.0.1:9092 --run any
"""
)
@click.option(
    "--system",
    required=True,
    metavar="SYSTEM",
    help="Your class as module:Class[:OPTION=VALUE,...], or what else `egostream run --system` takes.",
)
@click.option(
    "--as", "label", metavar="LABEL", help="The label that the run knows it by. [default: SYSTEM's own]"
)
@log_needed
@click.option(
    "--run", required=True, metavar="ID", help="Which run of that log; `any` takes the one that goes on."
)
@wait_option
@common.call_timeout_option
@answers_option
@out_option
@with_models
@common.command_options
def attach(
    system: str, label: str | None, log_url: str, run: str, settings: common.Settings, **driving: Any
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
    drive(spec, log_url, run, settings, attached=True, **driving)
