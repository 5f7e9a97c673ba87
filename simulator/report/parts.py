"""What a page is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from markupsafe import Markup

from simulator.report.words import NOTHING, rate_text, time_text

OF_LOADS = (
    "from the results in this folder, which are read off the run's log. Times are percentiles of HdrHistogram, to "
    "0.1%; the longest and the mean are exact."
)


class Cell(msgspec.Struct, frozen=True):
    """What stands in a table, and the number that it says, exactly. `at_right`: it is a number by its text alone."""

    text: str
    value: float | int | None = None
    at_right: bool = False


class Table(msgspec.Struct, frozen=True):
    """Rows under a head; the first cell of each row names it. `spans`: what stands above so many columns of the head,
    the first one included."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    id: str = ""
    spans: Sequence[tuple[str, int]] = ()


class Picture(msgspec.Struct, frozen=True):
    """A plot, how to read it, and the numbers behind it."""

    svg: Markup
    caption: str
    table: Table


class Section(msgspec.Struct, frozen=True):
    """A heading and what is below it: sentences, facts, tables, pictures, then sections of its own."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    lines: Sequence[str] = ()
    """Paragraphs before `text`."""
    facts: Mapping[str, str] = {}
    sections: Sequence[Section] = ()
    id: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """`warnings`: what one has to know before any number, the worst first. `facts`: name → what was measured, and
    where. `tiles`: name → the numbers that matter most. `footer`: where they are from, and how exact."""

    title: str
    answer: Sequence[str]
    warnings: Sequence[str]
    tiles: Mapping[str, str]
    facts: Mapping[str, str]
    sections: Sequence[Section]
    footer: str = OF_LOADS


def time_cell(us: float | None) -> Cell:
    """Microseconds."""
    return Cell(time_text(us), us)


def rate_cell(per_s: float | None) -> Cell:
    """So many each second."""
    return Cell(rate_text(per_s), per_s)


def count_cell(count: int) -> Cell:
    """How many."""
    return Cell(f"{count:,}", count)


def number_cell(value: float | None, form: str = ",.4g") -> Cell:
    """A number in a form of its own."""
    return Cell(NOTHING if value is None else format(value, form), value)


def numbers(caption: str, head: Sequence[str], rows: Iterable[Sequence[float | None]]) -> Table:
    """The numbers behind a plot."""
    return Table(caption, head, [[number_cell(value, ",.6g") for value in row] for row in rows])
