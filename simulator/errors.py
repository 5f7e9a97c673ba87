"""The error tree. Callers branch on the class; every error says what to do about it.

EgostreamError
├── InputError            what the person gave is wrong: one clear line, exit code 2
│   ├── DatasetError      a path or a file of a dataset; carries path, line and reason
│   └── ConfigError       an unknown system, a bad option, a run folder that can't be used
├── LogError              the event log refused or can't be reached
│   ├── TopicError        a topic that is missing, or exists with other settings
│   └── FencedError       this consumer lost its partitions; carries what was written all the same
├── DecodeError           bytes that are no event; they go whole to the dead-letter topic
├── InvariantError        a broken invariant; carries the offending events' ids; exit code 3
├── EncoderError          the text encoder's process can't do its work
├── ModelError            a language model gave no usable answer; carries which, how it failed and the reason
├── ProcessError          a process that we started ended badly; carries its name, exit code and last lines
├── MemorySystemError     a memory system failed; carries lane, operation and reason
└── StallError            nothing moves; names who waits for what
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal


class EgostreamError(Exception):
    """Base of every error that egostream raises on purpose."""

    exit_code = 1


class InputError(EgostreamError):
    """What the person gave can't be used. Shown as one line; exit code 2."""

    exit_code = 2


class DatasetError(InputError):
    """A dataset path or file can't be read. `line` is 1-based, or None where lines have no meaning."""

    def __init__(self, path: Path | str, reason: str, line: int | None = None) -> None:
        self.path = Path(path)
        self.line = line
        self.reason = reason
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {reason}")


class ConfigError(InputError):
    """An option, a system's name or a run folder that can't be used."""


class LogError(EgostreamError):
    """The event log refused an operation or can't be reached."""


class TopicError(LogError):
    """A topic is missing, or exists with other settings than those asked for."""


class FencedError(LogError):
    """The caller no longer owns the partitions that it committed for: start again from `Subscription.assignment`.
    Nothing was written but `written`: the records for partitions that it still owned, on a log that writes for each
    by itself."""

    def __init__(self, message: str, written: Iterable[object] = ()) -> None:
        self.written = tuple(written)
        super().__init__(message)


class DecodeError(EgostreamError):
    """Bytes that are no event of a known kind and version."""


class InvariantError(EgostreamError):
    """An invariant of the design is broken. `events` holds the offending events' ids. Exit code 3, as when the audit
    finds it."""

    exit_code = 3

    def __init__(self, message: str, events: Sequence[str] = ()) -> None:
        self.events = tuple(events)
        super().__init__(f"{message} (events: {', '.join(self.events)})" if events else message)


class EncoderError(EgostreamError):
    """The text encoder's process died, was too slow or can't encode a text."""


class ModelError(EgostreamError):
    """A language model gave no usable answer, also when asked again. `failure`: `unavailable` (it can't be reached, is
    too slow, refuses for now or is broken), `refused` (it will not take this call: key, model or request), `nonsense`
    (it answers, but not what was asked for) or `offline` (not in the cache, and nothing else may be asked)."""

    def __init__(
        self, model: str, failure: Literal["unavailable", "refused", "nonsense", "offline"], reason: str
    ) -> None:
        self.model = model
        self.failure = failure
        self.reason = reason
        super().__init__(f"{model}: {reason}")


class ProcessError(EgostreamError):
    """A process that we started failed or was killed. `code` is its exit code, or the signal less than 0; what it says
    last on standard error comes with it. Of input that it could not use, and of a broken invariant, it is the word."""

    def __init__(self, name: str, code: int, said: Iterable[str]) -> None:
        self.name = name
        self.code = code
        self.said = tuple(line for line in said if line.strip())
        if code in (InputError.exit_code, InvariantError.exit_code):
            self.exit_code = code
        how = f"ended with exit code {code}" if code > 0 else f"was killed by signal {-code}"
        # one that failed on purpose says so in its last line; a traceback or a library may have more
        last = "; ".join(self.said[-3:]) if code != InputError.exit_code else "".join(self.said[-1:])
        super().__init__(f"{name} {how}: {last.removeprefix('egostream: error: ') or 'it said nothing'}")


class MemorySystemError(EgostreamError):
    """A memory system failed while it ingested, answered or committed."""

    def __init__(self, lane: str, operation: str, reason: str) -> None:
        self.lane = lane
        self.operation = operation
        self.reason = reason
        super().__init__(f"{lane}: {operation} failed: {reason}")


class StallError(EgostreamError):
    """Nothing moved for longer than the deadline; the message names the role and what it waits for."""
