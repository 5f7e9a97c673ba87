"""How tables look: their one style, and how names and numbers are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from consumers.amounts import Amount
from consumers.scores import Scores

DAGGER: Final = "†"


def new_table(title: str, *columns: str, numbers: Sequence[str] = ()) -> Table:
    """An empty table in the one style that all have, narrow enough for 80 columns; `numbers` are the columns
    to align right."""
    table = Table(
        title=title or None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def system_name(scores: Scores, system: str) -> Text:
    """As text and not markup: a label may hold brackets."""
    return Text(f"{system} {DAGGER}" if system in scores.privileged else system)


def mean_shown(amount: Amount | None, shown: Callable[[float], str]) -> str:
    """The mean, or an en dash where nothing was measured."""
    return "–" if amount is None else shown(amount.mean)


def judged_shown(value: float | None, counted: object, unjudged: int) -> str:
    """A rate or a mean with what it stands on and, below it, what could not be judged."""
    shown = f"{'–' if value is None else f'{value:.1%}'} ({counted})"
    return f"{shown}\n{unjudged} unjudged" if unjudged else shown


def bytes_shown(count: float) -> str:
    """`1,204 B`."""
    return f"{count:,.0f} B"


def seconds_shown(seconds: float) -> str:
    """Three digits that count: 0.013 ms, 12.6 ms, 1.53 s."""
    if seconds >= 1:
        return f"{seconds:,.2f} s"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.01 else f"{seconds * 1000:.3f} ms"
