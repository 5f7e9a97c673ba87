"""A run's folder: where its log is, which run it holds, and how to read it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from simulator.errors import ConfigError
from simulator.events import RunStartedEvent
from simulator.intake import decode_records, read_to_end
from simulator.log import open_log
from simulator.log.protocol import Log

LOG_NAME = "log.db"


def log_path(folder: Path) -> Path:
    """The log inside a run's folder."""
    return folder / LOG_NAME


def prepare_folder(folder: Path, *, overwrite: bool) -> None:
    """Make the folder for a new run. Raises ConfigError where a run is already there, unless `overwrite`, which
    deletes that run's log and results and nothing else."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: --out takes a folder")
    if log_path(folder).exists():
        if not overwrite:
            raise ConfigError(
                f"{folder} already holds a run: read it with `egostream scores {folder}`, choose another --out, or "
                "pass --overwrite to replace it"
            )
        for path in folder.glob(f"{LOG_NAME}*"):
            path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} can't be made: {error.strerror}") from error


@asynccontextmanager
async def open_run(folder: Path) -> AsyncIterator[tuple[Log, RunStartedEvent]]:
    """The log of a finished or running run, and its first event. `folder` may also name the log file itself.
    Raises ConfigError where there is no run."""
    path = log_path(folder) if folder.is_dir() else folder
    if not path.is_file():
        raise ConfigError(
            f"no run at {folder}: there is no {path.name}. `egostream run --data PATH --system NAME --out {folder}` "
            "makes one"
        )
    async with open_log(str(path)) as log:
        yield log, await _first_event(log, folder)


async def _first_event(log: Log, folder: Path) -> RunStartedEvent:
    topics = await log.topics()
    for topic in sorted(topics):
        run, _, name = topic.rpartition(".")
        if name != "control":
            continue
        async for record in read_to_end(log, [topic]):
            for event, _ in decode_records(run, [record])[0]:
                if isinstance(event, RunStartedEvent):
                    return event
    raise ConfigError(f"{folder} holds a log, but no run: {', '.join(sorted(topics)) or 'it has no topics'}")


