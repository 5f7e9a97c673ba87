"""One lane without a log: what it makes of failing memories, and what it lets go of."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, Self

import anyio
import anyio.lowlevel
import pytest

from adapters.memory import Answer, Delta, Interaction, Request, Segment
from consumers import calls
from consumers.lane import Lane
from simulator.errors import InvariantError
from simulator.events import (
    Arm,
    CommitEvent,
    FeedbackEvent,
    Isolation,
    MemoryRecord,
    ObservationEvent,
    SegmentClosedEvent,
    TaskEvent,
    TaskPhase,
    Turn,
    decode,
    encode,
)
from tests.roles.systems import FAILURES, Ledger

LANE = "one@A"
TRAJECTORY = f"{LANE}/s0/e0"


def lane_of(memory: Any, *, isolation: Isolation = "branch", timeout_s: float = 30.0) -> Lane:
    return Lane(LANE, "A", "run", memory, isolation, timeout_s)


def observation(seq: int) -> ObservationEvent:
    return ObservationEvent(
        id=f"o{seq}", run="run", stream="A", event_time_us=seq, seq=seq, source="dialog", text=f"line {seq}"
    )


def closed(segment: int, first: int, last: int) -> SegmentClosedEvent:
    return SegmentClosedEvent(
        id=f"closed/{segment}",
        run="run",
        stream="A",
        event_time_us=last + 1,
        segment=segment,
        day="DAY1",
        segment_id=segment,
        start_time_us=first,
        first_seq=first,
        last_seq=last,
    )


def segment_of(lane: Lane, segment: int) -> Segment:
    """The lane's segment with two observations."""
    lane.open_observations = [observation(2 * segment), observation(2 * segment + 1)]
    return lane.close_segment(closed(segment, 2 * segment, 2 * segment + 1))


def task(
    phase: TaskPhase = "T1", *, segment: int = 0, trajectory: str = TRAJECTORY, arm: Arm = "committed"
) -> TaskEvent:
    return TaskEvent(
        id=f"{trajectory}/{phase}",
        run="run",
        stream="A",
        event_time_us=2 * segment + 2,
        lane=LANE,
        trajectory=trajectory,
        step=0 if phase == "T1" else 6,
        phase=phase,
        segment=segment,
        text=f"{phase}?",
        arm=arm,
    )


def feedback() -> FeedbackEvent:
    return FeedbackEvent(
        id=f"{TRAJECTORY}/F",
        run="run",
        stream="A",
        event_time_us=2,
        lane=LANE,
        trajectory=TRAJECTORY,
        step=2,
        type="revise",
        text="no, again",
    )


def commit(trajectory: str = TRAJECTORY, *, keep: bool = False) -> CommitEvent:
    return CommitEvent(
        id=f"{trajectory}/commit",
        run="run",
        stream="A",
        event_time_us=2,
        lane=LANE,
        trajectory=trajectory,
        step=4,
        interaction=(Turn(role="user", text="T1?"),),
        keep_uncommitted=keep,
    )


def failing(method: str, how: Callable[..., Any]) -> Ledger:
    """A ledger one of whose calls goes wrong, on forks too."""

    async def fails(_self: Ledger, *_arguments: object) -> Any:
        return await how()

    kind: type[Ledger] = type("Failing", (Ledger,), {method: fails})
    return kind()


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("method", ["ingest", "answer", "commit"])
async def test_failed_call_is_one_error_that_can_be_written(method: str, failure: str) -> None:
    lane = lane_of(failing(method, FAILURES[failure]), timeout_s=0.05 if failure == "hangs" else 30.0)
    delta = await lane.ingest(segment_of(lane, 0), "closed/0")
    assert (delta.error is not None) == (method == "ingest")
    if method == "ingest":
        assert decode(encode(delta)) == delta
        return
    response = await lane.answer_task(task())
    assert (response.error is not None) == (method == "answer")
    committed = await lane.commit(commit())
    assert (committed.error is not None) == (method == "commit")
    for event in (response, committed):
        assert decode(encode(event)) == event
    # the lane goes on
    assert (await lane.ingest(segment_of(lane, 1), "closed/1")).error is None
    await lane.aclose()


async def test_reason_of_a_failure_says_what_happened() -> None:
    async def reason_of(failure: str, timeout_s: float = 30.0) -> str | None:
        lane = lane_of(failing("ingest", FAILURES[failure]), timeout_s=timeout_s)
        return (await lane.ingest(segment_of(lane, 0), "closed/0")).error

    assert await reason_of("raises") == "RuntimeError: out of memory"
    assert await reason_of("exits") == "SystemExit: 3"
    assert await reason_of("hangs", 0.02) == "TimeoutError: nothing after 0.02 s"
    assert await reason_of("gives nothing") == "TypeError: it gave NoneType, not Delta"
    assert await reason_of("cancels itself") == "it cancelled itself"
    assert "Expected `str`" in str(await reason_of("has no text"))


