"""The page: one HTML file that stands alone, made from a load's results in its folder and from nothing else.

Needs the extra `egostream[load]`: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import jinja2
import msgspec

from consumers.latency import LatencyReport
from simulator.errors import ConfigError
from simulator.files import write_whole
from simulator.load.comparison import Comparison
from simulator.load.sweep import Found
from simulator.report.comparison_page import comparison_page
from simulator.report.load_page import load_page
from simulator.report.parts import Cell, Page
from simulator.report.sweep_page import sweep_page
from simulator.report.words import NOTHING
from simulator.runfolder import COMPARE_NAME, LATENCY_NAME, REPORT_NAME, SWEEP_NAME

_PAGES: Final[dict[str, tuple[type[Any], Callable[[Any], Page]]]] = {
    COMPARE_NAME: (Comparison, comparison_page),
    SWEEP_NAME: (Found, sweep_page),
    LATENCY_NAME: (LatencyReport, load_page),
}


def has_result(folder: Path) -> bool:
    """Whether a folder holds what a page is made from. Blocking."""
    return any((folder / name).is_file() for name in _PAGES)


def write_report(folder: Path) -> Path:
    """Write `report.html` into a folder, of the load, the sweep or the comparison that it holds. Blocking: a second or
    two. Raises ConfigError where it holds none, or one that can't be read."""
    for name, (kind, make) in _PAGES.items():
        path = folder / name
        if not path.is_file():
            continue
        try:
            result = msgspec.json.decode(path.read_bytes(), type=kind)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path} can't be read: {error}") from error
        report = folder / REPORT_NAME
        write_whole(report, render(make(result)).encode())
        return report
    raise ConfigError(
        f"there is no {LATENCY_NAME}, {SWEEP_NAME} or {COMPARE_NAME} in {folder}, so there is nothing to report: "
        f"`egostream load SYSTEM --data PATH --rate RATE --out {folder}` makes one"
    )


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
    return cell.value is None and cell.text != NOTHING
