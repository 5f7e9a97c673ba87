"""One run: set up the log, start its roles, wait for the end, fold the scores. Begun again on a log that holds a part
of it, it goes on where that ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import structlog
from msgspec.structs import replace

from adapters.embedder import Embedder
from adapters.gateway import BUNDLED, Gateway, LaneGateway
from adapters.memory import LaneContext, MemorySystem, Responder
from adapters.model import Model
from adapters.prompt import prompt_language
from adapters.registry import SystemSpec, capabilities, open_system
from adapters.session_values import SessionTexts, SessionValued
from consumers.agent import run_agent
from consumers.calls import CallLimit, close_all
from consumers.follow import Watcher, watched
from consumers.homes import Isolating, new_folder
from consumers.judging import run_judges
from consumers.monitor import Progress, monitor
from consumers.scores import Scores
from consumers.watchdog import watch
from producers.conduct import conduct
from producers.control import obey_control
from producers.lanes import ReplayOptions
from producers.replayer import replay
from simulator.clock import Clock
from simulator.errors import ConfigError
from simulator.events import (
    DatasetReportEvent,
    Event,
    RunStartedEvent,
    Subject,
)
from simulator.intake import read_events
from simulator.log import open_log
from simulator.log.protocol import Log
from simulator.models import NO_MODELS, ModelSource, gateway_for, open_models
from simulator.plan import Plan, identity_difference, is_load, means_in, noted, panel_of, responder_for
from simulator.results import read_results, write_results
from simulator.runfolder import LOGS_NAME, MEMORIES_NAME, enter_folder, find_run, note_run
from simulator.scratch import scratch_folder
from simulator.topics import Recorder, Topics, wall_us
from simulator.waits import JUDGE_ROLE, agent_role

_log = structlog.get_logger(__name__)


async def execute(
    plan: Plan, show: Callable[[Progress], None] | None = None, watchers: Iterable[Watcher] = ()
) -> Scores:
    """Run a plan to its end, write its results into `options.out` and give its scores. On a log that holds a part of
    this run it goes on where that ends. Cancelled, it leaves a log that can be read. Nothing is in the folder before
    every memory system has been made. `watchers` read along.

    Raises:
        ConfigError: a memory system can't be made, or the folder can't be used or holds another run.
        LogError: the log can't be reached.
        ExceptionGroup: what ended a role, such as InvariantError (something wrote what the protocol does
            not allow) or StallError (a role is not ready, or what it owes does not come).
    """
    options, started = plan.options, plan.started
    async with set_up(plan, noted(options)) as ready:
        async with watched(ready.log, started, watchers):
            await run_roles(ready, plan, show)
        results = await read_results(ready.log, started, options.out)
        await anyio.to_thread.run_sync(write_results, options.out, results)
        return results.scores


class Made(NamedTuple):
    """The memories of a run, lane → memory, those who make more of them, and the models."""

    openers: Mapping[str, Opener]
    memories: dict[str, MemorySystem]
    models: ModelSource


class SetUp(NamedTuple):
    """A run that may begin: its log with the first events, and what was made for it."""

    log: Log
    openers: Mapping[str, Opener]
    memories: dict[str, MemorySystem]
    models: ModelSource


@asynccontextmanager
async def set_up(plan: Plan, note: dict[str, Any], *, anew: bool = False) -> AsyncIterator[SetUp]:
    """Make every memory system, then the run's folder and log. `note`: what `run.json` says of the options; `anew`:
    the log may hold nothing of this run. Raises ConfigError and LogError, and then leaves nothing."""
    options, started = plan.options, plan.started
    async with make(plan, started.streams) as made:
        url = await anyio.to_thread.run_sync(
            partial(enter_folder, options.out, options.log, started.run, overwrite=options.overwrite)
        )
        async with open_log(url) as log:
            there = await begin(log, started, preamble(plan), options.out if options.log is None else None)
            if there and anew:
                raise ConfigError(f"{url} already holds {started.run}: choose another --out or --log")
            await anyio.to_thread.run_sync(note_run, options.out, options.log, started.run, note)
            yield SetUp(log, *made)


@asynccontextmanager
async def make(plan: Plan, streams: Iterable[str]) -> AsyncIterator[Made]:
    """Make every system's memories of these streams. Raises ConfigError."""
    options, started = plan.options, plan.started
    memories: dict[str, MemorySystem] = {}
    async with (
        open_models(plan.models, plan.cache, offline=options.offline, asked=bool(started.models)) as models,
        gateway_for(plan.systems) as gateway,
        memory_folder(plan.systems, options.out / MEMORIES_NAME) as memory_base,
    ):
        for use, asked in started.models.items():
            # one whose key is missing is said now, and not in the middle
            opened = models.embedder if use.startswith("embedder.") else models.model
            opened(asked.model, role=use)
        responder = responder_for(options, models)
        openers = {
            spec.label: Opener(
                spec,
                started,
                plan.dataset.subjects,
                memory_base,
                models,
                responder,
                gateway,
                options.out / LOGS_NAME,
            )
            for spec in plan.systems
        }
        try:
            for spec in plan.systems:
                for stream in streams:
                    lane = f"{spec.label}@{stream}"
                    memories[lane] = openers[spec.label].open(lane, stream)
            yield Made(openers, memories, models)
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
        if is_load(started):  # never the same as another: what differs tells nothing
            raise ConfigError(
                f"{folder} already holds a run: choose another --out, or pass --overwrite to replace it"
            )
        raise ConfigError(
            f"{folder} already holds a run with {identity_difference(other, started)}: read it with `egostream scores "
            f"{folder}`, choose another --out, or pass --overwrite to replace it"
        )
    topics = Topics.of(started.run)
    await log.create_topics(topics.partitions(started.partitions))
    there = [event.id async for event, _ in read_events(log, started.run, [topics.anchors])]
    recorder = Recorder.for_run(started)
    await log.append([recorder.record(event) for event in first if event.id not in {*there, started.id}])
    # The last, and by itself, since on Kafka each partition is its own write: where it is, all is there that roles
    # read before they begin.
    await log.append([recorder.record(started)])
    return False


