"""A load: observations offered by the clock whatever becomes of them, and how late they are remembered.

It is a run like any other (`simulator.run`), with nothing to judge: the same replayer under policy `run`, the same
agent and conductor, over the same log. What is reported is a fold over that log (`consumers.latency`). A lane has one
memory and makes no branch, as in isolation `shared`: so any system can be loaded, and no snapshot counts as its ingest.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from adapters.endpoints import read_models
from adapters.prompt import prompt_language
from adapters.registry import SystemSpec, capabilities, parse_spec
from consumers.follow import Watcher, watched
from consumers.histogram import Histogram
from consumers.latency import LatencyFold, LatencyReport
from consumers.monitor import Progress, monitor
from consumers.process_meter import meter_process
from producers.arrivals import Load, Offered, offer
from producers.datasets import read_dataset
from producers.lifelog import Dataset
from producers.questions import QuestionLoad, QuestionPlan, ask, lay_out
from simulator.errors import ConfigError
from simulator.events import (
    Limits,
    LoadCutShortEvent,
    Questions,
    ReadyEvent,
    ReplayEndedEvent,
    RunStartedEvent,
)
from simulator.files import write_whole
from simulator.intake import followed, read_events
from simulator.load.machine import in_real_time, this_machine
from simulator.log.protocol import Log, header_of
from simulator.log.sqlite import user_of
from simulator.models import system_identity, uses_of
from simulator.plan import MAX_PARTITIONS, Plan, RunOptions, announce, check_label, is_load
from simulator.processes import run_processes
from simulator.run import make, run_roles, set_up
from simulator.runfolder import (
    COMPARE_NAME,
    LATENCY_NAME,
    LATENCY_TEXT,
    LOG_NAME,
    NOTE_NAME,
    SWEEP_NAME,
    log_path,
    open_run,
    remove_several,
)
from simulator.timebase import monotonic_us, wall_us
from simulator.topics import Recorder, Topics
from simulator.waits import ASKER_ROLE, CONDUCTOR_ROLE, LOAD_ROLE, REPLAYER_ROLE, agent_role

_ANSWER_TIMEOUT_S = 600.0
"""Of an attached agent, at least."""
_UNBOUNDED = 2**53
"""Time does not wait, so no limit holds it."""


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a load is asked for. `load`: the schedule; `questions`: what is asked meanwhile and after; `drain_s`: how
    long, after the last was due, what is owed may take before the run is cut short. `attached`: the label of a system
    whose agent runs elsewhere, in place of `system`. `agents`: run the roles as processes of their own, with so many
    for the agents, which share the lanes; None: all in this process. `real_time`: the replayer's process runs before
    all others. The others as in `simulator.plan.RunOptions`."""

    data: str
    system: str = ""
    attached: str = ""
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
    models: Path | None = None
    agents: int | None = None
    real_time: bool = False


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
    asked_us: int | None = None,
) -> LoadPlan:
    """Read the dataset, unless it is given, and lay the load out. `asked_us`: the moment at which it was asked for, by
    `timebase.monotonic_us`; with the same one, it comes to the same run. Blocking. Raises ConfigError and
    DatasetError."""
    if asked_us is None:
        asked_us = monotonic_us()
    load, specs = options.load, _systems(options)
    if not 0 <= options.drain_s < math.inf:
        raise ConfigError(f"drain_s is {options.drain_s:g}: it must be a finite number, at least 0")
    if dataset is None:
        dataset = read_dataset(
            options.data, language=options.language, streams=options.streams, progress=progress
        )
    offered = offer(dataset.lifelogs, load)
    _check_agents(options, len(offered.lifelogs))
    dataset = replace(dataset, lifelogs=offered.lifelogs, anchors=())
    settings = read_models(options.models) if any(capabilities(spec).asks for spec in specs) else {}
    limits = Limits(
        calls_in_flight=options.calls_in_flight, segments_ahead=_UNBOUNDED, unreleased_segments=_UNBOUNDED
    )
    run_options = RunOptions(
        data=options.data,
        systems=tuple(filter(None, [options.system])),
        attached=tuple(filter(None, [options.attached])),
        # what is owed is waited for until the drain's end, and not given up before
        answer_timeout_s=max(_ANSWER_TIMEOUT_S, options.drain_s),
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
    questions = None
    if options.questions is not None:
        label = specs[0].label if specs else options.attached
        questions = lay_out(offered, load, options.questions, label)
    identity = {
        "code": version("egostream"),
        "load": _text(load),
        "dataset": dataset.digest,
        "language": options.language,
        "streams": ",".join(dataset.lifelogs),
        "systems": options.system or options.attached,
        "log": "sqlite"
        if options.log is None or "://" not in options.log
        else options.log.partition("://")[0],
        "agents": "in one process" if options.agents is None else str(options.agents),
        "calls_in_flight": str(options.calls_in_flight),
        "seed": str(load.seed),
        "top_k": str(run_options.top_k),
        "word_budget": str(run_options.word_budget),
        "machine": msgspec.json.encode(this_machine()).decode(),
        "asked_us": str(wall_us(asked_us)),  # a measurement made again is another one
        **system_identity(settings, specs, prompt_language(options.language)),
    }
    if options.real_time:
        identity["replayer"] = "in real time"
    if options.questions is not None:
        identity["questions"] = _text(options.questions)
    started = announce(run_options, dataset, specs, identity)
    (label,), apart = started.systems, options.agents is not None
    started = replace(
        started,
        required=(
            *(agent_role(label), CONDUCTOR_ROLE),
            *([LOAD_ROLE] if apart else ()),
            *([] if questions is None else [ASKER_ROLE]),
        ),
        questions=None
        if questions is None
        else Questions(loaded=len(questions.loaded), idle=len(questions.idle)),
        # each agent has one at least
        partitions=min(len(started.streams), max(MAX_PARTITIONS, options.agents or 1)),
        models=uses_of(settings, specs, (), None),
    )
    # without a cache: how fast it answers is no measure of a memory
    plan = Plan(run_options, dataset, specs, started, asked_us, settings)
    return LoadPlan(options, plan, offered, questions)


def _text(load: Load | QuestionLoad) -> str:
    """The same for equal loads, whether a number was given as 3 or as 3.0."""
    return msgspec.json.encode(msgspec.convert(msgspec.to_builtins(load), type(load))).decode()


def _systems(options: LoadOptions) -> tuple[SystemSpec, ...]:
    if bool(options.system) == bool(options.attached):
        raise ConfigError(
            "name the memory system, or with --attach the label of one that attaches: one of the two"
        )
    if options.system:
        return (parse_spec(options.system),)
    check_label(options.attached)
    if options.agents is not None:
        raise ConfigError(
            "--agents starts agents, and one with --attach is started elsewhere: one of the two"
        )
    return ()


def _check_agents(options: LoadOptions, lanes: int) -> None:
    if options.agents is not None and not 1 <= options.agents <= lanes:
        raise ConfigError(
            f"{options.agents} agents on {lanes} lanes: they share them, so there can be 1 to {lanes}; more --wearers "
            "make more lanes"
        )
    if options.real_time:
        if options.agents is None:
            raise ConfigError(
                "--real-time is for a replayer in a process of its own: give --agents N as well"
            )
        with in_real_time():
            pass  # whether it may, before processes are started


async def execute_load(
    load: LoadPlan, show: Callable[[Progress], None] | None = None, watchers: Iterable[Watcher] = ()
) -> LatencyReport:
    """Offer a load, and write and give what came of it. Cancelled, it leaves a log that can be read. `watchers` read
    along.

    Raises:
        ConfigError: the memory system can't be made, or the folder can't be used or holds a run.
        LogError: the log can't be reached.
        ExceptionGroup: what ended a role.
    """
    plan, options, drained = load.plan, load.options, anyio.Event()
    started, apart = plan.started, options.agents is not None
    await anyio.to_thread.run_sync(make_free, options)
    if apart:
        async with make(plan, started.streams[:1]):
            pass  # one that can't be made is found before there is a folder
    ours = replace(plan, systems=()) if apart else plan  # memories are made where they are driven
    with uncollected():
        async with set_up(ours, {}, anew=True) as ready:
            log = ready.log
            async with watched(log, started, watchers):
                cut_short = True
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(meter_process, children=not apart), log, started, LOAD_ROLE)
                    tasks.start_soon(_cut_short, log, load, drained, tasks.cancel_scope)
                    if load.questions is not None:
                        tasks.start_soon(ask, log, started, load.questions, drained, name=ASKER_ROLE)
                    if apart:
                        await _run_apart(log, load, show)
                    else:
                        await run_roles(ready, plan, show)
                    cut_short = False
                    tasks.cancel_scope.cancel()
                if cut_short:  # said last, when all of the load's own roles have ended
                    await log.append([Recorder.for_run(started).record(_cut_short_event(started))])
            report = await read_latency(log, started)
            await anyio.to_thread.run_sync(write_latency, options.out, report)
            return report


