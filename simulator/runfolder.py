"""Where a run is: its folder, which says where its log is, or the log's own address; and how to read it again."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from simulator.errors import ConfigError
from simulator.events import ReplayEndedEvent, RunEndedEvent, RunStartedEvent
from simulator.files import write_whole
from simulator.intake import read_events
from simulator.log import open_log
from simulator.log.protocol import Log
from simulator.log.sqlite import user_of
from simulator.topics import adopt_timebase

LOG_NAME = "log.db"
NOTE_NAME = "run.json"
"""Says which log holds the run."""
MEMORIES_NAME = "memories"
"""While a run goes on: the folders of memories that can't fork."""
LOGS_NAME = "logs"
"""What the processes of foreign systems say, a file for each lane."""
VERDICTS_NAME = "verdicts.jsonl"
RETRY_NAME = "retry-{}"
"""A retry's folder, in the run's; numbered from 1."""
AUDIT_NAME = "audit.json"
LATENCY_NAME = "latency.json"
SWEEP_NAME = "sweep.json"
COMPARE_NAME = "compare.json"
REPORT_NAME = "report.html"
LOAD_NAMES = (COMPARE_NAME, SWEEP_NAME, LATENCY_NAME)
"""What is in the folder of loads, what is known of several first."""
_NAMED: Final = {
    SWEEP_NAME: re.compile(r"\d{2,}-\d+(\.\d+)?(e[+-]\d+)?"),
    COMPARE_NAME: re.compile(r"\d{2,}-[AB]"),
}
"""The folders of the loads of several, as `load_folder` names those of a sweep and `round_folder` of a comparison."""
LATENCY_TEXT = "latency-{}.hgrm"
"""A stage's percentiles, for HdrHistogram's plotters."""
RESULT_NAMES = (VERDICTS_NAME, "scores.json", "trajectories.csv", AUDIT_NAME, LATENCY_NAME, REPORT_NAME)
"""What is read off the log at the end of a run, beside it."""


class Note(msgspec.Struct, omit_defaults=True):
    """What `run.json` says: a file beside it or `kafka://...`, the run, and the options that it was asked for with
    (see `simulator.plan.noted`)."""

    log: str
    run: str
    options: dict[str, Any] = {}


def log_path(folder: Path) -> Path:
    """The log inside a run's folder."""
    return folder / LOG_NAME


def enter_folder(folder: Path, log: str | None, run: str, *, overwrite: bool) -> str:
    """Make the folder for a run, or go back into it; gives where its log is. Blocking.

    `overwrite` deletes a log file, results and retries that are there, and nothing else. Raises ConfigError where the
    folder can't be used, or belongs to a run on another log.
    """
    is_file = f"{folder} is a file: --out takes a folder"
    try:
        if folder.is_file():
            raise ConfigError(is_file)
        if log is None or "://" not in log:  # else once it was reached, see `note_run`
            folder.mkdir(parents=True, exist_ok=True)
            Path(log or folder).absolute().parent.mkdir(parents=True, exist_ok=True)
        if overwrite and (process := user_of(log_path(folder))) is not None:
            raise ConfigError(
                f"a run goes on in {folder} (process {process}): stop it first, or choose another --out"
            )
        if overwrite:
            _clear(folder)
        note = folder / NOTE_NAME
        if note.exists():
            known = read_note(note)
            if known.log != _noted(log) or (log is not None and known.run != run):
                raise ConfigError(
                    f"{folder} belongs to run {known.run} on {known.log}: choose another --out, or pass --overwrite "
                    "to take the folder (a log on Kafka stays as it is)"
                )
    except FileExistsError:
        raise ConfigError(is_file) from None
    except OSError as error:
        raise ConfigError(f"{folder} can't be used for a run: {error.strerror}") from error
    return log or str(log_path(folder))


def _clear(folder: Path) -> None:
    """Remove the log, results and retries of a run, and nothing else."""
    names = (*RESULT_NAMES, NOTE_NAME)
    texts = folder.glob(LATENCY_TEXT.format("*"))
    for path in (*folder.glob(f"{LOG_NAME}*"), *texts, *(folder / name for name in names)):
        path.unlink(missing_ok=True)
    for there in (*retry_folders(folder), folder / LOGS_NAME):
        shutil.rmtree(there, ignore_errors=not there.exists())


def remove_several(folder: Path, name: str) -> None:
    """Remove a sweep or a comparison (`name`: of its result), its page, and its loads: of the folders that are named as
    theirs those that hold a load. What else is in one of them stays, and the folder with it. Blocking. Raises
    ConfigError where one of the loads goes on."""
    named = [path for path in folder.iterdir() if _NAMED[name].fullmatch(path.name) and not path.is_symlink()]
    loads = [path for path in named if _holds_load(path)]
    for load in loads:
        if (process := user_of(log_path(load))) is not None:
            raise ConfigError(
                f"a load goes on in {load} (process {process}): stop it first, or choose another --out"
            )
    for load in loads:
        _clear(load)
        with suppress(OSError):  # somebody keeps other things there
            load.rmdir()
    (folder / name).unlink()
    (folder / REPORT_NAME).unlink(missing_ok=True)


def _holds_load(folder: Path) -> bool:
    """Whether a load ran here, to its end or not: it notes no options, as a run does that others are judged in."""
    if (folder / LATENCY_NAME).is_file():
        return True
    try:
        return (folder / NOTE_NAME).is_file() and not read_note(folder / NOTE_NAME).options
    except ConfigError:
        return False


