"""`egostream asyncapi`: what travels on the topics, for agents in any language."""

from __future__ import annotations

import re
from importlib.metadata import version

import click

from simulator.asyncapi import document
from simulator.cli import common
from simulator.errors import ConfigError


@click.command(
    epilog="""\b
Examples:
  egostream asyncapi > egostream.asyncapi.json
  egostream asyncapi --run run-94e1c0aa7d21
"""
)
@click.option("--run", metavar="ID", help="Name this run's topics, and not {run}.observations and so on.")
@common.command_options
def asyncapi(run: str | None, settings: common.Settings) -> None:
    """Print an AsyncAPI 3 document of the topics: what an agent in any language reads and sends.

    It is made from the code that reads and writes the events, and it is JSON, which is also YAML.
    examples/node_agent is an agent that knows nothing else.
    """
    if run is not None and not re.fullmatch(r"[A-Za-z0-9._-]+", run):
        raise ConfigError(f"{run!r} is no run's id: it can't stand in a topic's name")
    common.print_json(document(version("egostream"), run))
