"""`egostream audit`: whether a run's log keeps the invariants."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio.to_thread
import click

from consumers.audit import Certificate, audit_log, render
from simulator.cli import common
from simulator.cli.given import given_run, run_argument
from simulator.cli.progress import progress_bar, records_shown
from simulator.results import read_certificate


@click.command(
    epilog="""\b
Examples:
  egostream audit runs/first
  egostream audit runs/first --json | jq .findings
""",
)
@run_argument
@common.command_options
def audit(run: str, settings: common.Settings) -> int:
    """Check the log of a finished, stopped or running RUN (its folder, or kafka://HOST:PORT/RUN-ID) against the
    invariants. A retry is a run of its own: RUN/retry-1.

    \b
    1  observations come in event-time order, gapless in sequence
    2  one delta a segment, after its end; a memory that is built again comes to the same
    3  tasks come after their delta; answers rest on nothing newer than that
    4  task, answer, feedback, commit, second task and answer follow each other
    5  nothing of one trajectory is visible in another, nor in the main memory
    6  evidence and gold behaviour stay unseen until feedback reveals them
    7  one verdict for each trajectory and metric

    The log is read once. Prints a certificate (what was checked, how many events there are, the log's digest), or
    each violation with the offending events and an explanation; then the exit code is 3. What a run that goes on
    has not come to yet is open, and no violation.

    Two equal runs have equal digests, on any log and in whatever order their events came. A finished run is also held
    against the audit.json that was written when it ended: a text or an outcome that was changed since shows there.
    """

    certificate = common.run_async(partial(_read, run, settings))
    if settings.json:
        common.print_json(certificate)
    else:
        common.say(render(certificate))
    return 0 if certificate.sound else common.EXIT_VIOLATION


async def _read(run: str, settings: common.Settings) -> Certificate:
    with progress_bar("auditing", settings.quiet) as update:
        async with given_run(run) as (log, started):
            certificate = await audit_log(log, started, records_shown(update))
    earlier = await anyio.to_thread.run_sync(read_certificate, Path(run))
    return certificate if earlier is None else certificate.held_against(earlier)