def has_load(folder: Path) -> bool:
    """Whether a folder holds what came of a load, of a sweep or of a comparison. Blocking."""
    return any((folder / name).is_file() for name in LOAD_NAMES)


def retry_folders(folder: Path) -> list[Path]:
    """The folders of a run's retries, the first first."""
    numbered: list[Path] = []
    while (path := folder / RETRY_NAME.format(len(numbered) + 1)).is_dir():
        numbered.append(path)
    return numbered


def note_run(folder: Path, log: str | None, run: str, options: dict[str, Any] | None = None) -> None:
    """Note in `run.json` where the log is, once it was reached. Blocking."""
    where = Note(log=_noted(log), run=run, options=options or {})
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / NOTE_NAME, msgspec.json.format(msgspec.json.encode(where)) + b"\n")


def _noted(log: str | None) -> str:
    """How `run.json` names a log: one in the folder by its name, another file by a path that holds from anywhere."""
    if log is None or "://" in log:
        return log or LOG_NAME
    return str(Path(log).absolute())


def read_note(note: Path) -> Note:
    """Read a `run.json`. Blocking. Raises ConfigError where it is none."""
    try:
        return msgspec.json.decode(note.read_bytes(), type=Note)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{note} is no note of a run: {error}") from error


def split_address(address: str) -> tuple[str, str]:
    """A log's address with a run's id behind it (`kafka://host:port/RUN-ID?option=value`) as the log's address
    and the id; that is empty where none is given."""
    rest, mark, options = address.partition("?")
    scheme, _, place = rest.partition("://")
    servers, _, run = place.partition("/")
    return f"{scheme}://{servers}{mark}{options}", run.rstrip("/")


@asynccontextmanager
async def open_run(run: str | Path) -> AsyncIterator[tuple[Log, RunStartedEvent]]:
    """The log of a finished or running run, and its first event. `run`: its folder, a log file that holds one run, or
    the address of a log (`kafka://...`), with `/RUN-ID` unless it holds one run. Raises ConfigError where there is no
    run, or several."""
    if "://" in str(run):
        url, name = split_address(str(run))
        async with open_log(url) as log:
            yield log, await _only_run(log, url, name)
        return
    folder = Path(run)
    note, path = folder / NOTE_NAME, log_path(folder) if await anyio.Path(folder).is_dir() else folder
    where = Note(log=str(path), run="")
    if await anyio.Path(note).is_file():
        where = await anyio.to_thread.run_sync(read_note, note)
    shared = "://" in where.log or Path(where.log).is_absolute()
    if not shared or where.log == str(path):
        # Such a file holds one run, whatever was noted: it may have been copied here.
        where = Note(log=str(path), run="")
    if "://" not in where.log and not await anyio.Path(where.log).is_file():
        raise ConfigError(
            f"no run at {folder}: there is no {where.log if shared else path.name}. `egostream run --data PATH "
            f"--system NAME --out {folder}` makes one"
        )
    async with open_log(where.log) as log:
        started = await find_run(log, where.run or None)
        if started is None:
            topics = ", ".join(sorted(await log.topics())) or "it has no topics"
            raise ConfigError(f"{folder} holds a log, but no run: {topics}")
        yield log, started


async def _only_run(log: Log, url: str, name: str) -> RunStartedEvent:
    """The run of this name, or the only one. Raises ConfigError where that is none."""
    if not name and len(runs := await runs_of(log)) > 1:
        place, mark, options = url.partition("?")
        example = f"{place}/{runs[0]}{mark}{options}"
        raise ConfigError(f"{url} holds {len(runs)} runs; name one, as in {example}: {', '.join(runs)}")
    started = await find_run(log, name or None)
    if started is None:
        there = ", ".join(await runs_of(log)) or "none that this user may read"
        raise ConfigError(f"there is no run {name + ' ' if name else ''}on {url}; there is: {there}")
    return started


async def runs_of(log: Log) -> list[str]:
    """The ids of all runs that a log shows, sorted; one may not have begun yet."""
    return sorted(
        topic.removesuffix(".control") for topic in await log.topics() if topic.endswith(".control")
    )


async def find_run(log: Log, run: str | None = None) -> RunStartedEvent | None:
    """The first event of a run (or of any run) in a log; None where there is none. From then on this process takes its
    stamps by the run's clock, where it can. Raises LogError for a named run that this user may not read."""
    owners = await runs_of(log) if run is None else [run] if await log.exists(f"{run}.control") else []
    for owner in owners:
        async with aclosing(read_events(log, owner, [f"{owner}.control"])) as events:
            async for event, record in events:
                if isinstance(event, RunStartedEvent):
                    adopt_timebase(record.headers)
                    return event
    return None


async def has_ended(log: Log, run: str) -> bool:
    """Whether a run, or a replay without systems, has come to its end."""
    started, ended = None, set()
    async for event, _ in read_events(log, run, [f"{run}.control"]):
        if isinstance(event, RunStartedEvent):
            started = event
        elif isinstance(event, RunEndedEvent | ReplayEndedEvent):
            ended.add(type(event))
    over = ReplayEndedEvent if started is not None and not started.systems else RunEndedEvent
    return over in ended