async def test_cancelling_the_caller_is_no_failure_of_the_memory() -> None:
    lane = lane_of(failing("ingest", FAILURES["hangs"]))
    segment = segment_of(lane, 0)
    results = []
    async with anyio.create_task_group() as tasks:

        async def ingest() -> None:
            results.append(await lane.ingest(segment, "closed/0"))

        tasks.start_soon(ingest)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert results == []


async def test_fork_that_fails_is_the_error_of_the_call_that_needed_it() -> None:
    class Unforkable(Ledger):
        forks_left = 0

        def fork(self) -> Self:
            if self.forks_left == 0:
                raise MemoryError("no fork")
            self.forks_left -= 1
            return super().fork()

    memory = Unforkable()
    lane = lane_of(memory)
    delta = await lane.ingest(segment_of(lane, 0), "closed/0")
    assert delta.error == "fork failed: MemoryError: no fork"
    assert [record.id for record in delta.records] == ["s0"]  # it is stored all the same

    memory.forks_left = 1  # the snapshot, which itself has none left
    assert (await lane.ingest(segment_of(lane, 1), "closed/1")).error is None
    assert (await lane.answer_task(task(segment=1))).error == "fork failed: MemoryError: no fork"

    memory.forks_left = 2
    assert (await lane.ingest(segment_of(lane, 2), "closed/2")).error is None
    other = f"{LANE}/s2/e0"
    assert (await lane.answer_task(task(segment=2, trajectory=other))).error is None
    assert (await lane.commit(commit(other, keep=True))).error == "fork failed: MemoryError: no fork"


async def test_fork_that_is_no_copy_is_an_error() -> None:
    class Same(Ledger):
        def fork(self) -> Self:
            return self

    lane = lane_of(Same())
    assert (
        await lane.ingest(segment_of(lane, 0), "closed/0")
    ).error == "fork gave the same object and no copy"


async def test_conversation_reaches_the_memory_as_it_went() -> None:
    asked: list[Request] = []
    taken: list[Interaction] = []

    class Spy(Ledger):
        async def answer(self, request: Request) -> Answer:
            asked.append(request)
            return Answer(text=f"answer {len(asked)}")

        async def commit(self, interaction: Interaction) -> Delta:
            taken.append(interaction)
            return Delta()

    lane = lane_of(Spy())
    await lane.ingest(segment_of(lane, 0), "closed/0")
    await lane.answer_task(task())
    r_f = await lane.answer_feedback(feedback())
    await lane.commit(commit())
    r2 = await lane.answer_task(task("T2"))
    assert [(request.phase, request.text) for request in asked] == [
        ("R1", "T1?"),
        ("R_F", "T1?"),
        ("R2", "T2?"),
    ]
    assert [turn.text for turn in asked[1].history] == ["T1?", "answer 1", "no, again"]
    assert asked[0].history == asked[2].history == ()
    assert taken[0].id == "s0/e0"
    assert (r_f.step, r_f.id, r2.step, r2.as_of) == (3, f"{TRAJECTORY}/R_F", 7, 0)


async def test_commit_is_seen_by_its_own_branch_alone() -> None:
    lane = lane_of(Ledger())
    await lane.ingest(segment_of(lane, 0), "closed/0")
    other = f"{LANE}/s0/e1"
    await lane.answer_task(task())
    await lane.commit(commit(keep=True))
    await lane.ingest(segment_of(lane, 1), "closed/1")

    async def sees(asked: TaskEvent) -> list[str]:
        return [record.id for record in (await lane.answer_task(asked)).retrieved]

    assert await sees(task("T2")) == ["s0", "commit s0/e0"]
    assert await sees(task("T2", arm="uncommitted")) == ["s0"]
    assert await sees(task(trajectory=other)) == ["s0"]
    assert await sees(task(segment=1, trajectory=f"{LANE}/s1/e0")) == ["s0", "s1"]
    assert isinstance(lane.memory, Ledger)
    assert [record.id for record in lane.memory.records] == ["s0", "s1"]


async def test_shared_memory_sees_every_commit() -> None:
    lane = lane_of(Ledger(), isolation="shared")
    await lane.ingest(segment_of(lane, 0), "closed/0")
    await lane.answer_task(task())
    await lane.commit(commit())
    await lane.end_trajectory(TRAJECTORY)
    response = await lane.answer_task(task(trajectory=f"{LANE}/s0/e1"))
    assert [record.id for record in response.retrieved] == ["s0", "commit s0/e0"]


