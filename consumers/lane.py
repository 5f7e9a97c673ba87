"""One lane: one memory system on one stream, its snapshots, and the branches on which trajectories run.

A lane does no log I/O. The agent role feeds it events and writes what it returns. Events of one trajectory
travel on several topics, and a lane that is rebuilt reads them all at once: each waits here for the one
before it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

import anyio
import structlog
from msgspec.structs import replace

from adapters.memory import Answer, Delta, Interaction, MemorySystem, Preparable, Request, Segment
from consumers.branch import Branch
from consumers.calls import CallError, call
from consumers.history import LaneHistory
from consumers.homes import Isolating
from consumers.isolation import Spent, brancher_of
from simulator.errors import DecodeError, InvariantError, MemorySystemError
from simulator.events import (
    Arm,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    FeedbackEvent,
    Isolation,
    LaneRebuiltEvent,
    ObservationEvent,
    Replayed,
    ResponseEvent,
    ResponsePhase,
    SegmentClosedEvent,
    TaskEvent,
    TrajectoryEvent,
    Turn,
)
from simulator.intake import check_readable
from simulator.protocols.trajectory import Common, common_of

T = TypeVar("T")
E = TypeVar("E", DeltaEvent, ResponseEvent, CommittedEvent)

log = structlog.get_logger(__name__)


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
        history: LaneHistory | None = None,
        isolating: Isolating | None = None,
    ) -> None:
        self.lane = lane
        self.stream = stream
        self.run = run
        self.memory = memory
        self.isolation = isolation
        self.call_timeout_s = call_timeout_s
        self.open_observations: list[ObservationEvent] = []
        self._past = history or LaneHistory()
        self._to_commit = deque(self._past.commits)
        self._committing = anyio.Lock()
        self._ingested = -1
        self._moved = anyio.Event()
        self._brancher = brancher_of(memory, lane, stream, call_timeout_s, isolating)
        self._branches: dict[str, Branch] = {}
        self._first_token_s: dict[str, float] = {}
        """Id of a response → when its first token was there; until it is asked for."""
        self._rebuilt: list[LaneRebuiltEvent] = []

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Held while a call runs. Here it keeps nobody out."""
        return nullcontext()

    def keep_newest(self, segment: Segment) -> bool:
        """The memory is now as it was after this segment; gives whether that was kept in a fork."""
        return False

    def first_token_s(self, response: str) -> float | None:
        """How long after its call began a response's first token was there, where its system says so. To be asked
        once."""
        return self._first_token_s.pop(response, None)

    def rebuilt(self) -> list[LaneRebuiltEvent]:
        """What is to be said of the memory's rebuild, before anything that rests on it. To be asked once."""
        said, self._rebuilt = self._rebuilt, []
        return said

    async def prepare(self) -> None:
        """Let the memory load what it needs before its first segment."""
        memory = self.memory
        if isinstance(memory, Preparable):
            try:
                await call(memory.prepare, object, self.call_timeout_s)
            except CallError as failure:
                log.warning("prepare_failed", lane=self.lane, error=str(failure))

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

    async def ingest(self, segment: Segment, closed_id: str) -> DeltaEvent | None:
        """Ingest one segment and keep a snapshot of the memory after it. A failure becomes the delta's error,
        and leaves no snapshot: no trajectory starts on it. None where the log holds the delta already: a segment that
        failed is then left out again."""
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
        recorded = segment.segment < self._past.deltas
        delta = None
        try:
            await self._catch_up(segment.segment)
            await self.settle()
            if (error := self._past.rebuild.failed(event.id)) is not None:
                event = replace(event, error=error)
            else:
                delta = await self._call("ingest", lambda: self.memory.ingest(segment), Delta)
                event = self._written("ingest", event, delta)
        except MemorySystemError as failure:
            event = self._failed(event, failure)
        self._compare(event)
        needed = self.isolation == "branch" and event.error is None and self._is_needed(segment.segment)
        try:
            await self._brancher.keep(segment, delta, needed=needed)
        except MemorySystemError as failure:  # it is stored all the same
            event = self._failed(event, failure)
        self._ingested = segment.segment
        self._moved.set()
        self._moved = anyio.Event()
        return None if recorded else event

    async def settle(self) -> None:
        """Let no snapshot depend any more on the memory staying as it is. `ingest` does so too; it may wait for a
        copy, which is no part of the ingest, and so is better asked for before."""
        await self._brancher.settle()

    async def release(self, segment: int) -> None:
        """Forget the snapshots up to and including `segment`: no trajectory starts on them any more."""
        self._past.released = max(self._past.released, segment)
        await self._brancher.release(self._is_needed)

    async def turn(self, event: TaskEvent | FeedbackEvent | CommitEvent) -> None:
        """Wait until what comes before this event is there: the segment, R1, or the commit. Raises
        InvariantError when it never comes."""
        if event.trajectory in self._past.closed:
            return
        if isinstance(event, CommitEvent):
            self._branches.setdefault(event.trajectory, Branch()).committing.set()
        if isinstance(event, TaskEvent) and event.phase == "T1":
            self._branches.setdefault(event.trajectory, Branch()).begun.set()
            while self._ingested < event.segment and event.trajectory not in self._past.closed:
                await self._moved.wait()
        else:
            await self._branch_for(event, after_commit=isinstance(event, TaskEvent))

    async def isolate(self, event: TrajectoryEvent) -> None:
        """For a T1, get the branch that its trajectory runs on: this may take a copy or a replay, which is no part
        of the answer. What goes wrong shows in what the trajectory answers. Raises InvariantError for a T1 out of
        place."""
        if not isinstance(event, TaskEvent) or event.phase != "T1" or event.trajectory in self._past.closed:
            return
        branch = self._branches.setdefault(event.trajectory, Branch())
        branch.segment = event.segment
        if self.isolation == "shared":
            branch.memory = self.memory
            return
        if not self._brancher.holds(event.segment):
            raise InvariantError(
                f"{self.lane} holds no snapshot of segment {event.segment}: T1 came before its delta, or "
                "after its release",
                (event.id,),
            )
        recorded = self._past.results.get(f"{event.trajectory}/R1")
        if recorded is not None and recorded.error is not None:
            branch.failed = MemorySystemError(self.lane, "answer", recorded.error)
            return
        try:
            memory = await self._brancher.branch(event.segment, branch.spent)
        except MemorySystemError as failure:
            branch.failed = failure
            if recorded is not None:
                log.warning(
                    "rebuild_failed", lane=self.lane, trajectory=event.trajectory, error=failure.reason
                )
            return
        if event.trajectory in self._past.closed:  # meanwhile: nobody else will close it
            await self._brancher.close([memory])
        else:
            branch.memory = memory

    async def answer_task(self, task: TaskEvent) -> ResponseEvent | None:
        """T1 → R1 on a new branch, T2 → R2 on the trajectory's branch (or on what it was before the
        commit). None where the log holds the response already, or the trajectory has ended."""
        if task.phase == "T1":
            return await self._begin(task)
        branch = await self._branch_for(task, after_commit=True)
        if branch is None:
            return None
        return await self._answer(branch, self._request(task, "R2"), task, "R2", task.arm)

    async def _begin(self, task: TaskEvent) -> ResponseEvent | None:
        if task.trajectory in self._past.closed:
            return None
        branch = self._branches.get(task.trajectory)
        if branch is None or (branch.memory is None and branch.failed is None):
            await self.isolate(task)
            branch = self._branches.get(task.trajectory)
            if branch is None or task.trajectory in self._past.closed:  # it has ended meanwhile
                return None
        if self.isolation == "shared":
            await self._catch_up(None)
        recorded = self._past.results.get(f"{task.trajectory}/R1")
        response = None
        if recorded is None:
            response = await self._answer(branch, self._request(task, "R1"), task, "R1", "committed")
        said = response if recorded is None else recorded
        assert isinstance(said, ResponseEvent)
        branch.history = [Turn(role="user", text=task.text), Turn(role="assistant", text=said.text)]
        branch.opened.set()
        if self._past.open_on[task.segment]:
            self._past.open_on[task.segment] -= 1
            await self.release(-1)
        return response

    def _request(self, task: TaskEvent, phase: ResponsePhase) -> Request:
        return Request(text=task.text, phase=phase, event_time_us=task.event_time_us)

    async def answer_feedback(self, feedback: FeedbackEvent) -> ResponseEvent | None:
        """F that asks to revise → R_F, with the conversation so far. None as in `answer_task`."""
        branch = await self._branch_for(feedback)
        if branch is None:
            return None
        branch.history.append(Turn(role="user", text=feedback.text))
        request = Request(
            text=branch.history[0].text,
            phase="R_F",
            history=tuple(branch.history),
            event_time_us=feedback.event_time_us,
        )
        return await self._answer(branch, request, feedback, "R_F", "committed")

    async def commit(self, event: CommitEvent) -> CommittedEvent | None:
        """Take the interaction into the trajectory's branch. None where the log holds the result already:
        then the branch takes it in again and nothing is said."""
        branch = await self._branch_for(event)
        if branch is None:
            return None
        committed = self._committed(event, branch.segment)
        recorded = committed.id in self._past.results
        spent = Spent()
        try:
            if event.keep_uncommitted:
                twin = await self._brancher.twin(branch.need(), branch.segment, spent)
                if event.trajectory in self._past.closed:  # meanwhile: nobody else will close it
                    await self._brancher.close([twin])
                    return None
                branch.uncommitted = twin
            if (error := self._past.rebuild.failed(committed.id)) is not None:
                committed = replace(committed, error=error)
            elif not recorded or self.isolation == "branch":  # else `_catch_up` takes it in, in its turn
                delta = await self._take_in(branch.need(), event)
                committed = self._written("commit", committed, delta)
        except MemorySystemError as failure:
            committed = self._failed(committed, failure)
        if self.isolation == "branch" and branch.memory is not None:  # else nothing is answered from it
            self._compare(committed)
        branch.committed.set()
        return None if recorded else replace(committed, replayed=spent.total())

    def _committed(self, event: CommitEvent, segment: int) -> CommittedEvent:
        return CommittedEvent(**_after(event, "committed", segment), step=event.step + 1)

    def _compare(self, event: DeltaEvent | CommittedEvent) -> None:
        """Hold what came of building the memory again against what the log has of it, where it has."""
        said = self._past.rebuild.compare(event)
        if said is not None:
            self._rebuilt.append(said)
            if said.difference:
                log.warning("rebuilt_otherwise", event_id=said.causes[0], difference=said.difference)

    async def _take_in(self, memory: MemorySystem, event: CommitEvent) -> Delta:
        interaction = Interaction(
            id=event.trajectory.removeprefix(f"{self.lane}/"),
            turns=event.interaction,
            event_time_us=event.event_time_us,
        )
        return await self._call("commit", lambda: memory.commit(interaction), Delta)

    async def _catch_up(self, before: int | None) -> None:
        """Isolation `shared`, after a restart: take in again the commits that the memory held, in their
        order, those of segments before `before` ahead of its ingest."""
        async with self._committing:
            while self._to_commit and (before is None or (self._to_commit[0].as_of or 0) < before):
                commit = self._to_commit.popleft()
                delta = await self._take_in(self.memory, commit)
                self._compare(self._written("commit", self._committed(commit, commit.as_of or 0), delta))

    def _is_needed(self, segment: int) -> bool:
        """A trajectory may begin on this segment's snapshot, or began before a restart and forks it again."""
        return segment > self._past.released or self._past.open_on[segment] > 0

    async def end_trajectory(self, trajectory: str) -> None:
        """Drop the trajectory's branch; whatever waits for it gives up."""
        self._past.closed.add(trajectory)
        branch = self._branches.pop(trajectory, None)
        if branch is not None:
            branch.end()
            await self._brancher.close(self._own(branch))

    async def aclose(self) -> None:
        """Close the branches, the snapshots and the memory."""
        memories = [memory for branch in self._branches.values() for memory in self._own(branch)]
        self._branches.clear()
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as closing:
                closing.start_soon(self._brancher.close, memories)
                closing.start_soon(self._brancher.aclose)

    def _own(self, branch: Branch) -> list[MemorySystem]:
        """The memories that belong to a branch alone."""
        return [m for m in (branch.memory, branch.uncommitted) if m is not None and m is not self.memory]

    async def _branch_for(self, event: TrajectoryEvent, *, after_commit: bool = False) -> Branch | None:
        """The trajectory's branch once R1 (or the commit) is there; None when the trajectory has ended.
        Raises InvariantError when that never comes."""
        if event.trajectory in self._past.closed:
            return None
        branch = self._branches.setdefault(event.trajectory, Branch())
        if branch.opened.is_set() and (branch.committed.is_set() or not after_commit):
            return branch  # as nearly always: what an event waits for was in the log before it
        while self._ingested < (event.as_of or 0) and event.trajectory not in self._past.closed:
            await (
                self._moved.wait()
            )  # a lane that is rebuilt may take long, and each ingest has its own deadline
        await self._follow(event, "T1", branch.begun, branch.opened)
        if after_commit:
            await self._follow(event, "commit", branch.committing, branch.committed)
        return None if event.trajectory in self._past.closed else branch

    async def _follow(self, event: TrajectoryEvent, what: str, came: anyio.Event, done: anyio.Event) -> None:
        """Wait for the result of what comes before an event. That itself is in the log, on another topic; its result
        may take long on a lane that is rebuilt (a replay, its turn among many), and each call has a deadline of its
        own. Raises InvariantError when it does not come."""
        if not done.is_set():
            with anyio.move_on_after(self.call_timeout_s) as waiting:
                await came.wait()
            if waiting.cancelled_caught and event.trajectory not in self._past.closed:
                raise InvariantError(f"trajectory {event.trajectory} has no {what} on this lane", (event.id,))
            await done.wait()

    async def _answer(
        self, branch: Branch, request: Request, cause: TrajectoryEvent, phase: ResponsePhase, arm: Arm
    ) -> ResponseEvent | None:
        suffix = phase if arm == "committed" else f"{phase}-{arm}"
        if f"{cause.trajectory}/{suffix}" in self._past.results:
            return None
        response = ResponseEvent(
            **_after(cause, suffix, branch.segment),
            step=cause.step + 1,
            phase=phase,
            arm=arm,
            replayed=branch.spent.total() if phase == "R1" else Replayed(),
        )
        try:
            memory = branch.need() if arm == "committed" else branch.uncommitted
            if memory is None:
                raise InvariantError(
                    "T2 of the uncommitted arm, but the commit did not keep that branch", (cause.id,)
                )
            answer = await self._call("answer", lambda: memory.answer(request), Answer)
            first_s = None if answer.first_token_s is None else self._checked_s(answer.first_token_s)
            response = self._written("answer", response, answer)
        except MemorySystemError as failure:
            return self._failed(response, failure)
        if first_s is not None:
            self._first_token_s[response.id] = first_s
        return response

    async def _call(self, operation: str, function: Callable[[], Awaitable[T]], gives: type[T]) -> T:
        try:
            return await call(function, gives, self.call_timeout_s)
        except CallError as failure:
            raise MemorySystemError(self.lane, operation, str(failure)) from failure

    def _written(self, operation: str, event: E, result: Delta | Answer) -> E:
        """The event with what the memory system gave, known to be readable by everybody."""
        kind = Delta if isinstance(result, Delta) else Answer
        names = [name for name in kind.__struct_fields__ if name != "first_token_s"]  # measured: for a header
        written = replace(event, **{name: getattr(result, name) for name in names})
        try:
            check_readable(written)
        except DecodeError as error:
            raise MemorySystemError(
                self.lane, operation, f"what it gave can't be written: {error}"
            ) from error
        return written

    def _checked_s(self, seconds: object) -> float:
        """A time that a memory system measured. Raises MemorySystemError for what is none."""
        if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise MemorySystemError(
                self.lane, "answer", f"first_token_s is {seconds!r}, not a number of seconds"
            )
        return float(seconds)

    def _failed(self, event: E, failure: MemorySystemError) -> E:
        log.warning("memory_failed", event_id=event.id, operation=failure.operation, error=failure.reason)
        return replace(event, error=failure.reason)


def _after(cause: TrajectoryEvent, name: str, segment: int) -> Common:
    """What an event of a trajectory has that follows from another, by a branch that has seen up to this segment."""
    return {**common_of(cause, cause.trajectory, name), "as_of": segment}
