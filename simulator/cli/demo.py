"""`egostream demo`: the whole path on a lifelog that is made up on the spot."""

from __future__ import annotations

from pathlib import Path

import click

from simulator.cli import common
from simulator.cli.run import run_options
from simulator.plan import RunOptions

_DATA = "synthetic:seed=7,wearers=2,days=2"
_SYSTEMS = ("null", "rag_raw", "full_context", "oracle")
_BM25 = "rag_raw:retrieval=bm25"


@click.command(
    epilog="Example: egostream demo --out runs/demo",
)
@click.option(
    "--out",
    type=common.FOLDER,
    default=Path("demo-run"),
    show_default=True,
    metavar="RUN",
    help="Folder for the log and the scores; a run that is there is replaced.",
)
@common.command_options
def demo(out: Path, settings: common.Settings) -> int:
    """Evaluate four memory systems on two made-up people's days.

    Needs no data and no model, and takes seconds.
    """
    if not settings.json:
        common.say(
            "Two invented people live through two days, written down line by line. Four\n"
            "memory systems read along, five minutes at a time. Now and then one is asked\n"
            "for something that a line heard in passing answers; it is told what it missed,\n"
            "and later it is asked for something related.\n"
        )
    outcome = run_options(RunOptions(data=_DATA, systems=_SYSTEMS, out=out, overwrite=True), settings)
    if settings.json:
        outcome.print_json()
    else:
        outcome.show(settings)
        common.say(
            "\nFidelity                the memory holds the evidence\n"
            "Initial evidence use    the first answer used it\n"
            "Feedback incorporation  where it did not, the answer after being told did\n"
            "Follow-up reuse         the later answer used it, from memory alone\n"
            "\n"
            "null keeps nothing, rag_raw searches pieces of the days, full_context keeps all.\n"
            "\n"
            "Next, see what was asked and answered, and try a search of your choice:\n"
            f"    {common.command('tap', out, 'responses', '--where', 'lane=rag_raw@W01_ADA', '-n', 3)}\n"
            f"    {common.command('run', '--data', 'synthetic:', '--system', _BM25, '--out', 'bm25')}"
        )
    return outcome.exit_code
