"""`egostream anchors`: evidence and its tasks, made, checked and held against people's judgment."""

from __future__ import annotations

import click

from simulator.cli.anchors.audit import agreement, audit
from simulator.cli.anchors.build import build
from simulator.cli.anchors.check import check


@click.group()
def anchors() -> None:
    """Make anchors from any stream, check them, and have people audit them.

    An anchor is a piece of evidence in a segment of a stream, with two tasks that need it: known to judges, never to
    memory systems. See docs/anchors.md.
    """


for _command in (build, check, audit, agreement):
    anchors.add_command(_command)
