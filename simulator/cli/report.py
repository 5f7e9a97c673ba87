"""`egostream report`: what came of runs or of a load, as one HTML page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from simulator.cli import common
from simulator.cli.extras import REPORT_MODULES, need_modules
from simulator.cli.loads import check_extra
from simulator.errors import ConfigError
from simulator.files import write_whole
from simulator.report.overview import Overview, to_builtins
from simulator.report.runs import of_load, read_overview
from simulator.runfolder import LATENCY_NAME, LOG_NAME, NOTE_NAME, REPORT_NAME, has_load


@click.command(
    epilog="""\b
Examples:
  egostream report runs/first
  egostream report runs/realmem runs/lifedialbench runs/apm --out all.html
  egostream report runs/load
""",
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the page goes. [default: report.html in the folder of one RUN, in this folder for several]",
)
@common.command_options
def report(runs: tuple[str, ...], out: Path | None, settings: common.Settings) -> int:
    """Make one page that stands alone, for any browser, of each RUN (its folder, or kafka://HOST:PORT/RUN-ID).

    Of runs of `egostream run`, of any benchmarks: one table with all systems as rows and each benchmark's main metrics
    as columns, every number with what it stands on; then a section a run, with what was run, scores and groups with
    their intervals, failures, findings and costs. It is read off the logs, whether or not the runs have ended. With
    --json: all that is on the page.

    Of the folder of one load, sweep or comparison: what `egostream load` writes for itself, made again from
    latency.json, sweep.json or compare.json and nothing else. Of a load that was stopped before it had any of these,
    latency.json is first read off its log, and what is not remembered there counts as unfinished.

    Needs `pip install 'egostream[report]'`, of a load `egostream[load]`.
    """
    need_modules("a report", REPORT_MODULES, "report")
    if len(runs) == 1:
        _check_there(runs[0])
        if common.run_async(partial(of_load, runs[0])):
            return _load_report(runs[0], out, settings)
    shown = common.run_async(partial(read_overview, runs))
    folder = Path(runs[0]) if len(runs) == 1 and Path(runs[0]).is_dir() else Path()
    path = out or folder / REPORT_NAME
    _write(path, shown)
    if settings.json:
        common.print_json({"report": str(path), **to_builtins(shown)})
    else:
        common.say(f"The report is {path}: open it in a browser.")
    for warning in () if settings.quiet else shown.warnings:
        common.note(warning)
    return 0


def _check_there(run: str) -> None:
    folder = Path(run)
    if "://" in run or folder.is_file() or has_load(folder):
        return
    if not any((folder / name).is_file() for name in (NOTE_NAME, LOG_NAME)):
        raise ConfigError(
            f"there is no run and no load in {run}, so there is nothing to report: `egostream run --data PATH --system "
            f"NAME --out {run}` makes a run, `egostream load SYSTEM --data PATH --rate RATE --out {run}` a load"
        )


def _load_report(run: str, out: Path | None, settings: common.Settings) -> int:
    folder = Path(run)
    if not folder.is_dir():
        raise ConfigError(f"{run} is a load: give its folder, which has what was measured")
    check_extra()
    from simulator.load.single import recover_latency
    from simulator.report.page import write_report

    if not has_load(folder) and common.run_async(partial(recover_latency, folder)) and not settings.quiet:
        common.note(f"{LATENCY_NAME} was read off the log")
    if out is not None:
        _make_folder(out)
    path = write_report(folder, out)
    if settings.json:
        common.print_json({"report": str(path)})
    else:
        common.say(f"The report is {path}: open it in a browser.")
    return 0


def _write(path: Path, shown: Overview) -> None:
    from simulator.report.render import render
    from simulator.report.runs_page import runs_page

    content = render(runs_page(shown)).encode()
    _make_folder(path)
    write_whole(path, content)


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}") from error
