"""Folders for as long as a process lives: they go when it ends, and those that a killed one left go with the next."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from simulator.errors import ConfigError

_LOCK_NAME = ".lock"
_PREFIX = "process-"


@asynccontextmanager
async def scratch_folder(base: Path) -> AsyncIterator[Path]:
    """A new folder in `base`, deleted at the end with all that is in it. So is `base` once nobody uses it, and the
    parents that had to be made, as far as nothing else is in them. Raises ConfigError where it can't be made."""
    missing = [path for path in base.parents if not path.exists()]
    try:
        folder, lock = await anyio.to_thread.run_sync(_enter, base)
    except OSError as error:
        raise ConfigError(f"{base} can't be used for folders of memories: {error.strerror}") from error
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(_leave, base, folder, lock, missing))


def user_base() -> Path:
    """Where a process without a run's folder has its own: below `$TMPDIR`, by user. Raises ConfigError where
    somebody else has made it."""
    base = Path(tempfile.gettempdir()) / f"egostream-{os.getuid()}"
    if base.is_symlink() or (base.exists() and base.stat().st_uid != os.getuid()):
        raise ConfigError(f"{base} belongs to somebody else: set TMPDIR to another folder")
    return base


def _enter(base: Path) -> tuple[Path, int]:
    """Make a folder, held by a lock that the system lets go of when this process dies; sweep out those that nobody
    holds."""
    with _guarded(base):
        for left in base.glob(f"{_PREFIX}*"):
            if _is_free(left / _LOCK_NAME):
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder, lock


def _leave(base: Path, folder: Path, lock: int, missing: list[Path]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
    with _guarded(base):
        if [entry.name for entry in base.iterdir()] != [_LOCK_NAME]:
            return
        shutil.rmtree(base, ignore_errors=True)
    for path in missing:
        try:
            path.rmdir()
        except OSError:  # something else is in it
            return


@contextmanager
def _guarded(base: Path) -> Iterator[None]:
    """Alone among all processes in `base`: else a new folder is swept out before it has its lock."""
    while True:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            guard = os.open(base / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # whoever had it has just deleted it
            continue
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)
            try:
                is_there = os.path.samestat(os.fstat(guard), os.stat(base / _LOCK_NAME))
            except FileNotFoundError:
                is_there = False
            if is_there:
                yield
                return
        finally:
            os.close(guard)


def _is_free(path: Path) -> bool:
    """Nobody holds this lock, or it has been deleted already."""
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(lock)
