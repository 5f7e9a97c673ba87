"""`egostream systems`: which memory systems there are."""

from __future__ import annotations

import click

from adapters.registry import available
from consumers.score_tables import new_table
from simulator.cli import common


@click.command(epilog="Example: egostream systems --json")
@common.command_options
def systems(settings: common.Settings) -> None:
    """List the built-in memory systems, and how to name your own."""
    found = available()
    if settings.json:
        common.print_json(found)
        return
    table = new_table("", "Name", "What it does")
    for name, about in found.items():
        table.add_row(name, about)
    common.show(table)
    common.say(
        "\nOptions follow a colon:   --system rag_raw:retrieval=bm25,top_k=5\n"
        "A label of your choice:   --system bm25=rag_raw:retrieval=bm25\n"
        "Your own class:           --system mypackage.module:MyMemory (examples/own_memory.py)"
    )
