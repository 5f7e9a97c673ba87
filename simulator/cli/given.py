"""A run that the person names: what is wrong with it is the person's to mend, so it is an input error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from simulator.errors import ConfigError, LogError
from simulator.events import RunStartedEvent
from simulator.log.protocol import Log
from simulator.runfolder import open_run

run_argument = click.argument("run", metavar="RUN")
"""A run's folder, or where its log is: a string, since a path would lose a slash of `kafka://`."""


@asynccontextmanager
async def given_run(run: str | Path) -> AsyncIterator[tuple[Log, RunStartedEvent]]:
    """As `open_run`, but a log that is damaged or none at all raises ConfigError."""
    try:
        async with open_run(run) as opened:
            yield opened
    except LogError as error:
        raise ConfigError(str(error)) from error
