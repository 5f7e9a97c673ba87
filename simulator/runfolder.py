"""A run's folder: where its log is, which run it holds, and how to read it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio

from simulator.errors import ConfigError
from simulator.events import RunStartedEvent
from simulator.intake import decode_records, read_to_end
from simulator.log import open_log
from simulator.log.protocol import Log

LOG_NAME = "log.db"
VERDICTS_NAME = "verdicts.jsonl"
RESULT_NAMES = (VERDICTS_NAME, "scores.json", "trajectories.csv")
"""What is read off the log at the end of a run, beside it."""


def log_path(folder: Path) -> Path:
    """The log inside a run's folder."""
    return folder / LOG_NAME


def prepare_folder(folder: Path, *, overwrite: bool) -> None:
    """Make the folder for a new run. Raises ConfigError where a run is already there, unless `overwrite`,
    which deletes that run's log and results and nothing else."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if log_path(folder).exists():
            if not overwrite:
                raise ConfigError(
                    f"{folder} already holds a run: read it with `egostream scores {folder}`, choose another "
                    "--out, or pass --overwrite to replace it"
                )
            for path in (*folder.glob(f"{LOG_NAME}*"), *(folder / name for name in RESULT_NAMES)):
                path.unlink(missing_ok=True)
    except FileExistsError:
        raise ConfigError(f"{folder} is a file: --out takes a folder") from None
    except OSError as error:
        raise ConfigError(f"{folder} can't be used for a run: {error.strerror}") from error


@asynccontextmanager
async def open_run(folder: Path) -> AsyncIterator[tuple[Log, RunStartedEvent]]:
    """The log of a finished or running run, and its first event. `folder` may also name the log file itself.
    Raises ConfigError where there is no run."""
    path = log_path(folder) if await anyio.Path(folder).is_dir() else folder
    if not await anyio.Path(path).is_file():
        raise ConfigError(
            f"no run at {folder}: there is no {path.name}. `egostream run --data PATH --system NAME "
            f"--out {folder}` makes one"
        )
    async with open_log(str(path)) as log:
        yield log, await _first_event(log, folder)


async def _first_event(log: Log, folder: Path) -> RunStartedEvent:
    topics = await log.topics()
    for topic in sorted(topics):
        run, _, name = topic.rpartition(".")
        if name != "control":
            continue
        async with aclosing(read_to_end(log, [topic])) as records:
            async for record in records:
                for event, _ in decode_records(run, [record])[0]:
                    if isinstance(event, RunStartedEvent):
                        return event
    raise ConfigError(f"{folder} holds a log, but no run: {', '.join(sorted(topics)) or 'it has no topics'}")
