"""Branches by fork, by copy of a folder and by replay: the same memories, none of which sees another."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from adapters.memory import LaneContext, Segment
from consumers.homes import Isolating, new_folder
from consumers.lane import Lane
from consumers.score_tables import score_notes, to_json
from simulator.errors import ConfigError
from simulator.events import CommittedEvent, DeltaEvent, Limits, ResponseEvent, Usage, VerdictEvent
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import MEMORIES_NAME, open_run
from tests.history import History
from tests.roles.test_lane import LANE, TRAJECTORY, commit, segment_of, task
from tests.workers.branching import INGEST_TOKENS, Copying, Forking, Replaying

MODULE = "tests.workers.branching"
DENSE = "synthetic:seed=4,wearers=2,segments_per_day=8,observations_per_segment=12,anchors_per_day=14"
"""Several anchors a segment, and segments without any."""


async def run_of(out: Path, system: str, **more: Any) -> History:
    scores = await execute(plan_run(RunOptions(data=DENSE, systems=(system,), out=out, **more)))
    assert scores.ended
    assert not (out / MEMORIES_NAME).exists()
    async with open_run(out) as (log, started):
        history = await History.read(log, started.run)
    assert history.findings == ()
    return history


def said(history: History) -> dict[str, Any]:
    """What was stored, answered and judged, without what names the run."""
    kept: dict[str, Any] = {}
    for event in history.events:
        if isinstance(event, DeltaEvent | CommittedEvent):
            kept[event.id] = (event.records, event.stored_bytes, event.usage, event.error)
        elif isinstance(event, ResponseEvent):
            kept[event.id] = (event.text, event.retrieved, event.usage, event.error, event.as_of)
        elif isinstance(event, VerdictEvent):
            kept[event.id] = (event.outcome, event.reason, event.scores, event.votes)
    return kept


@pytest.mark.parametrize("spoilt", [False, True])
@pytest.mark.parametrize("more", [{}, {"limits": Limits(segments_ahead=1, calls_in_flight=2)}])
async def test_fork_copy_and_replay_give_the_same_run(
    tmp_path: Path, spoilt: bool, more: dict[str, Any]
) -> None:
    options = f":spoilt={str(spoilt).lower()}"
    histories = {
        kind: await run_of(tmp_path / kind, f"one={MODULE}:{kind}{options}", ablate_commit=True, **more)
        for kind in ("Forking", "Copying", "Replaying")
    }
    expected = said(histories["Forking"])
    assert any("/R_F" in name for name in expected)
    assert any("/R2-uncommitted" in name for name in expected)
    assert said(histories["Copying"]) == expected
    assert said(histories["Replaying"]) == expected
    failed = {event.segment for event in histories["Forking"].of(DeltaEvent) if event.error}
    assert bool(failed) == spoilt

    for response in histories["Replaying"].of(ResponseEvent):
        if response.phase == "R1":
            assert response.replayed.segments == (response.as_of or 0) + 1
            assert response.replayed.usage.prompt_tokens > 0
            if not spoilt:
                cost = Usage(prompt_tokens=INGEST_TOKENS * response.replayed.segments)
                assert response.replayed.usage == cost
        else:
            assert response.replayed.segments == 0
    commits = histories["Replaying"].of(CommittedEvent)
    assert all(event.replayed.segments == (event.as_of or 0) + 1 for event in commits)
    others = [*histories["Forking"].of(ResponseEvent), *histories["Copying"].of(ResponseEvent)]
    assert not any(response.replayed.segments for response in others)


async def test_the_run_and_its_scores_say_how_each_system_was_isolated(tmp_path: Path) -> None:
    systems = ("null", f"c={MODULE}:Copying", f"r={MODULE}:Replaying", f"f={MODULE}:Forking")
    plan = plan_run(RunOptions(data=DENSE, systems=systems, out=tmp_path / "run"))
    assert plan.started.means == {"c": "copy", "r": "replay"}
    assert plan.started.identity["means"] == "c=copy r=replay"
    scores = await execute(plan)
    assert scores.complete
    assert scores.means == {"null": "fork", "c": "copy", "r": "replay", "f": "fork"}
    assert score_notes(scores)[1:] == [
        "c can't fork: each trajectory ran on a copy of its folder.",
        "r can't fork: each trajectory ran on a new memory that ingested the stream again up to there.",
    ]
    assert json.loads(to_json(scores, rows=False))["means"] == scores.means
    costs = {cost.system: cost for cost in scores.costs}
    assert costs["c"].replayed_tokens is None
    assert costs["f"].replayed_tokens is None
    replayed = costs["r"].replayed_tokens
    assert replayed is not None
    assert replayed.n == scores.anchors
    assert replayed.total == INGEST_TOKENS * sum(r.segment + 1 for r in scores.rows if r.system == "r")
    assert costs["r"].ingest_tokens == costs["f"].ingest_tokens
    assert costs["r"].trajectory_tokens == costs["f"].trajectory_tokens
    shared = plan_run(
        RunOptions(data=DENSE, systems=systems, out=tmp_path / "shared", isolation="shared", segments=3)
    )
    assert shared.started.means == {}
    assert (await execute(shared)).complete
    assert not (tmp_path / "shared" / MEMORIES_NAME).exists()


def test_runs_of_systems_that_fork_have_no_field_for_it_in_their_identity(tmp_path: Path) -> None:
    plan = plan_run(RunOptions(data=DENSE, systems=("null",), out=tmp_path / "run"))
    assert "means" not in plan.started.identity


def test_system_that_can_do_nothing_is_refused(tmp_path: Path) -> None:
    options = RunOptions(data=DENSE, systems=("http:url=http://x,fork=none",), out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"can't branch its memory.*--isolation shared"):
        plan_run(options)


@pytest.mark.parametrize(
    ("system", "reason", "from_segment"),
    [
        ("Uncopyable", "copy failed: CopyError: deep/link: No such file or directory", 2),
        ("Changeable", "replay failed: segment 0 was ingested to another delta than the lane's", 0),
        ("Elsewhere", "it keeps its memory in another directory than that of its context", 0),
    ],
)
async def test_branch_that_can_t_be_made_is_unjudged_with_its_reason(
    tmp_path: Path, system: str, reason: str, from_segment: int
) -> None:
    good = said(await run_of(tmp_path / "good", f"one={MODULE}:Forking"))
    history = await run_of(tmp_path / "bad", f"one={MODULE}:{system}")
    assert not any(delta.error for delta in history.of(DeltaEvent))
    segments = {response.trajectory: response.as_of or 0 for response in history.of(ResponseEvent)}
    assert any(segment >= from_segment for segment in segments.values())
    for response in history.of(ResponseEvent):
        if segments[response.trajectory] >= from_segment:
            assert reason in str(response.error)
        else:
            assert response.error is None or reason in response.error
    judged = {v.id: (v.outcome, v.reason, v.scores, v.votes) for v in history.of(VerdictEvent)}
    assert any(verdict[0] == "unjudged" for verdict in judged.values())
    for name, verdict in judged.items():
        if verdict[0] == "unjudged":
            assert reason in verdict[1]
        elif system != "Changeable":
            assert verdict == good[name]


def folders(path: Path) -> int:
    return sum(1 for _ in path.iterdir())


def lane_on(folder: Path, kind: type[Any], **options: Any) -> Lane:
    """A lane of that kind; its folders lie in `folder`."""

    def open_at(lane: str, stream: str, directory: Path) -> Any:
        return kind(LaneContext(lane=lane, stream=stream, directory=directory), **options)

    means = kind.capabilities.fork if hasattr(kind, "capabilities") else "fork"
    isolating = None if means == "fork" else Isolating(means, folder, open_at)
    memory = open_at(LANE, "A", new_folder(folder))
    return Lane(LANE, "A", "run", memory, "branch", 30.0, None, isolating)


async def ingest(lane: Lane, *segments: int) -> None:
    for segment in segments:
        await lane.settle()
        await lane.ingest(segment_of(lane, segment), f"closed/{segment}")


@pytest.mark.parametrize("kind", [Forking, Copying, Replaying])
async def test_commit_is_seen_by_its_own_branch_alone(tmp_path: Path, kind: type[Any]) -> None:
    lane = lane_on(tmp_path, kind)
    await ingest(lane, 0)
    other = f"{LANE}/s0/e1"
    await lane.answer_task(task())
    await lane.commit(commit(keep=True))
    await ingest(lane, 1)

    async def sees(asked: Any) -> list[str]:
        return [record.id for record in (await lane.answer_task(asked)).retrieved]

    assert await sees(task("T2")) == ["s0", "commit s0/e0"]
    assert await sees(task("T2", arm="uncommitted")) == ["s0"]
    assert await sees(task(trajectory=other)) == ["s0"]
    assert await sees(task(segment=1, trajectory=f"{LANE}/s1/e0")) == ["s0", "s1"]
    assert [record.id for record in lane.memory.records] == ["s0", "s1"]  # type: ignore[attr-defined]  # our kind
    await lane.aclose()
    assert kind is not Copying or folders(tmp_path) == 0


async def test_copies_are_made_only_while_needed_and_deleted_after(tmp_path: Path) -> None:
    lane = lane_on(tmp_path, Copying)
    await ingest(lane, 0)
    await lane.release(0)
    await ingest(lane, 1)
    assert folders(tmp_path) == 1  # the memory's own: segment 0 was released before it changed
    await ingest(lane, 2)
    assert folders(tmp_path) == 2  # and segment 1 as it was
    await lane.answer_task(task(segment=1))
    assert folders(tmp_path) == 3  # and a branch of it
    await lane.answer_task(task(segment=2, trajectory=f"{LANE}/s2/e0"))
    assert folders(tmp_path) == 5  # and segment 2, which the memory still showed, with its branch
    await lane.commit(commit(keep=True))
    assert folders(tmp_path) == 6  # and the branch before the commit
    await lane.release(2)
    assert folders(tmp_path) == 4
    await lane.end_trajectory(TRAJECTORY)
    assert folders(tmp_path) == 2
    await lane.aclose()
    assert folders(tmp_path) == 0


async def test_next_ingest_waits_for_a_release_no_longer_than_a_copy_took(tmp_path: Path) -> None:
    lane = lane_on(tmp_path, Copying)
    await ingest(lane, 0, 1)
    lane._brancher._copy_s = 20.0  # type: ignore[attr-defined]  # as if copies were slow
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingest, lane, 2)
        await anyio.wait_all_tasks_blocked()
        assert [record.id for record in lane.memory.records] == ["s0", "s1"]  # type: ignore[attr-defined]  # our kind
        await lane.release(1)
    assert folders(tmp_path) == 1
    await lane.aclose()


async def test_memory_that_can_t_be_flushed_in_time_fails_that_trajectory_alone(tmp_path: Path) -> None:
    class Hanging(Copying):
        async def flush(self) -> None:
            if len(self.records) == 1:
                await anyio.sleep_forever()
            await super().flush()

    lane = lane_on(tmp_path, Hanging)
    await ingest(lane, 0)
    homes = lane._brancher._homes  # type: ignore[attr-defined]  # it copies
    homes.timeout_s = 0.2  # only where it hangs: whatever else there is may take long here
    assert (await lane.answer_task(task())).error == "copy failed: TimeoutError: nothing after 0.2 s"
    await ingest(lane, 1)
    late = await lane.answer_task(task(trajectory=f"{LANE}/s0/e1"))
    assert late.error == "copy failed: TimeoutError: nothing after 0.2 s"
    homes.timeout_s = 30.0
    assert (await lane.answer_task(task(segment=1, trajectory=f"{LANE}/s1/e0"))).error is None
    await lane.aclose()
    assert folders(tmp_path) == 0


@pytest.mark.parametrize("noted_first", [False, True])
@pytest.mark.parametrize("kind", [Copying, Replaying])
async def test_trajectory_that_ends_while_its_branch_is_made_leaves_nothing(
    tmp_path: Path, kind: type[Any], noted_first: bool
) -> None:
    going, go_on = anyio.Event(), anyio.Event()

    closed: list[object] = []

    class Loading(kind):  # type: ignore[misc]  # the kind is a parameter
        async def prepare(self) -> None:
            going.set()
            await go_on.wait()

        async def aclose(self) -> None:
            assert self not in closed
            closed.append(self)

    lane = lane_on(tmp_path, Loading)
    await ingest(lane, 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.answer_task, task())
        await going.wait()
        if noted_first:  # an agent knows it before it tells the lane
            lane._past.closed.add(TRAJECTORY)
        else:
            await lane.end_trajectory(TRAJECTORY)
        go_on.set()
    await lane.end_trajectory(TRAJECTORY)
    await lane.release(0)
    assert lane.open_branches == 0
    assert folders(tmp_path) == 1
    assert len(closed) == 1
    await lane.aclose()
    assert len(closed) == 2


async def test_replay_that_fails_where_the_lane_did_not_is_an_error_that_says_what_it_took(
    tmp_path: Path,
) -> None:
    class Tired(Replaying):
        ingests = 0

        async def ingest(self, segment: Segment) -> Any:
            Tired.ingests += 1
            if Tired.ingests == 5:
                raise ConnectionError("no model")
            return await super().ingest(segment)

    lane = lane_on(tmp_path, Tired)
    await ingest(lane, 0, 1, 2)
    failed = await lane.answer_task(task(segment=2))
    assert failed.error == "replay failed: ingest of segment 1 failed: ConnectionError: no model"
    assert failed.replayed.segments == 2
    assert (await lane.answer_task(task(segment=2, trajectory=f"{LANE}/s2/e1"))).error is None
    await lane.aclose()


async def test_lane_that_is_cancelled_leaves_no_folder(tmp_path: Path) -> None:
    lane = lane_on(tmp_path, Copying)
    await ingest(lane, 0, 1)
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(
                partial(lane.answer_task, task(segment=number % 2, trajectory=f"{LANE}/s0/e{number}"))
            )
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await lane.aclose()
    assert folders(tmp_path) == 0
