"""`egostream report`: a folder's results as one HTML page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from simulator.cli import common
from simulator.cli.loads import check_extra
from simulator.runfolder import LATENCY_NAME


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
    nothing else, and makes that of one load of a sweep or of a comparison. Of a load that was stopped before it had
    any of these, latency.json is first read off its log, and what is not remembered there counts as unfinished.

    Needs `pip install 'egostream[load]'`.
    """
    check_extra()
    from simulator.load.single import recover_latency
    from simulator.report.page import has_result, write_report

    if not has_result(run) and common.run_async(partial(recover_latency, run)) and not settings.quiet:
        common.note(f"{LATENCY_NAME} was read off the log")
    path = write_report(run)
    if settings.json:
        common.print_json({"report": str(path)})
    else:
        common.say(f"The report is {path}: open it in a browser.")
    return 0
