"""Errors, locks and private files that the rest of this folder shares."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


class ClusterError(Exception):
    """A cluster that can't be started, found or stopped; the message says what to do. Exit code 1."""

    exit_code = 1


class ToolError(ClusterError):
    """Java, Maven or the download from Maven Central is missing, or an option is wrong. Exit code 2."""

    exit_code = 2


@contextmanager
def locked(folder: Path, timeout_s: float) -> Iterator[None]:
    """Hold the folder for this process alone; it is created when missing.

    The lock is the kernel's, on the folder itself: it leaves no file behind, and dies with its holder.
    Raises ClusterError when another process still holds it after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(handle, folder, deadline)
            if _same(handle, folder):  # else the holder before us removed the folder while we waited
                yield
                return
        finally:
            os.close(handle)


def _lock(handle: int, folder: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ClusterError(f"another process is still working on {folder}; try again") from None
            time.sleep(0.05)
        else:
            return


def _same(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read (mode 0600), whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def read_json(path: Path) -> object:
    """A JSON file's content. Raises ClusterError where it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ClusterError(f"{path} is damaged ({error}); remove the folder {path.parent}") from error


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, each indented; says so where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64_000))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return "  (no log)"
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (an empty log)"