class Opener:
    """Makes one system's memories, as the run says. `anchors`: the run's; only a privileged system gets those of its
    stream. `folder`: where the folders of memories lie that need one (see `memory_folder`). `models`: where the system
    finds the models that it declares; `gateway`: where it asks them over HTTP, if it does; `logs`: where its processes'
    logs go. Raises ConfigError for a system that can't be isolated as the run says."""

    def __init__(
        self,
        spec: SystemSpec,
        started: RunStartedEvent,
        anchors: Iterable[Subject],
        folder: Path | None,
        models: ModelSource = NO_MODELS,
        responder: Responder | None = None,
        gateway: Gateway | None = None,
        logs: Path | None = None,
    ) -> None:
        declared = capabilities(spec)
        self._spec = spec
        self._declared = declared
        self._models = models
        self._responder = responder
        self._gateway = gateway if declared.gateway else None
        self._logs = logs
        self._started = started
        self._anchors = tuple(anchors) if declared.privileged else ()
        self.forks = declared.fork == "cheap"
        self._folder = folder if declared.in_folder else None
        means = means_in(spec, started.isolation)
        self.isolating = (
            Isolating(means, self._folder, self.open_at)
            if means and self._folder is not None and not self.forks
            else None
        )

    def open(self, lane: str, stream: str) -> MemorySystem:
        """A new, empty memory. Raises ConfigError."""
        return self.open_at(lane, stream, new_folder(self._folder) if self._folder is not None else None)

    def open_at(self, lane: str, stream: str, directory: Path | None) -> MemorySystem:
        """A memory on what a folder holds. Raises ConfigError."""
        identity = self._started.identity
        context = LaneContext(
            lane=lane,
            stream=stream,
            seed=int(identity["seed"]),
            top_k=int(identity["top_k"]),
            word_budget=int(identity["word_budget"]),
            anchors=tuple(anchor for anchor in self._anchors if anchor.stream == stream),
            directory=directory,
            logs=self._logs,
            responder=self._responder,
            model_of=self._model_of,
            embedder_of=self._embedder_of,
            gateway=self._gateway_of(lane),
            language=prompt_language(identity["language"]),
            ranked=self._started.protocol != "streammembench",
        )
        if identity.get("value") != "session":
            return open_system(self._spec, context)
        texts = SessionTexts()
        return SessionValued(open_system(self._spec, replace(context, sessions=texts)), texts)

    def _model_of(self, name: str) -> Model:
        self._check(name, "model", self._declared.model)
        return self._models.model(name, role=f"memory.{self._spec.label}")

    def _embedder_of(self, name: str) -> Embedder:
        self._check(name, "embedder", self._declared.embedder)
        return self._models.embedder(name, role=f"embedder.{self._spec.label}")

    def _gateway_of(self, lane: str) -> LaneGateway | None:
        if self._gateway is None:
            return None
        model, embedder = self._declared.model, self._declared.embedder
        return self._gateway.lane(
            lane,
            model=self._model_of(model) if model else None,
            embedder=self._embedder_of(embedder) if embedder else None,
            seed=int(self._started.identity["seed"]),
            names=(*([model] if model else []), embedder or BUNDLED),
        )

    def _check(self, name: str, kind: str, declared: str) -> None:
        if name != declared:
            raise ConfigError(
                f"{self._spec.label} asks the {kind} {name!r}, and its Capabilities.{kind} declares "
                f"{declared or 'none'}: what a run asks is part of its identity"
            )


@asynccontextmanager
async def memory_folder(systems: Iterable[SystemSpec], base: Path) -> AsyncIterator[Path | None]:
    """A folder in `base` for the memories of these systems, deleted at the end; None where none needs one. Raises
    ConfigError."""
    if not any(capabilities(spec).in_folder for spec in systems):
        yield None
        return
    async with scratch_folder(base) as folder:
        yield folder


def longest_ingest_s(started: RunStartedEvent, call_timeout_s: float) -> float:
    """How long an agent of ours may take for a delta, by the deadlines of the calls that it waits for."""
    # a copy and its flush twice, the wait for them, and the ingest itself
    return call_timeout_s * (7 if "copy" in started.means.values() else 1)


