"""How the host drives a foreign memory system: one driver a system, one `Driver` object a memory.

A driver is `host/drivers/NAME.py` with `DRIVER = ItsClass`. It is imported in the environment of its system, so it may
use that and the standard library, Python 3.11 and later. The module is imported before the host says that it is ready:
what takes long to import belongs to its top, and environment variables that the system reads at import are set above.

The host calls one memory one call at a time, but several memories at once, in threads, and never the same thread for
long. So what a driver patches in the system's modules must find its memory by a context variable or by the object that
is called; an address, a key or a clock that hangs on the process would be another memory's.

A driver never shows the system the wall clock: in prompts and in what is stored, now is the time of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Settings(NamedTuple):
    """How a memory is opened. `directory`: of this memory alone; all that it writes goes in there. `base_url`: of an
    OpenAI-compatible server, this memory's own; any key will do. `model`, `embedder`: what calls name there, and
    `dimensions` the length of the embedder's vectors. `source`: a checkout, of a system that is on no registry.
    `options`: the user's, for this system; each is one that the catalogue has, and what it may be there."""

    directory: Path
    base_url: str
    model: str
    embedder: str
    dimensions: int
    seed: int
    source: Path | None
    options: Mapping[str, Any]


class Message(NamedTuple):
    """One observation of a segment, or one turn of a conversation that is committed (`speaker` is then `user` or
    `assistant`). `event_time_us`: simulated, on the clock of the place, microseconds since 1970 as if in UTC."""

    speaker: str
    text: str
    event_time_us: int


class Held(NamedTuple):
    """One record as the system holds it now. `event_time_us`: None lets the host stamp it with the newest message's
    time, when it first sees the record and each time that its text has changed."""

    text: str
    event_time_us: int | None = None


class Driver(Protocol):
    """One memory. Made on an empty directory it is empty; on one with a memory's state, it is that memory.

    Whatever a call raises fails that operation, and the host goes on with a fork that it made before. What the system
    keeps in the object alone is lost with it: only `fork` has to carry it over.

    `searching_changes`: a search alters the state (heat, visits), so the host searches on a fork made for that."""

    searching_changes: ClassVar[bool]

    def __init__(self, settings: Settings) -> None: ...

    def ingest(self, messages: Sequence[Message], event_time_us: int) -> None:
        """Take in a segment's observations, or a conversation's turns, at that time, and finish it: nothing may go on
        in the background. Calls of models that fail have to fail it, or the gateway will."""

    def records(self) -> Mapping[str, Held]:
        """Native id → record: all that is held, in an order that is the same in each run. Asks no model."""

    def search(self, text: str, top_k: int, now_us: int) -> Sequence[tuple[str, float]]:
        """Native ids of at most `top_k` records and how well they match, best first."""

    def stored_bytes(self) -> int:
        """What the memory takes: texts in UTF-8 and vectors, or what it keeps on disk."""

    def fork(self, settings: Settings) -> Driver:
        """An isolated copy of this memory as it is now, in `settings.directory` (which is there, and empty)."""

    def close(self) -> None:
        """Let go of files, threads and connections. The host deletes the directory."""


def moment(event_time_us: int) -> datetime:
    """A simulated time as a datetime, in UTC."""
    return _EPOCH + timedelta(microseconds=event_time_us)
