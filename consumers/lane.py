"""One lane: one memory system on one stream, its snapshots, and the branches on which trajectories run.

A lane does no log I/O. The agent role feeds it events and writes what it returns.
"""

from __future__ import annotations

import anyio
import structlog
from msgspec.structs import replace

from adapters.memory import Interaction, MemorySystem, Request, Segment
from simulator.errors import InvariantError
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

log = structlog.get_logger(__name__)


class Branch:
    """An isolated fork of a lane's memory at a segment, on which one trajectory runs; with the conversation so
    far and, for the commit ablation, the memory as it was before the commit."""

    __slots__ = ("history", "memory", "segment", "uncommitted")

    def __init__(self, memory: MemorySystem, segment: int) -> None:
        self.memory = memory
        self.segment = segment
        self.history: list[Turn] = []
        self.uncommitted: MemorySystem | None = None


class Lane:
    """Drives one memory system. `ingest` is called one segment at a time; the other calls may run at the same
    time, each on its own branch. In isolation `shared` all of it runs on the one memory, and the conductor and the
    replayer see to it that nothing overlaps."""

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
        """The observations since the last segment, as one segment. Raises InvariantError when they are not the
        ones that the event names."""
        observations, self.open_observations = tuple(self.open_observations), []
        expected = event.last_seq - event.first_seq + 1
        gapless = all(o.seq == event.first_seq + i for i, o in enumerate(observations))
        if len(observations) != expected or not gapless:
            raise InvariantError(
                f"segment {event.segment} of {self.stream} names observations {event.first_seq}..{event.last_seq}, "
                f"but {len(observations)} were read",
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
        """Ingest one segment and keep a snapshot of the memory after it. A failure becomes the delta's error."""
        delta = None
        error = None
        try:
            with anyio.fail_after(self.call_timeout_s):
                delta = await self.memory.ingest(segment)
        except Exception as failure:  # whatever a memory system raises is its result for this segment
            error = describe(failure)
            log.warning("ingest_failed", lane=self.lane, segment=segment.segment, error=error)
        if self.isolation == "branch":
            self._snapshots[segment.segment] = self.memory.fork()
        event = DeltaEvent(
            id=f"{self.lane}/delta/{segment.segment}",
            run=self.run,
            stream=self.stream,
            event_time_us=segment.end_time_us,
            as_of=segment.segment,
            causes=(closed_id,),
            lane=self.lane,
            segment=segment.segment,
            error=error,
        )
        if delta is None:
            return event
        return replace(event, records=delta.records, stored_bytes=delta.stored_bytes, usage=delta.usage)

    async def release(self, segment: int) -> None:
        """Forget the snapshots up to and including `segment`: no trajectory starts on them any more."""
        for kept in [s for s in self._snapshots if s <= segment]:
            await self._snapshots.pop(kept).aclose()

    async def answer_task(self, task: TaskEvent) -> ResponseEvent:
        """T1 → R1 on a new branch, T2 → R2 on the trajectory's branch (or on what it was before the commit)."""
        branch = self._branch_for(task)
        memory = branch.memory
        phase: ResponsePhase = "R1" if task.phase == "T1" else "R2"
        if task.arm == "uncommitted":
            if branch.uncommitted is None:
                raise InvariantError("T2 of the uncommitted arm, but the commit did not keep that branch", (task.id,))
            memory = branch.uncommitted
        request = Request(text=task.text, phase=phase, event_time_us=task.event_time_us)
        response = await self._answer(memory, request, task, phase, task.arm)
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
        return await self._answer(branch.memory, request, feedback, "R_F", "committed")

    async def commit(self, event: CommitEvent) -> CommittedEvent:
        """Take the interaction into the trajectory's branch."""
        branch = self._branch_for(event)
        if event.keep_uncommitted:
            branch.uncommitted = branch.memory.fork()
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
            with anyio.fail_after(self.call_timeout_s):
                delta = await branch.memory.commit(interaction)
        except Exception as failure:  # as in ingest
            log.warning("commit_failed", lane=self.lane, trajectory=event.trajectory, error=describe(failure))
            return replace(committed, error=describe(failure))
        return replace(committed, records=delta.records, stored_bytes=delta.stored_bytes, usage=delta.usage)

    async def end_trajectory(self, trajectory: str) -> None:
        """Drop the trajectory's branch."""
        branch = self._branches.pop(trajectory, None)
        if branch is not None and branch.memory is not self.memory:
            await branch.memory.aclose()
            if branch.uncommitted is not None:
                await branch.uncommitted.aclose()

    async def aclose(self) -> None:
        """Close the branches, the snapshots and the memory."""
        for trajectory in list(self._branches):
            await self.end_trajectory(trajectory)
        for snapshot in self._snapshots.values():
            await snapshot.aclose()
        self._snapshots.clear()
        await self.memory.aclose()

    def _branch_for(self, event: TrajectoryEvent) -> Branch:
        branch = self._branches.get(event.trajectory)
        if branch is None:
            if not isinstance(event, TaskEvent) or event.phase != "T1":
                raise InvariantError(f"trajectory {event.trajectory} has no T1 on this lane", (event.id,))
            if self.isolation == "shared":
                branch = Branch(self.memory, event.segment)
            elif event.segment in self._snapshots:
                branch = Branch(self._snapshots[event.segment].fork(), event.segment)
            else:
                raise InvariantError(
                    f"{self.lane} holds no snapshot of segment {event.segment}: T1 came before its delta, or after "
                    "its release",
                    (event.id,),
                )
            self._branches[event.trajectory] = branch
        return branch

    async def _answer(
        self, memory: MemorySystem, request: Request, cause: TrajectoryEvent, phase: ResponsePhase, arm: Arm
    ) -> ResponseEvent:
        suffix = phase if arm == "committed" else f"{phase}-uncommitted"
        response = ResponseEvent(
            id=f"{cause.trajectory}/{suffix}",
            run=self.run,
            stream=self.stream,
            event_time_us=cause.event_time_us,
            as_of=self._branches[cause.trajectory].segment,
            causes=(cause.id,),
            lane=self.lane,
            trajectory=cause.trajectory,
            step=cause.step + 1,
            phase=phase,
            arm=arm,
        )
        try:
            with anyio.fail_after(self.call_timeout_s):
                answer = await memory.answer(request)
        except Exception as failure:  # as in ingest
            log.warning("answer_failed", lane=self.lane, trajectory=cause.trajectory, error=describe(failure))
            return replace(response, error=describe(failure))
        return replace(response, text=answer.text, retrieved=answer.retrieved, usage=answer.usage)


def describe(failure: BaseException) -> str:
    """An exception as a reason that people read: its type and its message."""
    return f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
