"""Copies of folders, in threads: whole, or given up at the first error with a reason that people read."""

from __future__ import annotations

import os
import shutil
import stat
from functools import partial
from pathlib import Path
from threading import Event

import anyio
import anyio.lowlevel
import anyio.to_thread

_AT_ONCE = 4
"""Copies side by side in one process: more would only wait for the same disk."""

_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("directory_copies")


class CopyError(Exception):
    """A folder can't be copied; the message names the file by its path in the folder, and says why."""


async def copy_directory(source: Path, target: Path) -> None:
    """Copy a folder to where nothing is yet. Files are copied whole, also those behind links, and never linked: a
    change of one side must not show on the other. Sockets and pipes are left out. Raises CopyError; what was copied
    until then stays."""
    stop = Event()
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        _limiter.set(limiter)
    try:
        await anyio.to_thread.run_sync(
            partial(_copy, source, target, Path(), stop), abandon_on_cancel=True, limiter=limiter
        )
    finally:
        stop.set()  # an abandoned thread ends with the file it is at


def _copy(source: Path, target: Path, inner: Path, stop: Event) -> None:
    path = inner
    try:
        os.mkdir(target / inner)
        with os.scandir(source / inner) as entries:
            for entry in entries:
                if stop.is_set():
                    return
                path = inner / entry.name
                if entry.is_dir():
                    _copy(source, target, path, stop)
                elif entry.is_file() or not _is_special(entry):
                    shutil.copy2(source / path, target / path)
        shutil.copystat(source / inner, target / inner)
    except OSError as error:
        name = "the folder" if path == Path() else str(path)
        raise CopyError(f"{name}: {error.strerror or type(error).__name__}") from error


def _is_special(entry: os.DirEntry[str]) -> bool:
    mode = entry.stat(follow_symlinks=False).st_mode
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)
