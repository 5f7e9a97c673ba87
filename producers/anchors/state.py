"""What a construction has finished, kept so that killing it at any moment loses no finished segment.

A file of JSON lines: first what is built out of what, then each finished segment, appended whole and synced. A last
line that a kill cut off is no finished segment.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from adapters.model import ModelUsage
from producers.anchors.candidates import Candidate
from simulator.errors import ConfigError
from simulator.files import write_whole

FILE_NAME: Final = "segments.jsonl"
_LOCK_NAME: Final = "lock"


class Spent(msgspec.Struct, frozen=True):
    """What asking took; of answers from the cache, what they took once, but for the money."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def plus(self, usage: ModelUsage) -> Spent:
        """With one more call."""
        return self + Spent(1, usage.prompt_tokens, usage.completion_tokens, usage.cost)

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )


class Fallen(msgspec.Struct, frozen=True):
    """A candidate that is not kept: by which checks or criteria, each with the reason."""

    stage: Literal["checks", "review"]
    reasons: Mapping[str, str]
    candidate: Candidate


class Finished(msgspec.Struct, frozen=True):
    """One segment of which all was asked and answered."""

    stream: str
    segment: int
    """Counts over the whole stream."""
    kept: tuple[Candidate, ...]
    fallen: tuple[Fallen, ...]
    spent: Spent = Spent()


class _Header(msgspec.Struct, frozen=True):
    identity: dict[str, str]


class State:
    """The finished segments of one construction, which one process has open. All methods block."""

    def __init__(self, folder: Path, lock: int, file: int, finished: dict[tuple[str, int], Finished]) -> None:
        self._folder = folder
        self._lock = lock
        self._file = file
        self.finished = finished
        """By (stream, segment)."""

    @classmethod
    def open(cls, folder: Path, identity: Mapping[str, str]) -> State:
        """Begin, or go on with what is there. Raises ConfigError where another process is at work, where what is there
        is of another identity (naming what differs), and where it is no such file."""
        path = folder / FILE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _locked(folder)
        except OSError as error:
            raise ConfigError(f"{folder} can't be used: {error.strerror}") from error
        try:
            if not path.exists():
                write_whole(path, msgspec.json.encode(_Header(dict(identity))) + b"\n")
            finished, length = _read(path, identity)
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(file, length)
        except BaseException:
            os.close(lock)
            raise
        return cls(folder, lock, file, finished)

    def append(self, finished: Finished) -> None:
        """Add a segment; it is on the disk when this returns."""
        content = msgspec.json.encode(finished) + b"\n"
        while content:
            content = content[os.write(self._file, content) :]
        os.fsync(self._file)
        self.finished[finished.stream, finished.segment] = finished

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._file)
        os.close(self._lock)

    def delete(self) -> None:
        """Remove the folder, and close."""
        shutil.rmtree(self._folder)
        self.close()


def _locked(folder: Path) -> int:
    lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigError(f"another process builds in {folder}: wait for it, or stop it") from None
    return lock


def _read(path: Path, identity: Mapping[str, str]) -> tuple[dict[tuple[str, int], Finished], int]:
    """What is finished, and the length of it in bytes."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    finished: dict[tuple[str, int], Finished] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            if number == 1:
                header = msgspec.json.decode(line, type=_Header)
                _refuse_other(path.parent, header.identity, identity)
                continue
            one = msgspec.json.decode(line, type=Finished)
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{path}:{number}: no finished segment ({error}): delete {path.parent} to begin anew"
            ) from error
        finished[one.stream, one.segment] = one
    if not whole:
        raise ConfigError(f"{path} is empty: delete {path.parent} to begin anew")
    return finished, len(whole)


def _refuse_other(folder: Path, there: Mapping[str, Any], asked: Mapping[str, str]) -> None:
    names = sorted(name for name in there.keys() | asked.keys() if there.get(name) != asked.get(name))
    if names:
        differing = "; ".join(f"{n}: {there.get(n, '–')} there, {asked.get(n, '–')} asked for" for n in names)
        raise ConfigError(
            f"{folder} is of another construction ({differing}): delete it, or choose another --out"
        )
