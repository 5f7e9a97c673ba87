"""One run: set up the log, start its roles, wait for the end, fold the scores. Begun again on a log that holds a part
of it, it goes on where that ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec.structs import replace

from adapters.memory import LaneContext, MemorySystem
from adapters.registry import SystemSpec, capabilities, open_system
from consumers.agent import run_agent
from consumers.calls import close_all
from consumers.judging import run_judges
from consumers.monitor import Progress, monitor
from consumers.scoreboard import Scoreboard
from consumers.scores import Scores
from consumers.watchdog import watch
from judges.deterministic import official_judges
from judges.panel import JudgePanel
from producers.conduct import conduct
from producers.control import obey_control
from producers.replayer import ReplayOptions, replay
from simulator.clock import Clock
from simulator.errors import ConfigError
from simulator.events import (
    AnchorEvent,
    DatasetReportEvent,
    DeadLetterEvent,
    Event,
    RunStartedEvent,
    VerdictEvent,
)
from simulator.files import write_whole
from simulator.intake import decode_records, read_to_end
from simulator.log import open_log
from simulator.log.protocol import Log
from simulator.plan import Plan, metrics_of
from simulator.runfolder import VERDICTS_NAME, enter_folder, find_run, note_run
from simulator.topics import Recorder, Topics
from simulator.waits import JUDGE_ROLE, agent_role


async def execute(plan: Plan, show: Callable[[Progress], None] | None = None) -> Scores:
    """Run a plan to its end, write its verdicts into `options.out` and fold the scores. On a log that holds a part of
    this run it goes on where that ends. Cancelled, it leaves a log that can be read. Nothing is in the folder before
    every memory system has been made.

    Raises:
        ConfigError: a memory system can't be made, or the folder can't be used or holds another run.
        LogError: the log can't be reached.
        ExceptionGroup: what ended a role, such as InvariantError (something wrote what the protocol does
            not allow) or StallError (a role is not ready, or what it owes does not come).
    """
    options, started = plan.options, plan.started
    memories: dict[str, MemorySystem] = {}
    try:
        for spec in plan.systems:
            for stream in started.streams:
                lane = f"{spec.label}@{stream}"
                memories[lane] = open_memory(spec, started, stream, plan.dataset.anchors)
        url = await anyio.to_thread.run_sync(
            partial(enter_folder, options.out, options.log, started.run, overwrite=options.overwrite)
        )
        async with open_log(url) as log:
            await begin(log, started, preamble(plan), options.out if options.log is None else None)
            await anyio.to_thread.run_sync(note_run, options.out, options.log, started.run)
            await _run_roles(log, plan, memories, show)
            await write_verdicts(log, started, options.out)
            return await fold_scores(log, started)
    finally:
        await close_all(memories.values(), "not begun")  # what no agent took


async def begin(
    log: Log, started: RunStartedEvent, first: Sequence[Event], folder: Path | None = None
) -> bool:
    """Set up a run in the log by its first events, or find that it is there; gives whether it was. `folder`: where
    the log is a file for one run. Raises ConfigError when that holds another run, and names what differs."""
    if await find_run(log, started.run):
        return True
    if folder is not None and (other := await find_run(log)):
        raise ConfigError(
            f"{folder} already holds a run with {_difference(other, started)}: read it with `egostream scores "
            f"{folder}`, choose another --out, or pass --overwrite to replace it"
        )
    topics = Topics.of(started.run)
    await log.create_topics(topics.partitions(started.partitions))
    there = [
        event.id
        async for record in read_to_end(log, [topics.anchors])
        for event, _ in decode_records(started.run, [record])[0]
    ]
    recorder = Recorder.for_run(started)
    await log.append([recorder.record(event) for event in first if event.id not in {*there, started.id}])
    # The last, and by itself, since on Kafka each partition is its own write: where it is, all is there that roles
    # read before they begin.
    await log.append([recorder.record(started)])
    return False


def _difference(other: RunStartedEvent, started: RunStartedEvent) -> str:
    names = sorted(other.identity.keys() | started.identity.keys())
    fields = [
        f"{name} {other.identity.get(name, 'none')!r} (not {started.identity.get(name, 'none')!r})"
        for name in names
        if other.identity.get(name) != started.identity.get(name)
    ]
    return ", ".join(fields) or "another make-up"


def open_memory(
    spec: SystemSpec, started: RunStartedEvent, stream: str, anchors: Iterable[AnchorEvent]
) -> MemorySystem:
    """The memory system of one lane, made as the run says. `anchors`: the run's; only a privileged system gets
    those of its stream. Raises ConfigError."""
    privileged = capabilities(spec).privileged
    context = LaneContext(
        lane=f"{spec.label}@{stream}",
        stream=stream,
        seed=int(started.identity["seed"]),
        top_k=int(started.identity["top_k"]),
        word_budget=int(started.identity["word_budget"]),
        anchors=tuple(anchor for anchor in anchors if anchor.stream == stream) if privileged else (),
    )
    return open_system(spec, context)


async def run_replayer(log: Log, plan: Plan, clock: Clock) -> None:
    """The replayer's role, obeying the control topic."""
    options, started = plan.options, plan.started
    move_s = options.call_timeout_s + 300
    if options.stall_timeout_s is not None:
        move_s = options.stall_timeout_s
    elif (
        started.isolation == "shared"
    ):  # a lane moves on once all trajectories of a segment have been through
        anchors_in = Counter((anchor.stream, anchor.segment) for anchor in plan.dataset.anchors)
        move_s *= 1 + 6 * max(anchors_in.values(), default=0)
    replay_options = ReplayOptions(
        policy=options.policy,
        required=started.required,
        lanes={stream: [f"{label}@{stream}" for label in started.systems] for stream in started.streams},
        isolation=started.isolation,
        max_ahead=options.max_ahead,
        stall_timeout_s=move_s,
        attached=frozenset(f"{label}@{stream}" for label in started.attached for stream in started.streams),
        lane_timeout_s=started.answer_timeout_s,
    )
    lifelogs = list(plan.dataset.lifelogs.values())
    async with anyio.create_task_group() as tasks:
        await tasks.start(obey_control, log, started, clock, plan.asked_us)
        await replay(log, Recorder.for_run(started), lifelogs, clock, replay_options)
        tasks.cancel_scope.cancel()


