"""What `egostream run --dry-run` prints."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from consumers.score_tables import money
from consumers.tables import new_table
from simulator.cli import common
from simulator.estimate import Estimates


def show_estimates(found: Estimates) -> None:
    """Calls, tokens and money by system and role, and what they stand on."""
    if not found.rows and found.assumptions:
        common.say(f"{found.run} asks models for vectors alone, which are not counted.")
        return
    if not found.rows:
        common.say(f"{found.run} asks no model: it costs nothing but time.")
        return
    titles = ("Calls\nat most", "Tokens in\nabout", "Tokens out\nabout", "Money\nabout")
    table = new_table(f"{found.run} would ask", "System", "What", "Model", *titles, numbers=titles)
    last = None
    for row in found.rows:
        numbers = (f"{n:,}" for n in (row.calls, row.prompt_tokens, row.completion_tokens))
        name = row.system if row.system != last else ""
        table.add_row(Text(name), row.role, Text(row.model), *numbers, money(row.money))
        last = row.system
    totals = (f"{n:,}" for n in (found.calls, found.prompt_tokens, found.completion_tokens))
    table.add_row("all", "", "", *totals, money(found.money))
    lines = "\n".join(f"- {assumption}" for assumption in found.assumptions)
    common.show(Group(table, Text(f"\nAssumed:\n{lines}", no_wrap=True, overflow="ignore")))
