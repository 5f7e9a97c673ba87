"""`egostream systems`: which memory systems there are."""

from __future__ import annotations

from typing import Any

import click

from adapters.registry import available, capabilities, describe, options_of, parse_spec
from consumers.tables import new_table
from simulator.cli import common
from simulator.plan import means_of


@click.command(
    epilog="""\b
Examples:
  egostream systems --json
  egostream systems mypackage.module:MyMemory
"""
)
@click.argument("specs", nargs=-1, metavar="[SYSTEM]...")
@common.command_options
def systems(specs: tuple[str, ...], settings: common.Settings) -> None:
    """List the built-in memory systems, and how to name your own; or what SYSTEM declares.

    Each trajectory gets the memory as it was at its moment, by a fork, a copy of its folder, or replay of the stream
    up to there: the best that the system declares. One that can do none of these runs with --isolation shared.
    """
    if specs:
        parsed = [parse_spec(text) for text in specs]
        found = {spec.label: (describe(spec), spec) for spec in parsed}
    else:
        found = {name: (about, parse_spec(name)) for name, about in available().items()}
    rows: dict[str, dict[str, Any]] = {
        name: {
            "about": about,
            "branches": means_of(spec),
            "privileged": capabilities(spec).privileged,
            "options": options_of(spec),
        }
        for name, (about, spec) in found.items()
    }
    if settings.json:
        common.print_json(rows)
        return
    table = new_table("", "Name", "Branches", "What it does")
    for name, row in rows.items():
        options = (f"  {option}: {what}" for option, what in row["options"].items())
        table.add_row(name, row["branches"] or "none", "\n".join([row["about"], *options]))
    common.show(table)
    if specs:
        return
    common.say(
        "\nOptions follow a colon:   --system rag_raw:retrieval=bm25,top_k=5\n"
        "A label of your choice:   --system bm25=rag_raw:retrieval=bm25\n"
        "Your own class:           --system mypackage.module:MyMemory (examples/own_memory.py,\n"
        "                          or on disk and without forks, examples/directory_memory.py)"
    )
