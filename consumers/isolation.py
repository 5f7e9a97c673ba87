"""How a lane's memory gets its branches, by what the memory system can do: forks, copies of its folder, or replay of
the stream's prefix. The lane uses one protocol for all.

What goes wrong on the way is a MemorySystemError with the reason, and makes that one trajectory unjudged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

import anyio

from adapters.memory import Copyable, Delta, MemorySystem, Segment
from consumers.calls import CallError, call, close_all, describe
from consumers.directories import copy_directory
from consumers.homes import Homes, Isolating
from simulator.errors import MemorySystemError
from simulator.events import Replayed, Usage


class Spent:
    """Counts what a replay takes, also of one that fails."""

    def __init__(self) -> None:
        self.segments = self.prompt_tokens = self.completion_tokens = 0

    def add(self, usage: Usage) -> None:
        """One more segment was ingested again."""
        self.segments += 1
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens

    def total(self) -> Replayed:
        """As an event says it."""
        usage = Usage(prompt_tokens=self.prompt_tokens, completion_tokens=self.completion_tokens)
        return Replayed(segments=self.segments, usage=usage)


class Brancher(Protocol):
    """The branches of one lane. `branch` and `twin` may be called many at a time, and while the lane ingests; the
    others are the lane's own, one at a time."""

    async def settle(self) -> None:
        """The lane's memory is about to change: let nothing depend on that any more."""

    async def keep(self, segment: Segment, delta: Delta | None, *, needed: bool) -> None:
        """The memory has taken in a segment (`delta` is None: it failed). `needed`: trajectories may begin on it."""

    def holds(self, segment: int) -> bool:
        """A branch can be made on this segment, or it is known why not."""

    async def branch(self, segment: int, spent: Spent) -> MemorySystem:
        """A memory of its own, as the lane's was after that segment."""

    async def twin(self, memory: MemorySystem, segment: int, spent: Spent) -> MemorySystem:
        """Another memory like this branch on that segment, which was asked and has taken nothing in yet."""

    async def release(self, is_needed: Callable[[int], bool]) -> None:
        """Forget the segments that are not needed."""

    async def close(self, memories: Iterable[MemorySystem]) -> None:
        """Close these memories, with what belongs to them."""

    async def aclose(self) -> None:
        """Forget all that is kept, and close the lane's memory."""


def brancher_of(
    memory: MemorySystem, lane: str, stream: str, timeout_s: float, isolating: Isolating | None
) -> Brancher:
    """What makes the branches of a lane with this memory; None for one that forks."""
    if isolating is None:
        return _Forks(memory, lane)
    homes = Homes(lane, stream, timeout_s, isolating)
    return _Copies(memory, homes) if isolating.means == "copy" else _Replays(memory, homes)


def fork_of(memory: MemorySystem, lane: str) -> MemorySystem:
    """A fork of a lane's memory. Raises MemorySystemError."""
    try:
        fork = memory.fork()
    except (Exception, SystemExit) as failure:
        raise MemorySystemError(lane, "fork", f"fork failed: {describe(failure)}") from failure
    if fork is memory:
        raise MemorySystemError(lane, "fork", "fork gave the same object and no copy")
    return fork


class _Forks:
    """A snapshot is a fork, and so is a branch of it."""

    def __init__(self, memory: MemorySystem, lane: str) -> None:
        self._memory = memory
        self._lane = lane
        self._snapshots: dict[int, MemorySystem] = {}

    async def settle(self) -> None:
        pass

    async def keep(self, segment: Segment, delta: Delta | None, *, needed: bool) -> None:
        if needed and delta is not None:
            self._snapshots[segment.segment] = fork_of(self._memory, self._lane)

    def holds(self, segment: int) -> bool:
        return segment in self._snapshots

    async def branch(self, segment: int, spent: Spent) -> MemorySystem:
        return fork_of(self._snapshots[segment], self._lane)

    async def twin(self, memory: MemorySystem, segment: int, spent: Spent) -> MemorySystem:
        return fork_of(memory, self._lane)

    async def release(self, is_needed: Callable[[int], bool]) -> None:
        released = [segment for segment in self._snapshots if not is_needed(segment)]
        await self.close([self._snapshots.pop(segment) for segment in released])

    async def close(self, memories: Iterable[MemorySystem]) -> None:
        await close_all(memories, self._lane)

    async def aclose(self) -> None:
        await self.close([*self._snapshots.values(), self._memory])
        self._snapshots.clear()


