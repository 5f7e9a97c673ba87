"""Memories in folders of their own: made, loaded, closed, and deleted with what they hold."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import anyio
import anyio.to_thread

from adapters.memory import Copyable, MemorySystem, Preparable
from consumers.calls import CallError, call, close_all, describe
from simulator.errors import MemorySystemError
from simulator.events import Means

T = TypeVar("T")

_REMOVE_TIMEOUT_S = 60.0
"""How long folders may take to delete, cancelled or not."""


class Isolating(NamedTuple):
    """How the branches of a system that can't fork are made. `folder`: where their folders lie; it is deleted after
    the run. `open_at`: (lane, stream, its folder) → a memory system, empty or what the folder holds."""

    means: Means
    folder: Path
    open_at: Callable[[str, str, Path], MemorySystem]


class Homes:
    """Memories of one lane that were made here, each in a folder of its own."""

    def __init__(self, lane: str, stream: str, timeout_s: float, isolating: Isolating) -> None:
        self.lane = lane
        self.timeout_s = timeout_s
        self._stream = stream
        self._isolating = isolating
        self._folders: dict[int, Path] = {}
        """id of an open memory → its folder."""

    def new_folder(self) -> Path:
        """A name that nothing has yet."""
        return self._isolating.folder / uuid.uuid4().hex

    async def open(self, folder: Path) -> MemorySystem:
        """A memory on that folder, which goes with it. Raises CallError."""

        async def make() -> MemorySystem:
            return self._isolating.open_at(self.lane, self._stream, folder)

        try:
            memory = cast(MemorySystem, await call(make, object, self.timeout_s))
        except BaseException:
            await self.remove([folder])
            raise
        self._folders[id(memory)] = folder
        try:
            if isinstance(memory, Preparable):
                await call(memory.prepare, object, self.timeout_s)
            if self._isolating.means == "copy" and self.directory_of(memory) != folder:
                raise CallError("it keeps its memory in another directory than that of its context")  # noqa: TRY301  # closes it as well
        except BaseException:
            await self.close([memory])
            raise
        return memory

    async def open_empty(self) -> MemorySystem:
        """A new memory on an empty folder. Raises CallError."""
        folder = self.new_folder()
        try:
            await anyio.to_thread.run_sync(folder.mkdir)
        except OSError as error:
            raise CallError(f"no folder for it: {error.strerror}") from error
        return await self.open(folder)

    def directory_of(self, memory: MemorySystem) -> Path:
        """Where a copyable memory lies: one of our folders. Raises CallError."""
        try:
            directory = Path(cast(Copyable, memory).directory)
        except Exception as failure:  # a property runs its own code
            raise CallError(
                f"it declares fork=copy, but gives no directory: {describe(failure)}"
            ) from failure
        if directory.parent != self._isolating.folder:
            raise CallError("it keeps its memory in another directory than that of its context")
        return directory

    async def close(self, memories: Iterable[MemorySystem]) -> None:
        """Close them and delete their folders, even when cancelled."""
        memories = list(memories)
        await close_all(memories, self.lane)
        await self.remove([f for m in memories if (f := self._folders.pop(id(m), None)) is not None])

    async def remove(self, folders: Iterable[Path]) -> None:
        """Delete folders, even when cancelled. What can't be deleted goes with the folder that all are in."""
        with anyio.move_on_after(_REMOVE_TIMEOUT_S, shield=True):
            for folder in folders:
                await anyio.to_thread.run_sync(shutil.rmtree, folder, True, abandon_on_cancel=True)

    async def must(self, operation: str, function: Callable[[], Awaitable[T]]) -> T:
        """Await `function()`. Raises MemorySystemError for a CallError."""
        try:
            return await function()
        except CallError as failure:
            raise MemorySystemError(self.lane, operation, f"{operation} failed: {failure}") from failure


def new_folder(base: Path) -> Path:
    """Make an empty folder for one memory. Blocking."""
    folder = base / uuid.uuid4().hex
    folder.mkdir()
    return folder
