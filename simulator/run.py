"""One run in one process: read the dataset, set up the log, start every role, wait for the end, fold the
scores."""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from adapters.memory import LaneContext, MemorySystem
from adapters.registry import SystemSpec, capabilities, open_system, parse_spec
from consumers.agent import agent_role, run_agent
from consumers.calls import close_all
from consumers.judging import JUDGE_ROLE, run_judges
from consumers.monitor import Progress, monitor
from consumers.scoreboard import Scoreboard
from consumers.scores import Scores
from judges.deterministic import official_judges
from judges.panel import JudgePanel
from producers.conduct import CONDUCTOR_ROLE, conduct
from producers.datasets import read_dataset
from producers.lifelog import Dataset, Lifelog
from producers.replayer import ReplayOptions, replay
from simulator.clock import Clock
from simulator.errors import ConfigError
from simulator.events import (
    DatasetReportEvent,
    Event,
    Isolation,
    Metric,
    RunStartedEvent,
    VerdictEvent,
)
from simulator.intake import decode_records, read_to_end
from simulator.log import open_log
from simulator.log.protocol import Log
from simulator.runfolder import VERDICTS_NAME, log_path, prepare_folder
from simulator.topics import Recorder, Topics

MAX_PARTITIONS = 4


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is asked for. `rate`: simulated seconds per real second; `max_ahead`: how many segments the
    replayer may be ahead of the slowest lane; `segments`: only so many first segments of each stream;
    `call_timeout_s`: after this long, an ingest, answer or commit has failed."""

    data: str
    systems: tuple[str, ...]
    out: Path
    language: Literal["en", "zh", "both"] = "en"
    streams: tuple[str, ...] | None = None
    segments: int | None = None
    isolation: Isolation = "branch"
    ablate_commit: bool = False
    seed: int = 0
    top_k: int = 10
    word_budget: int = 500
    rate: float = math.inf
    policy: Literal["hold", "run"] = "hold"
    max_ahead: int = 32
    calls_in_flight: int = 64
    call_timeout_s: float = 600.0
    overwrite: bool = False


class Plan(msgspec.Struct, frozen=True):
    """A run worked out and not begun: all input errors have been raised by now."""

    options: RunOptions
    dataset: Dataset
    systems: tuple[SystemSpec, ...]
    started: RunStartedEvent


def plan_run(options: RunOptions, progress: Callable[[int, int], None] | None = None) -> Plan:
    """Check the options and read the dataset. Blocking. Raises ConfigError and DatasetError."""
    systems = _systems(options)
    for name, value in (("top_k", options.top_k), ("word_budget", options.word_budget)):
        if value < 1:
            raise ConfigError(f"{name} is {value}: it must be at least 1")
    dataset = read_dataset(
        options.data, language=options.language, streams=options.streams, progress=progress
    )
    dataset = first_segments(dataset, options.segments)
    if not any(lifelog.segments for lifelog in dataset.lifelogs.values()):
        raise ConfigError(f"{options.data} holds no segment to replay")
    panel = JudgePanel(official_judges(), metrics_of(options.ablate_commit))
    identity = {
        "code": version("egostream"),
        "protocol": "streammembench",
        "dataset": dataset.digest,
        "layout": dataset.layout,
        "language": options.language,
        "streams": ",".join(dataset.lifelogs),
        "segments": str(options.segments or "all"),
        "systems": " ".join(options.systems),
        "isolation": options.isolation,
        "ablate_commit": str(options.ablate_commit),
        "seed": str(options.seed),
        "top_k": str(options.top_k),
        "word_budget": str(options.word_budget),
        **panel.describe(),
    }
    digest = hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()
    labels = tuple(spec.label for spec in systems)
    privileged = tuple(spec.label for spec in systems if capabilities(spec).privileged)
    started = RunStartedEvent(
        id="run/started",
        run=f"run-{digest[:12]}",
        event_time_us=min(log.segments[0].start_time_us for log in dataset.lifelogs.values() if log.segments),
        identity=identity,
        streams=tuple(dataset.lifelogs),
        segments={name: len(lifelog.segments) for name, lifelog in dataset.lifelogs.items()},
        systems=labels,
        privileged=privileged,
        anchors=len(dataset.anchors),
        partitions=min(len(dataset.lifelogs), MAX_PARTITIONS),
        isolation=options.isolation,
        ablate_commit=options.ablate_commit,
        required=(*(agent_role(label) for label in labels), JUDGE_ROLE, CONDUCTOR_ROLE),
    )
    return Plan(options, dataset, systems, started)


def metrics_of(ablate_commit: bool) -> tuple[Metric, ...]:
    """The metrics that a run needs judges for."""
    return (
        ("fidelity", "ieu", "fi", "fur", "fur_uncommitted")
        if ablate_commit
        else ("fidelity", "ieu", "fi", "fur")
    )


def first_segments(dataset: Dataset, count: int | None) -> Dataset:
    """The dataset cut to the first `count` segments of each stream, with the anchors that lie in them."""
    if count is None:
        return dataset
    if count < 1:
        raise ConfigError(f"segments is {count}: it must be at least 1")
    lifelogs: dict[str, Lifelog] = {}
    for name, lifelog in dataset.lifelogs.items():
        kept = lifelog.segments[:count]
        end = kept[-1].last_seq + 1 if kept else 0
        lifelogs[name] = Lifelog(stream=name, observations=lifelog.observations[:end], segments=kept)
    anchors = [anchor for anchor in dataset.anchors if anchor.segment < count]
    return replace(dataset, lifelogs=lifelogs, anchors=anchors)


async def execute(plan: Plan, show: Callable[[Progress], None] | None = None) -> Scores:
    """Run a plan to its end in `options.out`, write its verdicts there and fold the scores. Cancelled, it
    leaves a log that can be read. Nothing is in the folder before every memory system has been made.

    Raises:
        ConfigError: a memory system can't be made, or the folder can't be used.
        ExceptionGroup: what ended a role, such as InvariantError (something wrote what the protocol does
            not allow) or StallError (a role is not ready, or what it owes does not come).
    """
    memories: dict[str, MemorySystem] = {}
    try:
        _open_memories(plan, memories)
        await anyio.to_thread.run_sync(
            partial(prepare_folder, plan.options.out, overwrite=plan.options.overwrite)
        )
        async with open_log(str(log_path(plan.options.out))) as log:
            await _run_roles(log, plan, memories, show)
            await write_verdicts(log, plan.started, plan.options.out)
            return await fold_scores(log, plan.started)
    finally:
        await close_all(memories.values(), "not begun")  # what no agent took


async def _run_roles(
    log: Log, plan: Plan, memories: dict[str, MemorySystem], show: Callable[[Progress], None] | None
) -> None:
    """Start every role and wait until all have ended. Each agent takes its lanes out of `memories`."""
    options, started = plan.options, plan.started
    recorder = Recorder.for_run(started)
    await log.create_topics(Topics.of(started.run).partitions(started.partitions))
    await log.append([recorder.record(event) for event in _preamble(plan)])
    panel = JudgePanel(official_judges(), metrics_of(options.ablate_commit))
    move_s = options.call_timeout_s + 300
    if started.isolation == "shared":  # a lane moves on once all trajectories of a segment have been through
        anchors_in = Counter((anchor.stream, anchor.segment) for anchor in plan.dataset.anchors)
        move_s *= 1 + 6 * max(anchors_in.values(), default=0)
    replay_options = ReplayOptions(
        policy=options.policy,
        required=started.required,
        lanes={stream: [f"{label}@{stream}" for label in started.systems] for stream in started.streams},
        isolation=started.isolation,
        max_ahead=options.max_ahead,
        stall_timeout_s=move_s,
    )
    agent = partial(
        run_agent,
        open_memory=lambda lane, _: memories.pop(lane),
        calls_in_flight=options.calls_in_flight,
        call_timeout_s=options.call_timeout_s,
    )
    clock = Clock(started.event_time_us, options.rate)
    lifelogs = list(plan.dataset.lifelogs.values())
    async with anyio.create_task_group() as roles:
        for label in started.systems:
            roles.start_soon(agent, log, started, label, name=agent_role(label))
        roles.start_soon(run_judges, log, started, panel, name=JUDGE_ROLE)
        roles.start_soon(replay, log, recorder, lifelogs, clock, replay_options, name="replayer")
        if show is not None:
            roles.start_soon(monitor, log, started, show, name="monitor")
        await conduct(log, started, stall_timeout_s=options.call_timeout_s + 1200)


async def write_verdicts(log: Log, started: RunStartedEvent, folder: Path) -> Path:
    """Write `verdicts.jsonl`: the verdicts' values as they are in the log, sorted by id, one a line. Two runs
    of the same inputs give the same bytes. It appears whole or not at all."""
    topic = Topics.of(started.run).verdicts
    lines = sorted(
        [
            (event.id, record.value)
            async for record in read_to_end(log, [topic])
            for event, _ in decode_records(started.run, [record])[0]
            if isinstance(event, VerdictEvent)
        ]
    )
    path = folder / VERDICTS_NAME
    await anyio.to_thread.run_sync(_write_whole, path, b"".join(value + b"\n" for _, value in lines))
    return path


def _write_whole(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


async def fold_scores(log: Log, started: RunStartedEvent) -> Scores:
    """The scores of what the log holds now."""
    topics = Topics.of(started.run)
    board = Scoreboard()
    async for record in read_to_end(log, [topic for topic in topics if topic != topics.observations]):
        for event, _ in decode_records(started.run, [record])[0]:
            board.feed(event, record.headers)
    scores = board.scores()
    assert scores is not None  # it has seen the event from which `started` was made
    return scores


def _systems(options: RunOptions) -> tuple[SystemSpec, ...]:
    if not options.systems:
        raise ConfigError("no system: name at least one with --system (see `egostream systems`)")
    specs = tuple(parse_spec(text) for text in options.systems)
    labels = [spec.label for spec in specs]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"two systems are called {label}: give one another label, as in other={label}")
    for spec in specs:
        if capabilities(spec).fork == "none" and options.isolation == "branch":
            raise ConfigError(f"{spec.label} can't fork: run it with --isolation shared")
    if options.isolation == "shared" and options.ablate_commit:
        raise ConfigError(
            "the commit ablation needs a branch without the commit: run it with --isolation branch"
        )
    if options.isolation == "shared" and options.policy == "run":
        raise ConfigError(
            "isolation shared needs time to wait for each trajectory: run it with --policy hold"
        )
    return specs


def _preamble(plan: Plan) -> list[Event]:
    started, report = plan.started, plan.dataset.report
    counted = DatasetReportEvent(
        id="dataset/report",
        run=started.run,
        event_time_us=started.event_time_us,
        counts=dict(report.counts),
        oddities=dict(report.oddities),
    )
    return [started, counted, *(replace(anchor, run=started.run) for anchor in plan.dataset.anchors)]


def _open_memories(plan: Plan, memories: dict[str, MemorySystem]) -> None:
    """Make the memory of every lane, lane → memory. Raises ConfigError, with those made so far in
    `memories`."""
    options = plan.options
    for spec in plan.systems:
        privileged = capabilities(spec).privileged
        for stream in plan.started.streams:
            lane = f"{spec.label}@{stream}"
            context = LaneContext(
                lane=lane,
                stream=stream,
                seed=options.seed,
                top_k=options.top_k,
                word_budget=options.word_budget,
                anchors=tuple(a for a in plan.dataset.anchors if a.stream == stream) if privileged else (),
            )
            memories[lane] = open_system(spec, context)
