"""`egostream systems`: which memory systems there are."""

from __future__ import annotations

import click
from rich.table import Table

from adapters.registry import available
from simulator.cli import common


@click.command()
@common.command_options
def systems(settings: common.Settings) -> None:
    """List the built-in memory systems, and how to name your own."""
    found = available()
    if settings.json:
        common.print_json(found)
        return
    table = Table(box=None, show_header=False)
    for name, about in found.items():
        table.add_row(name, about)
    common.out.print(table)
    common.out.print(
        "\nOptions follow a colon: --system rag_raw:retrieval=bm25,top_k=5\n"
        "Your own class: --system mypackage.module:MyMemory (see the README for one in 20 lines)\n"
        "A label of your choice: --system bm25=rag_raw:retrieval=bm25",
        markup=False,
    )
