"""The Node agent, in a process of its own, in runs on a real broker. They share nothing but topics."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest
from msgspec.structs import replace

from adapters.memory import LaneContext
from consumers.agent import run_agent
from consumers.judging import run_judges
from dev.kafka.brokers import Cluster
from judges.deterministic import official_judges
from judges.panel import JudgePanel
from producers.arrivals import Load
from producers.conduct import conduct
from producers.datasets import read_dataset
from producers.lanes import ReplayOptions
from producers.questions import QuestionLoad
from producers.replayer import replay
from simulator.clock import Clock
from simulator.events import (
    CommittedEvent,
    DeltaEvent,
    FeedbackEvent,
    Isolation,
    ReadyEvent,
    ResponseEvent,
    SegmentClosedEvent,
    TaskEvent,
    VerdictEvent,
)
from simulator.intake import decode_records, read_to_end
from simulator.load.single import LoadOptions, execute_load, plan_load
from simulator.log import Log, open_log
from simulator.log.protocol import Record, StoredRecord
from simulator.plan import metrics_of
from simulator.results import audit_run
from simulator.topics import Recorder, Topics
from tests.conftest import ROOT
from tests.history import History
from tests.node import node_folder
from tests.roles.harness import RUN, started_for
from tests.roles.systems import Ledger

DATA = "synthetic:seed=4,wearers=3,segments_per_day=5,observations_per_segment=8,anchors_per_day=5"
TOPICS = Topics.of(RUN)


@pytest.fixture(scope="module")
def node_agent() -> Path:
    return node_folder(ROOT / "examples" / "node_agent") / "agent.mjs"


@asynccontextmanager
async def started_agent(script: Path, *arguments: str) -> AsyncIterator[anyio.abc.Process]:
    command = ["node", script, *arguments]
    async with await anyio.open_process(
        command if "--run" in arguments else [*command, "--run", RUN]
    ) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)


def ledger(lane: str, stream: str) -> Ledger:
    return Ledger(LaneContext(lane=lane, stream=stream))


async def run_all(log: Log, isolation: Isolation, ablate_commit: bool) -> None:
    """A run of two systems, `ours` here and `node` elsewhere, to its end."""
    dataset = read_dataset(DATA)
    started = started_for(dataset, ("ours", "node"), isolation=isolation, ablate_commit=ablate_commit)
    recorder = Recorder.for_run(started)
    panel = JudgePanel(official_judges(), metrics_of(ablate_commit))
    lanes = {stream: [f"{label}@{stream}" for label in started.systems] for stream in started.streams}
    options = ReplayOptions(required=started.required, lanes=lanes, isolation=isolation, stall_timeout_s=60)
    await log.create_topics(TOPICS.partitions(started.partitions))
    anchors = [recorder.record(replace(anchor, run=RUN)) for anchor in dataset.anchors]
    junk = Record(TOPICS.tasks, b"k", b"{no JSON", 0)
    await log.append([recorder.record(started), *anchors, junk])
    async with anyio.create_task_group() as roles:
        roles.start_soon(run_agent, log, started, "ours", ledger)
        roles.start_soon(run_judges, log, started, panel)
        lifelogs = list(dataset.lifelogs.values())
        roles.start_soon(replay, log, recorder, lifelogs, Clock(0, float("inf")), options)
        await conduct(log, started, stall_timeout_s=60)


@pytest.mark.parametrize(
    ("isolation", "ablate_commit"), [("branch", False), ("branch", True), ("shared", False)]
)
async def test_an_agent_in_another_language_takes_part_in_a_run(
    kafka_broker: Cluster, node_agent: Path, isolation: Isolation, ablate_commit: bool
) -> None:
    prefix = f"n{secrets.token_hex(4)}."
    with anyio.fail_after(100):
        async with (
            started_agent(node_agent, "--broker", kafka_broker.bootstrap, "--prefix", prefix) as process,
            open_log(f"kafka://{kafka_broker.bootstrap}?prefix={prefix}") as log,
        ):
            await run_all(log, isolation, ablate_commit)
            assert await process.wait() == 0  # it ends with the run
            assert process.stderr is not None
            said = [line async for line in process.stderr]
            history = await History.read(log, RUN)
            records = [r async for r in read_to_end(log, [TOPICS.deltas, TOPICS.responses, TOPICS.control])]

    assert b"no JSON at" in b"".join(said)
    assert history.findings == ()
    assert all(verdict.outcome != "unjudged" for verdict in history.of(VerdictEvent))
    check_events(history)
    check_records(records)
    check_memory(history, ablate_commit)


async def test_an_agent_in_another_language_is_asked_under_load(
    tmp_path: Path, kafka_broker: Cluster, node_agent: Path
) -> None:
    """It answers as of what its one memory holds by then, and the audit finds nothing in that."""
    prefix = f"n{secrets.token_hex(4)}."
    options = LoadOptions(
        data=DATA,
        attached="node",
        out=tmp_path,
        log=f"kafka://{kafka_broker.bootstrap}?prefix={prefix}",
        load=Load(duration_s=3, rate=3000, arrivals="poisson"),
        questions=QuestionLoad(per_second=20),
    )
    plan = plan_load(options)
    arguments = ("--broker", kafka_broker.bootstrap, "--prefix", prefix, "--run", plan.plan.started.run)
    with anyio.fail_after(100):
        async with started_agent(node_agent, *arguments) as process:
            report = await execute_load(plan)
            assert await process.wait() == 0
    assert report.segments == report.remembered
    assert report.answers is not None
    assert report.answers.on == {"node": "unknown"}
    for part in (report.answers.loaded, report.answers.idle):
        assert part.due == part.answered > 5
        assert part.stages["answered"] is not None
    assert (await audit_run(tmp_path)).sound


def check_events(history: History) -> None:
    """Every event of the Node agent is there, and is what our own lane would have made of its cause."""
    causes = {event.id: event for event in history.events}
    ready = [event.id for event in history.of(ReadyEvent) if event.role == "agent.node"]
    assert ready == ["ready/agent.node"]
    deltas = {event.id: event for event in history.of(DeltaEvent) if event.lane.startswith("node@")}
    assert len(deltas) == len(history.of(SegmentClosedEvent)) == 15
    for delta in deltas.values():
        (cause,) = [causes[name] for name in delta.causes]
        assert isinstance(cause, SegmentClosedEvent)
        assert delta.id == f"node@{cause.stream}/delta/{cause.segment}"
        assert (delta.segment, delta.as_of) == (cause.segment, cause.segment)
        assert (delta.stream, delta.event_time_us) == (cause.stream, cause.event_time_us)
        assert len(delta.records) == 8
    answered = [event for event in history.of(ResponseEvent) if event.lane.startswith("node@")]
    asked = [e for e in history.of(TaskEvent) if e.lane.startswith("node@")]
    revised = [e for e in history.of(FeedbackEvent) if e.lane.startswith("node@") and e.type == "revise"]
    assert len(answered) == len(asked) + len(revised)
    for response in answered:
        (cause,) = [causes[name] for name in response.causes]
        if isinstance(cause, TaskEvent):
            phase, arm = ("R1" if cause.phase == "T1" else "R2"), cause.arm
        else:
            assert isinstance(cause, FeedbackEvent)
            phase, arm = "R_F", "committed"
        suffix = phase if arm == "committed" else f"{phase}-{arm}"
        assert response.id == f"{cause.trajectory}/{suffix}"
        assert (response.phase, response.arm, response.step) == (phase, arm, cause.step + 1)
        assert (response.lane, response.event_time_us) == (cause.lane, cause.event_time_us)
        assert response.as_of == int(cause.trajectory.split("/")[1].removeprefix("s"))
    committed = [event for event in history.of(CommittedEvent) if event.lane.startswith("node@")]
    assert len(committed) == len({event.trajectory for event in asked}) == 15
    assert all(event.id == f"{event.trajectory}/committed" for event in committed)


def check_records(records: list[StoredRecord]) -> None:
    """Key, partition, stamp and headers of what the Node agent wrote are those of ours."""
    seen = 0
    for event, record in decode_records(RUN, records)[0]:
        if not isinstance(event, DeltaEvent | ResponseEvent | CommittedEvent | ReadyEvent):
            continue
        ours = started_for(read_dataset(DATA), ("ours", "node"))
        expected = Recorder.for_run(ours).record(event, wall_us=0, began_us=0, ended_us=0)
        assert (record.topic, record.partition, record.key, record.timestamp_ms) == (
            (expected.topic, expected.partition or 0, expected.key, expected.timestamp_ms)
        )
        headers, wall = dict(record.headers), {"wall_us", "read_us", "began_us", "ended_us"}
        assert headers.keys() - wall - {"isolating_us", "boot"} == {"kind", "v"}
        assert [headers[name] for name in ("kind", "v")] == [value for _, value in expected.headers[:2]]
        if not isinstance(event, ReadyEvent) and event.lane.startswith("node@"):
            assert headers.keys() == {"kind", "v", *wall}
            times_us = [int(headers[name]) for name in ("read_us", "began_us", "ended_us", "wall_us")]
            assert times_us == sorted(times_us)
            seen += 1
    assert seen > 60


def check_memory(history: History, ablate_commit: bool) -> None:
    """What a trajectory was told is found again by R2, and only with the commit."""
    commits = {
        event.trajectory: event for event in history.of(CommittedEvent) if event.lane.startswith("node@")
    }
    found = {"committed": 0, "uncommitted": 0}
    for response in history.of(ResponseEvent):
        if response.phase == "R2" and response.trajectory in commits:
            (told,) = commits[response.trajectory].records
            found[response.arm] += told.id in {record.id for record in response.retrieved}
    assert found["committed"] > 0
    assert found["uncommitted"] == 0


def test_an_agent_without_a_broker_ends_with_a_line_that_names_it(node_agent: Path) -> None:
    command = ["node", str(node_agent), "--run", RUN, "--broker", "127.0.0.1:1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("127.0.0.1:1: ")
    assert ended.stderr.count("\n") == 1
    ended = subprocess.run(["node", str(node_agent)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: ")
