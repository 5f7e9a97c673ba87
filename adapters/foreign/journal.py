"""What the memories of a lane have taken in, on disk: from it they are built again when their process has died."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
import msgspec

from adapters.memory import Interaction, Segment

Change = Segment | Interaction


class Place(NamedTuple):
    """Where a change stands."""

    offset: int
    length: int


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    segment: Segment | None = None
    interaction: Interaction | None = None


class Journal:
    """One file, which only grows."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def append(self, change: Change) -> Place:
        """Keep a change."""
        entry = _Entry(segment=change) if isinstance(change, Segment) else _Entry(interaction=change)
        return await anyio.to_thread.run_sync(self._append, msgspec.json.encode(entry))

    async def read(self, place: Place) -> Change:
        """A change that was kept."""
        content = await anyio.to_thread.run_sync(self._read, place)
        entry = msgspec.json.decode(content, type=_Entry)
        change = entry.segment or entry.interaction
        assert change is not None
        return change

    def _append(self, content: bytes) -> Place:
        with self._path.open("ab") as file:
            offset = file.tell()
            file.write(content)
        return Place(offset, len(content))

    def _read(self, place: Place) -> bytes:
        with self._path.open("rb") as file:
            file.seek(place.offset)
            return file.read(place.length)
