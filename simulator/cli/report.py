"""`egostream report`: a folder's results as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from simulator.cli import common
from simulator.cli.loads import check_extra


@click.command(
    epilog="""\b
Examples:
  egostream report runs/load
  egostream report runs/sweep/03-2400
""",
)
@click.argument("run", metavar="RUN", type=common.FOLDER)
@common.command_options
def report(run: Path, settings: common.Settings) -> int:
    """Write report.html into RUN, the folder of a load, a sweep or a comparison: one page that stands alone.

    `egostream load` writes it for itself. This makes it again, from latency.json, sweep.json or compare.json and
    nothing else, and makes that of one load of a sweep or of a comparison.

    Needs `pip install 'egostream[load]'`.
    """
    check_extra()
    from simulator.report.page import write_report

    path = write_report(run)
    if settings.json:
        common.print_json({"report": str(path)})
    else:
        common.say(f"The report is {path}: open it in a browser.")
    return 0
