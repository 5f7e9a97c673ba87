"""The page of a load: made from the results in its folder and from nothing else.

Needs the extra `egostream[load]`: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from consumers.latency import LatencyReport
from simulator.errors import ConfigError
from simulator.files import write_whole
from simulator.load.comparison import Comparison
from simulator.load.sweep import Found
from simulator.report.comparison_page import comparison_page
from simulator.report.load_page import load_page
from simulator.report.parts import Page
from simulator.report.render import render
from simulator.report.sweep_page import sweep_page
from simulator.runfolder import COMPARE_NAME, LATENCY_NAME, REPORT_NAME, SWEEP_NAME

_PAGES: Final[dict[str, tuple[type[Any], Callable[[Any], Page]]]] = {
    COMPARE_NAME: (Comparison, comparison_page),
    SWEEP_NAME: (Found, sweep_page),
    LATENCY_NAME: (LatencyReport, load_page),
}


def write_report(folder: Path, report: Path | None = None) -> Path:
    """Write the page of the load, the sweep or the comparison that a folder holds, into a file or `report.html` beside
    it. Blocking: a second or two. Raises ConfigError where there is none, or one that can't be read."""
    for name, (kind, make) in _PAGES.items():
        path = folder / name
        if not path.is_file():
            continue
        try:
            result = msgspec.json.decode(path.read_bytes(), type=kind)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path} can't be read: {error}") from error
        report = report or folder / REPORT_NAME
        write_whole(report, render(make(result)).encode())
        return report
    raise ConfigError(
        f"there is no {LATENCY_NAME}, {SWEEP_NAME} or {COMPARE_NAME} in {folder}, so there is nothing to report: "
        f"`egostream load SYSTEM --data PATH --rate RATE --out {folder}` makes one"
    )
