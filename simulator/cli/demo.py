"""`egostream demo`: the whole path on a lifelog that is made up on the spot."""

from __future__ import annotations

from pathlib import Path

import click

from consumers.score_tables import render
from simulator.cli import common
from simulator.cli.run import run_options
from simulator.run import RunOptions

_DATA = "synthetic:seed=7,wearers=2,days=2"
_SYSTEMS = ("null", "rag_raw", "full_context", "oracle")


@click.command()
@click.option(
    "--out",
    type=common.FOLDER,
    default=Path("demo-run"),
    show_default=True,
    help="Folder for the log and the scores; a run that is there is replaced.",
)
@common.command_options
def demo(out: Path, settings: common.Settings) -> int:
    """Evaluate four memory systems on two made-up people's days. Needs no data and no model; takes seconds."""
    if not settings.json:
        common.out.print(
            "Two invented people live through two days, written down line by line. Four memory systems read along,\n"
            "five minutes at a time. Now and then one is asked for something that a line heard in passing answers\n"
            "(T1), is told what it missed, and later is asked for something related (T2).\n"
        )
    scores = run_options(RunOptions(data=_DATA, systems=_SYSTEMS, out=out, overwrite=True), settings)
    if settings.json:
        common.print_json(scores)
    else:
        common.out.print(render(scores))
        common.out.print(
            "\nFidelity: the memory holds the evidence. Initial evidence use: the first answer used it.\n"
            "Feedback incorporation: the answer after being told did. Follow-up reuse: the later answer did, from\n"
            "memory alone.\n"
            "\nNext, look at what was asked and answered, and then run it on data of your own:\n"
            f"    egostream tap {out} responses -n 3\n"
            "    egostream run --data streammembench_v1_en --system rag_raw --system null --out runs/first"
        )
    return 0 if scores.complete else common.EXIT_UNJUDGED