async def _run_roles(
    log: Log, plan: Plan, memories: dict[str, MemorySystem], show: Callable[[Progress], None] | None
) -> None:
    """Start every role and wait until all have ended. Each agent takes its lanes out of `memories`."""
    options, started = plan.options, plan.started
    panel = JudgePanel(official_judges(), metrics_of(options.ablate_commit))
    async with anyio.create_task_group() as roles:
        for spec in plan.systems:
            agent = partial(
                run_agent,
                open_memory=partial(_take_memory, memories, spec, plan),
                calls_in_flight=options.calls_in_flight,
                call_timeout_s=options.call_timeout_s,
            )
            roles.start_soon(agent, log, started, spec.label, name=agent_role(spec.label))
        roles.start_soon(run_judges, log, started, panel, name=JUDGE_ROLE)
        clock = Clock(started.event_time_us, options.rate)
        roles.start_soon(run_replayer, log, plan, clock, name="replayer")
        if show is not None:
            roles.start_soon(monitor, log, started, show, name="monitor")
        roles.start_soon(watch, log, started, options.stall_limit_s, name="watchdog")
        await conduct(log, started, stall_timeout_s=options.stall_limit_s)


def _take_memory(
    memories: dict[str, MemorySystem], spec: SystemSpec, plan: Plan, lane: str, stream: str
) -> MemorySystem:
    """The lane's memory made before the run began; a new one where the lane had gone to another process."""
    return memories.pop(lane, None) or open_memory(spec, plan.started, stream, plan.dataset.anchors)


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
    await anyio.to_thread.run_sync(write_whole, path, b"".join(value + b"\n" for _, value in lines))
    return path


async def fold_scores(log: Log, started: RunStartedEvent) -> Scores:
    """The scores of what the log holds now."""
    topics = Topics.of(started.run)
    board = Scoreboard()
    buried: set[tuple[str, int, int]] = set()
    async for record in read_to_end(log, [topics.dead]):
        for event, _ in decode_records(started.run, [record])[0]:
            board.feed(event, record.headers)
            if isinstance(event, DeadLetterEvent):
                buried.add((event.topic, event.partition, event.offset))
    async for record in read_to_end(
        log, [topic for topic in topics if topic not in (topics.observations, topics.dead)]
    ):
        if (record.topic, record.partition, record.offset) in buried:
            continue  # it can be decoded, and yet it is no part of the run: an attached agent wrote it out of place
        for event, _ in decode_records(started.run, [record])[0]:
            board.feed(event, record.headers)
    scores = board.scores()
    assert scores is not None  # it has seen the event from which `started` was made
    return scores


def preamble(plan: Plan) -> list[Event]:
    """The first events of a run: its anchors, what the reader counted, and `run_started`."""
    started, report = plan.started, plan.dataset.report
    counted = DatasetReportEvent(
        id="dataset/report",
        run=started.run,
        event_time_us=started.event_time_us,
        counts=dict(report.counts),
        oddities=dict(report.oddities),
    )
    return [*(replace(anchor, run=started.run) for anchor in plan.dataset.anchors), counted, started]
