"""A lane of a load whose memory is also asked while ingest goes on.

A memory system was never promised that `answer` runs while an `ingest` of the same instance is under way, so it does
not. One that forks cheaply is asked on forks, as in a run: a snapshot is forked after each ingest, and each question
gets a fork of the newest, so that it waits for no ingest. Any other has one memory that ingests and answers in turn, in
the order in which they come to it: a question waits for the ingest that is under way, but not for the segments that
wait for theirs, and the next segment waits for the questions before it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple

import anyio
from msgspec.structs import replace

from adapters.memory import MemorySystem, Segment
from consumers.branch import Branch
from consumers.history import LaneHistory
from consumers.homes import Isolating
from consumers.isolation import fork_of
from consumers.lane import Lane
from simulator.errors import MemorySystemError
from simulator.events import Isolation, ResponseEvent, TaskEvent, TrajectoryEvent


class _Newest(NamedTuple):
    """The newest segment that the memory has taken in (or failed to), when that ended, and the snapshot after it, or
    why there is none; None where the memory itself is asked."""

    segment: int
    event_time_us: int
    snapshot: MemorySystem | MemorySystemError | None


class QuestionedLane(Lane):
    """As `Lane`. `forks`: questions are answered on forks of the newest snapshot; else in turn with the ingest."""

    def __init__(
        self,
        lane: str,
        stream: str,
        run: str,
        memory: MemorySystem,
        isolation: Isolation,
        call_timeout_s: float = 600.0,
        history: LaneHistory | None = None,
        isolating: Isolating | None = None,
        *,
        forks: bool,
    ) -> None:
        super().__init__(lane, stream, run, memory, isolation, call_timeout_s, history, isolating)
        self._turn = None if forks else anyio.Lock()
        self._newest: _Newest | None = None
        self._retired: list[MemorySystem] = []
        """Snapshots that are not the newest any more: closed apart from the ingest, whose time it would take."""

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Without forks: one call of the memory at a time, the first that came first."""
        return nullcontext() if self._turn is None else self._turn

    def keep_newest(self, segment: Segment) -> bool:
        """Fork a snapshot, where questions are answered on one."""
        self._retire()
        snapshot: MemorySystem | MemorySystemError | None = None
        if self._turn is None:
            try:
                snapshot = fork_of(self.memory, self.lane)
            except MemorySystemError as failure:
                snapshot = failure
        self._newest = _Newest(segment.segment, segment.end_time_us, snapshot)
        return self._turn is None

    def _retire(self) -> None:
        newest = None if self._newest is None else self._newest.snapshot
        if newest is not None and not isinstance(newest, MemorySystemError):
            self._retired.append(newest)

    async def release(self, segment: int) -> None:
        """As in a `Lane`, and close the snapshots that are not the newest any more."""
        retired, self._retired = self._retired, []
        await self._brancher.close(retired)
        await super().release(segment)

    async def isolate(self, event: TrajectoryEvent) -> None:
        """Get the memory that a question is answered on, as it is now."""
        newest = self._newest
        if (
            newest is None or event.trajectory in self._past.closed
        ):  # nothing is asked before the first segment
            return
        branch = self._branches.setdefault(event.trajectory, Branch())
        branch.segment, branch.event_time_us = newest.segment, newest.event_time_us
        if newest.snapshot is None:
            branch.memory = self.memory
        elif isinstance(newest.snapshot, MemorySystemError):
            branch.failed = newest.snapshot
        else:
            try:
                branch.memory = fork_of(newest.snapshot, self.lane)
            except MemorySystemError as failure:
                branch.failed = failure

    async def answer_task(self, task: TaskEvent) -> ResponseEvent | None:
        """T1 → R1, both at the time of the newest segment that the memory has taken in."""
        branch = self._branches.get(task.trajectory)
        if branch is not None and branch.event_time_us is not None:
            task = replace(task, event_time_us=branch.event_time_us)
        return await super().answer_task(task)

    async def aclose(self) -> None:
        """Close the snapshots as well."""
        self._retire()
        self._newest = None
        await self._brancher.close(self._retired)
        await super().aclose()
