"""The page as text: one HTML file that stands alone.

Needs the extra `egostream[report]`: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import jinja2

from simulator.report.parts import Cell, Page
from simulator.report.words import NOTHING


def render(page: Page) -> str:
    """The page's text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        page=page, is_text=_is_text, made_by=version("egostream")
    )


def _is_text(cell: Cell) -> bool:
    """Whether it stands at the left of its column, and not at the right as numbers do."""
    return cell.value is None and cell.text != NOTHING and not cell.at_right
