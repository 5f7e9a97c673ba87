"""A load: observations offered by the clock whatever becomes of them, and how late they are remembered.

It is a run like any other (`simulator.run`), with nothing to judge: the same replayer under policy `run`, the same
agent and conductor, over the same log. What is reported is a fold over that log (`consumers.latency`). A lane has one
memory and makes no branch, as in isolation `shared`: so any system can be loaded, and no snapshot counts as its ingest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from adapters.registry import capabilities, parse_spec
from consumers.histogram import Histogram
from consumers.latency import LatencyFold, LatencyReport
from consumers.monitor import Progress
from consumers.process_meter import meter_process
from producers.arrivals import Load, Offered, offer
from producers.datasets import read_dataset
from producers.lifelog import Dataset
from producers.questions import QuestionLoad, QuestionPlan, ask, lay_out
from simulator.errors import ConfigError
from simulator.events import Limits, Questions, ReplayEndedEvent, RunStartedEvent
from simulator.files import write_whole
from simulator.intake import decode_records, read_events
from simulator.log.protocol import Log
from simulator.plan import Plan, RunOptions, announce
from simulator.run import run_roles, set_up
from simulator.runfolder import LATENCY_NAME, LATENCY_TEXT
from simulator.topics import Topics, wall_us
from simulator.waits import ASKER_ROLE, CONDUCTOR_ROLE, agent_role

_UNBOUNDED = 2**53
"""Time does not wait, so no limit holds it."""


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a load is asked for. `load`: the schedule; `questions`: what is asked meanwhile and after; `drain_s`: how
    long, after the last was due, what is owed may take before the run is cut short. The others as in
    `simulator.plan.RunOptions`."""

    data: str
    system: str
    out: Path
    load: Load
    questions: QuestionLoad | None = None
    log: str | None = None
    drain_s: float = 60.0
    language: Literal["en", "zh", "both"] = "en"
    streams: tuple[str, ...] | None = None
    calls_in_flight: int = Limits().calls_in_flight
    call_timeout_s: float = 600.0
    overwrite: bool = False


class LoadPlan(msgspec.Struct, frozen=True):
    """A load laid out and not begun: all input errors have been raised by now."""

    options: LoadOptions
    plan: Plan
    offered: Offered
    questions: QuestionPlan | None = None


def plan_load(
    options: LoadOptions,
    dataset: Dataset | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LoadPlan:
    """Read the dataset, unless it is given, and lay the load out. Blocking. Raises ConfigError and DatasetError."""
    asked_us = wall_us()
    load, spec = options.load, parse_spec(options.system)
    if not 0 <= options.drain_s < math.inf:
        raise ConfigError(f"drain_s is {options.drain_s:g}: it must be a finite number, at least 0")
    if dataset is None:
        dataset = read_dataset(
            options.data, language=options.language, streams=options.streams, progress=progress
        )
    offered = offer(dataset.lifelogs, load)
    questions = None if options.questions is None else lay_out(offered, load, options.questions, spec.label)
    dataset = replace(dataset, lifelogs=offered.lifelogs, anchors=())
    limits = Limits(
        calls_in_flight=options.calls_in_flight, segments_ahead=_UNBOUNDED, unreleased_segments=_UNBOUNDED
    )
    run_options = RunOptions(
        data=options.data,
        systems=(options.system,),
        out=options.out,
        log=options.log,
        language=options.language,
        streams=options.streams,
        isolation="shared",
        seed=load.seed,
        rate=offered.rate,
        policy="run",
        limits=limits,
        call_timeout_s=options.call_timeout_s,
        overwrite=options.overwrite,
    )
    identity = {
        "code": version("egostream"),
        "load": msgspec.json.encode(load).decode(),
        "dataset": dataset.digest,
        "language": options.language,
        "streams": ",".join(dataset.lifelogs),
        "systems": options.system,
        "seed": str(load.seed),
        "top_k": str(run_options.top_k),
        "word_budget": str(run_options.word_budget),
        "asked_us": str(asked_us),  # a measurement made again is another one
    }
    required: tuple[str, ...] = (agent_role(spec.label), CONDUCTOR_ROLE)
    announced = None
    if questions is not None:
        identity["questions"] = msgspec.json.encode(options.questions).decode()
        forks = (spec.label,) if capabilities(spec).fork == "cheap" else ()
        announced = Questions(loaded=len(questions.loaded), idle=len(questions.idle), forks=forks)
        required = (*required, ASKER_ROLE)
    started = replace(
        announce(run_options, dataset, (spec,), identity), required=required, questions=announced
    )
    return LoadPlan(options, Plan(run_options, dataset, (spec,), started, asked_us), offered, questions)


async def execute_load(load: LoadPlan, show: Callable[[Progress], None] | None = None) -> LatencyReport:
    """Offer a load, and write and give what came of it. Cancelled, it leaves a log that can be read.

    Raises:
        ConfigError: the memory system can't be made, or the folder can't be used or holds a run.
        LogError: the log can't be reached.
        ExceptionGroup: what ended a role.
    """
    plan, options, questions = load.plan, load.options, load.questions
    started, drained = plan.started, anyio.Event()
    async with set_up(plan, {}, anew=True) as (log, openers, memories):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meter_process, log, started, "load")
            if questions is not None:
                tasks.start_soon(ask, log, started, questions, drained, name=ASKER_ROLE)
            tasks.start_soon(_cut_short, log, load, drained, tasks.cancel_scope)
            await run_roles(log, plan, openers, memories, show)
            tasks.cancel_scope.cancel()
        report = await read_latency(log, started)
        await anyio.to_thread.run_sync(write_latency, options.out, report)
        return report


async def _cut_short(log: Log, load: LoadPlan, drained: anyio.Event, scope: anyio.CancelScope) -> None:
    """Cancel the scope so long after the replay's end; where that is drained by then and there are questions after it,
    so long after the last of those was due."""
    run, drain_s = load.plan.started.run, load.options.drain_s
    async with log.subscribe([Topics.of(run).control]) as subscription:
        while True:
            events, _ = decode_records(run, await subscription.poll())
            if any(isinstance(event, ReplayEndedEvent) for event, _ in events):
                break
    with anyio.move_on_after(drain_s):
        await drained.wait()
    if drained.is_set() and load.questions is not None:
        await anyio.sleep(load.questions.idle_s + drain_s)
    scope.cancel()


async def read_latency(log: Log, started: RunStartedEvent) -> LatencyReport:
    """The latencies of what the log holds now."""
    fold, topics = LatencyFold(started), Topics.of(started.run)
    read = [topics.observations, topics.deltas, topics.control]
    if started.questions is not None:
        read += [topics.tasks, topics.responses]
    async for event, record in read_events(log, started.run, read):
        fold.feed(event, record.headers)
    return fold.report()


def write_latency(folder: Path, report: LatencyReport) -> list[Path]:
    """Write `latency.json` and, for each stage that has values, `latency-STAGE.hgrm`; of answers
    `latency-answers-loaded-STAGE.hgrm` and `latency-answers-idle-STAGE.hgrm`. Blocking."""
    path = folder / LATENCY_NAME
    write_whole(path, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    written, stages = [path], dict(report.stages)
    if report.answers is not None:
        for part, times in (("loaded", report.answers.loaded), ("idle", report.answers.idle)):
            stages |= {f"answers-{part}-{stage}": numbers for stage, numbers in times.stages.items()}
    for stage, numbers in stages.items():
        if numbers is not None:
            text = folder / LATENCY_TEXT.format(stage)
            write_whole(text, Histogram.of(numbers).hgrm())
            written.append(text)
    return written