async def test_released_snapshots_and_ended_branches_are_freed() -> None:
    alive: weakref.WeakSet[Ledger] = weakref.WeakSet()

    class Weighty(Ledger):
        def fork(self) -> Self:
            fork = super().fork()
            alive.add(fork)
            return fork

    lane = lane_of(Weighty())
    for segment in range(4):
        await lane.ingest(segment_of(lane, segment), f"closed/{segment}")
    await lane.answer_task(task())
    await lane.commit(commit(keep=True))
    gc.collect()
    assert len(alive) == 6  # four snapshots, the branch, and it before the commit
    await lane.release(2)
    gc.collect()
    assert len(alive) == 3
    await lane.end_trajectory(TRAJECTORY)
    assert lane.open_branches == 0
    gc.collect()
    assert len(alive) == 1
    await lane.release(3)
    gc.collect()
    assert not alive


async def test_memory_that_does_not_close_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    closed_well = []

    class Stubborn(Ledger):
        async def aclose(self) -> None:
            if len(self.records) == 1:
                await anyio.sleep_forever()
            if len(self.records) == 2:
                raise RuntimeError("still busy")
            closed_well.append(len(self.records))

    monkeypatch.setattr(calls, "CLOSE_TIMEOUT_S", 0.02)
    lane = lane_of(Stubborn())
    for segment in range(3):
        await lane.ingest(segment_of(lane, segment), f"closed/{segment}")
    await lane.aclose()
    assert closed_well == [3, 3]  # the last snapshot and the memory itself


async def test_memory_is_closed_when_its_agent_is_cancelled() -> None:
    closed_well = []

    class Slow(Ledger):
        async def aclose(self) -> None:
            await anyio.lowlevel.checkpoint()
            closed_well.append(self)

    lane = lane_of(Slow())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await lane.aclose()
    assert closed_well == [lane.memory]


@pytest.mark.parametrize(
    ("seqs", "first", "last"),
    [([0, 1], 0, 2), ([0, 2], 0, 1), ([1, 0], 0, 1), ([], 0, 0), ([0, 1, 2], 0, 1), ([1, 2], 0, 1)],
)
def test_segment_with_a_gap_is_a_broken_invariant(seqs: list[int], first: int, last: int) -> None:
    lane = lane_of(Ledger())
    lane.open_observations = [observation(seq) for seq in seqs]
    with pytest.raises(InvariantError, match="closed/0"):
        lane.close_segment(closed(0, first, last))


async def test_trajectory_out_of_place_is_a_broken_invariant() -> None:
    lane = lane_of(Ledger(), timeout_s=1.0)
    with pytest.raises(InvariantError, match="before its delta"):
        await lane.answer_task(task())
    await lane.ingest(segment_of(lane, 0), "closed/0")
    with pytest.raises(InvariantError, match="no T1"):
        await lane.answer_task(task("T2"))
    with pytest.raises(InvariantError, match="no T1"):
        await lane.answer_feedback(feedback())
    await lane.answer_task(task())
    await lane.commit(commit())
    with pytest.raises(InvariantError, match="did not keep"):
        await lane.answer_task(task("T2", arm="uncommitted"))
    await lane.release(0)
    with pytest.raises(InvariantError, match="after its release"):
        await lane.answer_task(task(trajectory=f"{LANE}/s0/e1"))


async def test_what_a_rebuilt_lane_takes_long_for_is_waited_for() -> None:
    """Where many trajectories are rebuilt at once, or by replays, R1 comes long after any one call's deadline."""
    lane = lane_of(Ledger(), timeout_s=0.05)
    await lane.ingest(segment_of(lane, 0), "closed/0")
    done: list[str] = []

    async def take(event: TaskEvent | FeedbackEvent | CommitEvent) -> None:
        await lane.turn(event)
        done.append(event.id)

    async with anyio.create_task_group() as tasks:
        for event in (task("T2"), commit(), feedback(), task()):
            tasks.start_soon(take, event)
        await anyio.sleep(0.2)
        assert done == [task().id]
        await lane.answer_task(task())
        await anyio.sleep(0.2)
        assert set(done) == {task().id, commit().id, feedback().id}
        await lane.commit(commit())
    assert done[-1] == task("T2").id


async def test_subclass_of_a_delta_is_a_delta() -> None:
    class Rich(Delta, frozen=True, kw_only=True):
        note: str = ""

    class Telling(Ledger):
        async def ingest(self, segment: Segment) -> Delta:
            return Rich(records=(MemoryRecord(id="r", text="t", event_time_us=0),), note="mine")

    lane = lane_of(Telling())
    delta = await lane.ingest(segment_of(lane, 0), "closed/0")
    assert delta.error is None
    assert [record.id for record in delta.records] == ["r"]