def longest_answer_s(started: RunStartedEvent, call_timeout_s: float = 600.0) -> float:
    """How long an agent of ours may take for an answer, by the deadlines of the calls that it waits for."""
    longest_s = longest_ingest_s(started, call_timeout_s)
    if "replay" not in started.means.values():
        return longest_s
    return max(
        longest_s, call_timeout_s * (2 + max(started.segments.values()))
    )  # each ingested, and the load


def longest_silence_s(started: RunStartedEvent, call_timeout_s: float = 600.0) -> float:
    """After how long a silence of a role that owes something is an error: long after every call's own deadline."""
    attached_s = started.answer_timeout_s if started.attached else 0.0
    return max(longest_answer_s(started, call_timeout_s), attached_s) + 1200


async def run_replayer(log: Log, plan: Plan, clock: Clock) -> None:
    """The replayer's role, obeying the control topic."""
    options, started = plan.options, plan.started
    move_s = options.stall_timeout_s or longest_ingest_s(started, options.call_timeout_s) + 300
    replay_options = ReplayOptions(
        policy=options.policy,
        required=started.required,
        lanes={stream: [f"{label}@{stream}" for label in started.systems] for stream in started.streams},
        isolation=started.isolation,
        max_ahead=started.limits.segments_ahead,
        max_unreleased=started.limits.unreleased_segments,
        stall_timeout_s=move_s,
        ready_timeout_s=max(
            move_s, ReplayOptions().ready_timeout_s
        ),  # a memory may load for as long as a call may take
        # a load ends by its own deadline, which runs from the last that was due
        attached=frozenset(
            f"{label}@{stream}"
            for label in started.attached
            for stream in started.streams
            if not is_load(started)
        ),
        lane_timeout_s=started.answer_timeout_s,
    )
    lifelogs = list(plan.dataset.lifelogs.values())
    async with anyio.create_task_group() as tasks:
        await tasks.start(obey_control, log, started, clock, wall_us(plan.asked_us))
        stats = await replay(log, Recorder.for_run(started), lifelogs, clock, replay_options)
        limits = started.limits
        behind = (
            stats.max_lag_segments >= limits.segments_ahead
            or stats.max_unreleased_segments >= limits.unreleased_segments
        )
        # with policy `run` nothing waited for lanes that were further behind than the limits say
        (_log.warning if behind and options.policy == "run" else _log.info)(
            "replayed",
            policy=options.policy,
            held_s=round(stats.held_s, 3),
            max_lag_segments=stats.max_lag_segments,
            max_unreleased_segments=stats.max_unreleased_segments,
        )
        tasks.cancel_scope.cancel()


async def run_roles(ready: SetUp, plan: Plan, show: Callable[[Progress], None] | None) -> None:
    """Start every role and wait until all have ended. Each agent takes its lanes out of `ready.memories`. Raises what
    ended a role."""
    options, started = plan.options, plan.started
    log, openers, memories, models = ready
    panel = panel_of(options, models)
    calls = CallLimit(started.limits.calls_in_flight)
    async with anyio.create_task_group() as roles:
        for spec in plan.systems:
            agent = partial(
                run_agent,
                open_memory=partial(_take_memory, memories, openers[spec.label]),
                isolating=openers[spec.label].isolating,
                calls=calls,
                call_timeout_s=options.call_timeout_s,
                forks=openers[spec.label].forks,
            )
            roles.start_soon(agent, log, started, spec.label, name=agent_role(spec.label))
        if JUDGE_ROLE in started.required:  # a load has nothing to judge
            roles.start_soon(partial(run_judges, calls=calls), log, started, panel, name=JUDGE_ROLE)
        clock = Clock(started.event_time_us, options.rate)
        roles.start_soon(run_replayer, log, plan, clock, name="replayer")
        if show is not None:
            roles.start_soon(monitor, log, started, show, name="monitor")
        stall_timeout_s = options.stall_timeout_s or longest_silence_s(started, options.call_timeout_s)
        roles.start_soon(watch, log, started, stall_timeout_s, name="watchdog")
        await conduct(log, started, stall_timeout_s=stall_timeout_s)


def _take_memory(memories: dict[str, MemorySystem], opener: Opener, lane: str, stream: str) -> MemorySystem:
    """The lane's memory made before the run began; a new one where the lane had gone to another process."""
    return memories.pop(lane, None) or opener.open(lane, stream)


def preamble(plan: Plan) -> list[Event]:
    """The first events of a run: its anchors or probes, what the reader counted, and `run_started`."""
    started, report = plan.started, plan.dataset.report
    counted = DatasetReportEvent(
        id="dataset/report",
        run=started.run,
        event_time_us=started.event_time_us,
        counts=dict(report.counts),
        oddities=dict(report.oddities),
    )
    known: tuple[Event, ...] = (*plan.dataset.outlines, *plan.dataset.subjects)
    return [*(replace(event, run=started.run) for event in known), counted, started]