def make_free(options: LoadOptions) -> None:
    """Raise ConfigError where the folder holds a sweep or a comparison, whose page would be taken for that of what is
    measured now. To be overwritten, they go first, with their page and the folders of their loads. Blocking."""
    for name in (SWEEP_NAME, COMPARE_NAME):
        path = options.out / name
        if path.exists():
            if not options.overwrite:
                raise ConfigError(
                    f"{options.out} already holds a {name}: choose another --out, or pass --overwrite"
                )
            remove_several(options.out, name)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector off all that is there now, such as a load that was laid out: to look at some 100,000
    observations again and again stalls the process for 50 ms and more each time, for nothing. Blocking for once."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _run_apart(log: Log, load: LoadPlan, show: Callable[[Progress], None] | None) -> None:
    """The roles as processes of their own. Raises ProcessError for one that fails, and then ends the others."""
    options, started = load.options, load.plan.started
    (label,) = started.systems
    agents = [f"{agent_role(label)}.{number + 1}" for number in range(options.agents or 1)]
    url = options.log or str(log_path(options.out).absolute())
    parts = {
        name: LoadPart(
            role=name if name in (REPLAYER_ROLE, CONDUCTOR_ROLE) else "agent",
            name=name,
            log=url,
            run=started.run,
            asked_us=load.plan.asked_us,
            options=options,
        )
        for name in (REPLAYER_ROLE, CONDUCTOR_ROLE, *agents)
    }
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_say_when_shared, log, started, frozenset(agents))
        if show is not None:
            tasks.start_soon(monitor, log, started, show)
        lines = {name: part.encoded() for name, part in parts.items()}
        await run_processes(lines, ("worker", "load"), CONDUCTOR_ROLE)
        tasks.cancel_scope.cancel()


