"""One lane: one memory system on one stream, its snapshots, and the branches on which trajectories run.

A lane does no log I/O. The agent role feeds it events and writes what it returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from msgspec.structs import replace

from adapters.memory import Answer, Delta, Interaction, MemorySystem, Request, Segment
from consumers.calls import CallError, call, close_all, describe
from simulator.errors import DecodeError, InvariantError, MemorySystemError
from simulator.events import (
    Arm,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    FeedbackEvent,
    Isolation,
    ObservationEvent,
    ResponseEvent,
    ResponsePhase,
    SegmentClosedEvent,
    TaskEvent,
    TrajectoryEvent,
    Turn,
)
from simulator.intake import check_readable

T = TypeVar("T")
E = TypeVar("E", DeltaEvent, ResponseEvent, CommittedEvent)

log = structlog.get_logger(__name__)


class Branch:
    """An isolated fork of a lane's memory at a segment, on which one trajectory runs; with the conversation
    so far and, for the commit ablation, the memory as it was before the commit."""

    __slots__ = ("history", "memory", "segment", "uncommitted")

    def __init__(self, memory: MemorySystem | None, segment: int) -> None:
        self.memory = memory
        self.segment = segment
        self.history: list[Turn] = []
        self.uncommitted: MemorySystem | None = None


class Lane:
    """Drives one memory system. `ingest` is called one segment at a time; the other calls may run at the same
    time, each on its own branch. In isolation `shared` all of it runs on the one memory, and the conductor
    and the replayer see to it that nothing overlaps.

    Whatever a memory system raises, how long it hangs and what nonsense it gives becomes the `error` of that
    one result."""

    def __init__(
        self,
        lane: str,
        stream: str,
        run: str,
        memory: MemorySystem,
        isolation: Isolation,
        call_timeout_s: float = 600.0,
    ) -> None:
        self.lane = lane
        self.stream = stream
        self.run = run
        self.memory = memory
        self.isolation = isolation
        self.call_timeout_s = call_timeout_s
        self.open_observations: list[ObservationEvent] = []
        self._snapshots: dict[int, MemorySystem] = {}
        self._branches: dict[str, Branch] = {}

    @property
    def open_branches(self) -> int:
        """Trajectories that have begun and not ended here."""
        return len(self._branches)

    def close_segment(self, event: SegmentClosedEvent) -> Segment:
        """The observations since the last segment, as one segment. Raises InvariantError when they are not
        the ones that the event names."""
        observations, self.open_observations = tuple(self.open_observations), []
        expected = event.last_seq - event.first_seq + 1
        gapless = all(o.seq == event.first_seq + i for i, o in enumerate(observations))
        if len(observations) != expected or not gapless:
            raise InvariantError(
                f"segment {event.segment} of {self.stream} names observations "
                f"{event.first_seq}..{event.last_seq}, but {len(observations)} were read",
                (event.id, *(o.id for o in observations[:2])),
            )
        return Segment(
            stream=self.stream,
            segment=event.segment,
            day=event.day,
            segment_id=event.segment_id,
            start_time_us=event.start_time_us,
            end_time_us=event.event_time_us,
            observations=observations,
        )

    async def ingest(self, segment: Segment, closed_id: str) -> DeltaEvent:
        """Ingest one segment and keep a snapshot of the memory after it. A failure becomes the delta's error,
        and leaves no snapshot: no trajectory starts on it."""
        event = DeltaEvent(
            id=f"{self.lane}/delta/{segment.segment}",
            run=self.run,
            stream=self.stream,
            event_time_us=segment.end_time_us,
            as_of=segment.segment,
            causes=(closed_id,),
            lane=self.lane,
            segment=segment.segment,
        )
        try:
            delta = await self._call("ingest", lambda: self.memory.ingest(segment), Delta)
            event = self._written("ingest", event, delta)  # if the fork fails: it is stored all the same
            if self.isolation == "branch":
                self._snapshots[segment.segment] = self._fork(self.memory)
        except MemorySystemError as failure:
            return self._failed(event, failure)
        return event

    async def release(self, segment: int) -> None:
        """Forget the snapshots up to and including `segment`: no trajectory starts on them any more."""
        released = [kept for kept in self._snapshots if kept <= segment]
        await close_all([self._snapshots.pop(kept) for kept in released], self.lane)

    async def answer_task(self, task: TaskEvent) -> ResponseEvent:
        """T1 → R1 on a new branch, T2 → R2 on the trajectory's branch (or on what it was before the
        commit)."""
        branch = self._branch_for(task)
        phase: ResponsePhase = "R1" if task.phase == "T1" else "R2"
        request = Request(text=task.text, phase=phase, event_time_us=task.event_time_us)
        response = await self._answer(branch, request, task, phase, task.arm)
        if phase == "R1":
            branch.history = [Turn(role="user", text=task.text), Turn(role="assistant", text=response.text)]
        return response

    async def answer_feedback(self, feedback: FeedbackEvent) -> ResponseEvent:
        """F that asks to revise → R_F, with the conversation so far."""
        branch = self._branch_for(feedback)
        branch.history.append(Turn(role="user", text=feedback.text))
        request = Request(
            text=branch.history[0].text,
            phase="R_F",
            history=tuple(branch.history),
            event_time_us=feedback.event_time_us,
        )
        return await self._answer(branch, request, feedback, "R_F", "committed")

    async def commit(self, event: CommitEvent) -> CommittedEvent:
        """Take the interaction into the trajectory's branch."""
        branch = self._branch_for(event)
        interaction = Interaction(
            id=event.trajectory.removeprefix(f"{self.lane}/"),
            turns=event.interaction,
            event_time_us=event.event_time_us,
        )
        committed = CommittedEvent(
            id=f"{event.trajectory}/committed",
            run=self.run,
            stream=self.stream,
            event_time_us=event.event_time_us,
            as_of=branch.segment,
            causes=(event.id,),
            lane=self.lane,
            trajectory=event.trajectory,
            step=event.step + 1,
        )
        try:
            if event.keep_uncommitted:
                branch.uncommitted = self._fork(self._memory_of(branch))
            delta = await self._call("commit", lambda: self._memory_of(branch).commit(interaction), Delta)
            return self._written("commit", committed, delta)
        except MemorySystemError as failure:
            return self._failed(committed, failure)

    async def end_trajectory(self, trajectory: str) -> None:
        """Drop the trajectory's branch."""
        branch = self._branches.pop(trajectory, None)
        if branch is not None:
            await close_all(self._own(branch), self.lane)

    async def aclose(self) -> None:
        """Close the branches, the snapshots and the memory."""
        memories = [memory for branch in self._branches.values() for memory in self._own(branch)]
        memories += [*self._snapshots.values(), self.memory]
        self._branches.clear()
        self._snapshots.clear()
        await close_all(memories, self.lane)

    def _own(self, branch: Branch) -> list[MemorySystem]:
        """The memories that belong to a branch alone."""
        return [m for m in (branch.memory, branch.uncommitted) if m is not None and m is not self.memory]

    def _memory_of(self, branch: Branch) -> MemorySystem:
        """The memory of a branch, forked when it is first needed, so that a fork that fails is that call's
        result."""
        if branch.memory is None:
            branch.memory = self._fork(self._snapshots[branch.segment])
        return branch.memory

    def _branch_for(self, event: TrajectoryEvent) -> Branch:
        branch = self._branches.get(event.trajectory)
        if branch is None:
            if not isinstance(event, TaskEvent) or event.phase != "T1":
                raise InvariantError(f"trajectory {event.trajectory} has no T1 on this lane", (event.id,))
            if self.isolation == "shared":
                branch = Branch(self.memory, event.segment)
            elif event.segment in self._snapshots:
                branch = Branch(None, event.segment)
            else:
                raise InvariantError(
                    f"{self.lane} holds no snapshot of segment {event.segment}: T1 came before its delta, "
                    "or after its release",
                    (event.id,),
                )
            self._branches[event.trajectory] = branch
        return branch

    async def _answer(
        self, branch: Branch, request: Request, cause: TrajectoryEvent, phase: ResponsePhase, arm: Arm
    ) -> ResponseEvent:
        suffix = phase if arm == "committed" else f"{phase}-{arm}"
        response = ResponseEvent(
            id=f"{cause.trajectory}/{suffix}",
            run=self.run,
            stream=self.stream,
            event_time_us=cause.event_time_us,
            as_of=branch.segment,
            causes=(cause.id,),
            lane=self.lane,
            trajectory=cause.trajectory,
            step=cause.step + 1,
            phase=phase,
            arm=arm,
        )
        try:
            memory = self._memory_of(branch) if arm == "committed" else branch.uncommitted
            if memory is None:
                raise InvariantError(
                    "T2 of the uncommitted arm, but the commit did not keep that branch", (cause.id,)
                )
            answer = await self._call("answer", lambda: memory.answer(request), Answer)
            return self._written("answer", response, answer)
        except MemorySystemError as failure:
            return self._failed(response, failure)

    async def _call(self, operation: str, function: Callable[[], Awaitable[T]], gives: type[T]) -> T:
        try:
            return await call(function, gives, self.call_timeout_s)
        except CallError as failure:
            raise MemorySystemError(self.lane, operation, str(failure)) from failure

    def _fork(self, memory: MemorySystem) -> MemorySystem:
        try:
            fork = memory.fork()
        except (Exception, SystemExit) as failure:
            raise MemorySystemError(self.lane, "fork", f"fork failed: {describe(failure)}") from failure
        if fork is memory:
            raise MemorySystemError(self.lane, "fork", "fork gave the same object and no copy")
        return fork

    def _written(self, operation: str, event: E, result: Delta | Answer) -> E:
        """The event with what the memory system gave, known to be readable by everybody."""
        kind = Delta if isinstance(result, Delta) else Answer
        written = replace(event, **{name: getattr(result, name) for name in kind.__struct_fields__})
        try:
            check_readable(written)
        except DecodeError as error:
            raise MemorySystemError(
                self.lane, operation, f"what it gave can't be written: {error}"
            ) from error
        return written

    def _failed(self, event: E, failure: MemorySystemError) -> E:
        log.warning("memory_failed", event_id=event.id, operation=failure.operation, error=failure.reason)
        return replace(event, error=failure.reason)
