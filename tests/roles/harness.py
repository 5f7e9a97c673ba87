"""A whole run with memory systems and judges that are objects of a test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import anyio
from msgspec.structs import replace

from consumers.agent import OpenMemory, run_agent
from consumers.calls import CallLimit
from consumers.judging import run_judges
from judges.deterministic import official_judges
from judges.judge import Judge
from judges.panel import JudgePanel
from producers.conduct import conduct
from producers.datasets import read_dataset
from producers.lanes import ReplayOptions
from producers.lifelog import Dataset
from producers.replayer import replay
from simulator.clock import Clock
from simulator.events import Isolation, Limits, RunStartedEvent
from simulator.log import SqliteLog
from simulator.log.protocol import Log
from simulator.plan import metrics_of
from simulator.topics import Recorder, Topics
from simulator.waits import CONDUCTOR_ROLE, JUDGE_ROLE, agent_role
from tests.history import History

RUN = "run-test"
SMALL = "synthetic:seed=4,wearers=2,segments_per_day=5,observations_per_segment=8,anchors_per_day=5"

Before = Callable[[Log, RunStartedEvent], Awaitable[None]]


def started_for(
    dataset: Dataset,
    systems: Iterable[str],
    *,
    isolation: Isolation = "branch",
    ablate_commit: bool = False,
    partitions: int = 2,
    limits: Limits | None = None,
) -> RunStartedEvent:
    labels = tuple(systems)
    return RunStartedEvent(
        id="run/started",
        run=RUN,
        event_time_us=0,
        identity={},
        streams=tuple(dataset.lifelogs),
        segments={name: len(lifelog.segments) for name, lifelog in dataset.lifelogs.items()},
        systems=labels,
        privileged=(),
        anchors=len(dataset.anchors),
        partitions=partitions,
        isolation=isolation,
        ablate_commit=ablate_commit,
        limits=limits or Limits(segments_ahead=32),
        required=(*(agent_role(label) for label in labels), JUDGE_ROLE, CONDUCTOR_ROLE),
    )


async def run_all(
    folder: Path,
    memories: Mapping[str, OpenMemory],
    *,
    data: str | Dataset = SMALL,
    isolation: Isolation = "branch",
    ablate_commit: bool = False,
    partitions: int = 2,
    limits: Limits | None = None,
    judges: Iterable[Judge] | None = None,
    call_timeout_s: float = 30.0,
    before: Before | None = None,
) -> History:
    """Run all roles to the end. `before` may write to the log after the run's first events."""
    dataset = read_dataset(data) if isinstance(data, str) else data
    started = started_for(
        dataset,
        memories,
        isolation=isolation,
        ablate_commit=ablate_commit,
        partitions=partitions,
        limits=limits,
    )
    panel = JudgePanel(judges or official_judges(), metrics_of(ablate_commit))
    options = ReplayOptions(
        required=started.required,
        lanes={stream: [f"{label}@{stream}" for label in started.systems] for stream in started.streams},
        isolation=isolation,
        max_ahead=started.limits.segments_ahead,
        max_unreleased=started.limits.unreleased_segments,
        stall_timeout_s=100,
    )
    recorder = Recorder.for_run(started)
    async with SqliteLog.open(folder / "log.db") as log:
        await log.create_topics(Topics.of(RUN).partitions(partitions))
        anchors = [recorder.record(replace(anchor, run=RUN)) for anchor in dataset.anchors]
        await log.append([recorder.record(started), *anchors])
        if before is not None:
            await before(log, started)
        calls = CallLimit(started.limits.calls_in_flight)
        with anyio.fail_after(110):
            async with anyio.create_task_group() as roles:
                for label, open_memory in memories.items():
                    agent = partial(run_agent, calls=calls, call_timeout_s=call_timeout_s)
                    roles.start_soon(agent, log, started, label, open_memory)
                roles.start_soon(partial(run_judges, calls=calls), log, started, panel)
                lifelogs = list(dataset.lifelogs.values())
                roles.start_soon(replay, log, recorder, lifelogs, Clock(0, float("inf")), options)
                await conduct(log, started, stall_timeout_s=100)
        return await History.read(log, RUN)