async def _say_when_shared(log: Log, started: RunStartedEvent, agents: frozenset[str]) -> None:
    """Say `ready` once all agents are, and each partition is one's: an agent that came later would take lanes over
    from another in the middle of the load."""
    shares: dict[str, frozenset[str]] = {}
    async with aclosing(followed(log, started.run, [Topics.of(started.run).control])) as events:
        async for event, record in events:
            if isinstance(event, ReadyEvent) and (name := header_of(record.headers, "process").decode()):
                partitions = header_of(record.headers, "partitions").decode()
                shares[name] = frozenset(filter(None, partitions.split(",")))
                if _is_shared(shares, agents, started.partitions):
                    break
    ready = ReadyEvent(id=f"ready/{LOAD_ROLE}", run=started.run, event_time_us=0, role=LOAD_ROLE)
    await log.append([Recorder.for_run(started).record(ready)])


def _is_shared(shares: Mapping[str, frozenset[str]], agents: frozenset[str], partitions: int) -> bool:
    """Whether each agent has partitions, and all together have each once: while they join, what one said may be out of
    date."""
    said = [number for share in shares.values() for number in share]
    return shares.keys() == agents and all(shares.values()) and len(said) == len(set(said)) == partitions


class LoadPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one of a load's processes is told: its role and name, the run, and what was asked for."""

    role: str
    name: str
    log: str
    run: str
    asked_us: int
    options: LoadOptions

    def encoded(self) -> bytes:
        """In one line."""
        return msgspec.json.encode(self, enc_hook=str)

    @classmethod
    def decoded(cls, line: bytes) -> LoadPart:
        """What `encoded` gave."""
        return msgspec.json.decode(line, type=cls, dec_hook=lambda kind, value: kind(value))


def _cut_short_event(started: RunStartedEvent) -> LoadCutShortEvent:
    return LoadCutShortEvent(id="load/cut_short", run=started.run, event_time_us=started.event_time_us)


async def _cut_short(log: Log, load: LoadPlan, drained: anyio.Event, scope: anyio.CancelScope) -> None:
    """Cancel the scope so long after the replay's end; where that is drained by then and there are questions after it,
    so long after the last of those was due."""
    run, drain_s = load.plan.started.run, load.options.drain_s
    async with aclosing(followed(log, run, [Topics.of(run).control])) as events:
        async for event, _ in events:
            if isinstance(event, ReplayEndedEvent):
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


async def recover_latency(folder: Path) -> bool:
    """Read `latency.json` and the percentiles off the log of a load that was stopped before it had written them; gives
    whether the folder holds a load. Raises ConfigError for one that is stopped by nobody yet."""
    if not any([await anyio.Path(folder / name).is_file() for name in (NOTE_NAME, LOG_NAME)]):
        return False
    if (process := await anyio.to_thread.run_sync(user_of, log_path(folder))) is not None:
        raise ConfigError(f"a load goes on in {folder} (process {process}): wait for its end, or stop it")
    async with open_run(folder) as (log, started):
        if not is_load(started):
            return False
        report = await read_latency(log, started)
    await anyio.to_thread.run_sync(write_latency, folder, report)
    return True


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