class _Copies:
    """A snapshot is a copy of the memory's folder, made before the memory changes again, and only if a trajectory may
    still begin on it; a branch is a memory on a copy of the snapshot.

    Most segments have no trajectory, and their release is on its way: the next ingest waits for it as long as the
    last copy took, and so loses at most as much as it may save.
    """

    def __init__(self, memory: MemorySystem, homes: Homes) -> None:
        self._memory = memory
        self._homes = homes
        self._kept: dict[int, Path | MemorySystemError | None] = {}
        """Segment → its copy, or why there is none; None for the one that the memory itself still shows."""
        self._copying = anyio.Lock()
        self._changed = anyio.Event()
        self._copy_s = 0.0

    async def settle(self) -> None:
        current = next((segment for segment, kept in self._kept.items() if kept is None), -1)
        with anyio.move_on_after(self._copy_s):
            while self._is_shown(current):
                await self._changed.wait()
        async with self._copying:  # for a copy under way as well, though nobody may need it any more
            if self._is_shown(current):
                try:
                    await self._copy_main(current)
                except MemorySystemError as failure:
                    if current in self._kept:
                        self._kept[current] = failure

    async def keep(self, segment: Segment, delta: Delta | None, *, needed: bool) -> None:
        if needed and delta is not None:
            self._kept[segment.segment] = None

    def holds(self, segment: int) -> bool:
        return segment in self._kept

    async def branch(self, segment: int, spent: Spent) -> MemorySystem:
        snapshot = await self._snapshot(segment)
        return await self._homes.must("copy", lambda: self._open_copy(snapshot))

    async def twin(self, memory: MemorySystem, segment: int, spent: Spent) -> MemorySystem:
        folder = self._homes.new_folder()
        await self._homes.must("copy", lambda: self._copy_of(memory, folder))
        return await self._homes.must("copy", lambda: self._homes.open(folder))

    async def release(self, is_needed: Callable[[int], bool]) -> None:
        released = [segment for segment in self._kept if not is_needed(segment)]
        copies = [self._kept.pop(segment) for segment in released]
        self._wake()
        await self._homes.remove([copy for copy in copies if isinstance(copy, Path)])

    async def close(self, memories: Iterable[MemorySystem]) -> None:
        await self._homes.close(memories)

    async def aclose(self) -> None:
        await self.close([self._memory])
        await self.release(lambda _: False)
        with suppress(CallError):  # it lies elsewhere: not ours to delete
            await self._homes.remove([self._homes.directory_of(self._memory)])

    def _is_shown(self, segment: int) -> bool:
        """It is needed, and nothing shows it but the memory itself."""
        return segment in self._kept and self._kept[segment] is None

    async def _snapshot(self, segment: int) -> Path:
        """The copy of that segment, made now if the memory still shows it."""
        async with self._copying:
            if self._is_shown(segment):
                await self._copy_main(segment)
            kept = self._kept.get(segment)
            if kept is None:
                reason = f"the snapshot of segment {segment} is gone"
                raise MemorySystemError(self._homes.lane, "copy", reason)
            if isinstance(kept, MemorySystemError):
                raise kept
            return kept

    async def _copy_main(self, segment: int) -> None:
        began_s = anyio.current_time()
        folder = self._homes.new_folder()
        await self._homes.must("copy", lambda: self._copy_of(self._memory, folder))
        self._copy_s = anyio.current_time() - began_s
        if segment in self._kept:
            self._kept[segment] = folder
            self._wake()
        else:  # released meanwhile
            await self._homes.remove([folder])

    async def _copy_of(self, memory: MemorySystem, folder: Path) -> None:
        directory = self._homes.directory_of(memory)
        await call(cast(Copyable, memory).flush, object, self._homes.timeout_s)
        await self._copy(directory, folder)

    async def _open_copy(self, snapshot: Path) -> MemorySystem:
        folder = self._homes.new_folder()
        await self._copy(snapshot, folder)
        return await self._homes.open(folder)

    async def _copy(self, source: Path, target: Path) -> None:
        try:
            await call(lambda: copy_directory(source, target), object, self._homes.timeout_s)
        except BaseException:
            await self._homes.remove([target])
            raise

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _Replays:
    """A branch is a new memory that ingests the stream again up to its segment. It must come to the same deltas as
    the lane did: else it is another memory, whose verdicts would say nothing about this one."""

    def __init__(self, memory: MemorySystem, homes: Homes) -> None:
        self._memory = memory
        self._homes = homes
        self._past: list[tuple[Segment, Delta | None]] = []
        self._needed: set[int] = set()

    async def settle(self) -> None:
        pass

    async def keep(self, segment: Segment, delta: Delta | None, *, needed: bool) -> None:
        self._past.append((segment, delta))
        if needed and delta is not None:
            self._needed.add(segment.segment)

    def holds(self, segment: int) -> bool:
        return segment in self._needed

    async def branch(self, segment: int, spent: Spent) -> MemorySystem:
        memory = await self._homes.must("replay", self._homes.open_empty)
        try:
            for past, delta in self._past[: segment + 1]:
                await self._ingest_again(memory, past, delta, spent)
        except BaseException:
            await self.close([memory])
            raise
        return memory

    async def twin(self, memory: MemorySystem, segment: int, spent: Spent) -> MemorySystem:
        return await self.branch(segment, spent)

    async def release(self, is_needed: Callable[[int], bool]) -> None:
        self._needed = {segment for segment in self._needed if is_needed(segment)}

    async def close(self, memories: Iterable[MemorySystem]) -> None:
        await self._homes.close(memories)

    async def aclose(self) -> None:
        self._past.clear()
        await self.close([self._memory])

    async def _ingest_again(
        self, memory: MemorySystem, segment: Segment, expected: Delta | None, spent: Spent
    ) -> None:
        delta, said = None, ""
        try:
            delta = await call(lambda: memory.ingest(segment), Delta, self._homes.timeout_s)
        except CallError as failure:
            said = str(failure)
        spent.add(delta.usage if delta is not None else Usage())
        if expected is None and delta is None:
            return  # it fails each time: the branch has what the lane has
        if delta is None:
            reason = f"ingest of segment {segment.segment} failed: {said}"
        elif expected is None:
            reason = f"the lane failed to ingest segment {segment.segment}, which its replay did not"
        elif delta.records != expected.records:
            reason = f"segment {segment.segment} was ingested to another delta than the lane's"
        else:
            return
        raise MemorySystemError(self._homes.lane, "replay", f"replay failed: {reason}")
