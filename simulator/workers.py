"""Roles as processes of their own: each opens the shared log, waits for its run and plays its part."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from adapters.endpoints import default_cache, read_models
from adapters.prompt import prompt_language
from adapters.registry import SystemSpec, capabilities, parse_spec
from consumers.agent import run_agent
from consumers.judging import run_judges
from consumers.monitor import Progress, monitor
from consumers.scores import Scores
from consumers.watchdog import watch
from producers.conduct import conduct
from simulator.clock import Clock
from simulator.errors import ConfigError, StallError
from simulator.events import RunEndedEvent, RunStartedEvent
from simulator.intake import read_subjects
from simulator.log import open_log
from simulator.log.protocol import Log
from simulator.models import (
    DEFAULT_MODELS,
    OFFICIAL,
    ModelOptions,
    gateway_for,
    open_models,
    responder_of,
    system_identity,
)
from simulator.plan import Plan, by_model, is_load, means_of, noted, panel_of_run
from simulator.results import read_results, write_results
from simulator.run import Opener, begin, longest_silence_s, memory_folder, preamble, run_replayer
from simulator.runfolder import LOGS_NAME, enter_folder, find_run, note_run, runs_of
from simulator.scratch import user_base
from simulator.waits import CONDUCTOR_ROLE, agent_role

_log = structlog.get_logger(__name__)

ANY_RUN = "any"
_LOOK_S = 0.5


async def replayer_worker(plan: Plan, show: Callable[[Progress], None] | None = None) -> None:
    """Set a run up in its log and replay. Raises ConfigError, LogError and StallError as a run does."""
    options, started = plan.options, plan.started
    url = await anyio.to_thread.run_sync(
        partial(enter_folder, options.out, options.log, started.run, overwrite=options.overwrite)
    )
    async with open_log(url) as log:
        await begin(log, started, preamble(plan))
        await anyio.to_thread.run_sync(note_run, options.out, options.log, started.run, noted(options))
        async with anyio.create_task_group() as tasks:
            if show is not None:
                tasks.start_soon(monitor, log, started, show)
            await run_replayer(log, plan, Clock(started.event_time_us, options.rate))
            tasks.cancel_scope.cancel()


async def agent_worker(
    url: str,
    run: str,
    spec: SystemSpec,
    *,
    wait_s: float = 60.0,
    attached: bool = False,
    call_timeout_s: float = 600.0,
    models: ModelOptions = DEFAULT_MODELS,
    answers: str | None = None,
    process: str = "",
    out: Path | None = None,
) -> None:
    """Drive one of the run's systems. Only a privileged one reads the anchors. `answers`: the model that answers in
    this run. `process`: its name in a load's report. `out`: the folder in whose `logs` a system's processes leave what
    they say; else it is among their memories. Raises ConfigError where the run has no such system, or asks other
    models."""
    async with run_on(url, run, wait_s) as (log, started):
        ours = tuple(label for label in started.systems if label not in started.attached)
        theirs = started.attached if attached else ours
        if spec.label not in theirs:
            known = ", ".join(theirs) or "none"
            kind = "attached systems" if attached else "systems"
            raise ConfigError(f"{spec.label} is not among the {kind} of {started.run}: {known}")
        declared = capabilities(spec)
        asked = bool(answers) or declared.asks
        settings = await anyio.to_thread.run_sync(read_models, models.models) if asked else {}
        language = prompt_language(started.identity["language"])
        if not attached:
            _check_same(spec, started)
            asks = system_identity(settings, [spec], language)
            for use in (f"{use}.{spec.label}" for use in ("memory", "embedder", "implementation")):
                _check_identity(started, use, asks.get(use))
        anchors = await read_subjects(log, started.run) if declared.privileged else []
        # without a cache in a load: how fast it answers is no measure of a memory
        cache = None if is_load(started) else models.cache or default_cache()
        name = process or f"{agent_role(spec.label)}.{os.getpid()}.{secrets.token_hex(2)}"
        async with (
            open_models(settings, cache, offline=models.offline, asked=asked) as source,
            gateway_for([spec]) as gateway,
            memory_folder([spec], user_base()) as folder,
            metered(log, started, name),
        ):
            responder = responder_of(
                answers,
                source,
                token_budget=int(started.identity.get("answer_tokens", "0")),
                seed=int(started.identity["seed"]),
                language=language,
            )
            if not attached and declared.answers == "run":
                _check_identity(started, "answers", responder.name if responder else None)
            opener = Opener(
                spec, started, anchors, folder, source, responder, gateway, out and out / LOGS_NAME
            )
            await run_agent(
                log,
                started,
                spec.label,
                opener.open,
                isolating=opener.isolating,
                call_timeout_s=call_timeout_s,
                process=process,
                forks=opener.forks,
            )


@asynccontextmanager
async def metered(
    log: Log, started: RunStartedEvent, process: str, *, children: bool = True
) -> AsyncIterator[None]:
    """In a load: say meanwhile what this process uses, if it can be measured here. `children`: whether it may have
    any; to look for them goes through all processes of the machine."""
    if not is_load(started):
        yield
        return
    try:
        from consumers.process_meter import meter_process
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psutil":
            raise
        _log.warning(
            "not_metered", process=process, reason="no psutil here: pip install 'egostream[load]' brings it"
        )
        yield
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(meter_process, children=children), log, started, process)
        yield
        tasks.cancel_scope.cancel()


def _check_same(spec: SystemSpec, started: RunStartedEvent) -> None:
    """This version's system is the one that the run announced under that label. Raises ConfigError."""
    texts = [text for text in started.identity["systems"].split() if text not in started.attached]
    announced = {found.label: found for found in map(parse_spec, texts)}
    if spec != announced[spec.label]:
        raise ConfigError(
            f"{started.run} has {_text(announced[spec.label])} under the label {spec.label}, not {_text(spec)}"
        )
    announced_means = started.means.get(spec.label, "fork")
    if started.isolation == "branch" and announced_means != means_of(spec):
        raise ConfigError(
            f"{started.run} isolates {spec.label} by {announced_means}, it declares {means_of(spec)}"
        )
    if started.identity["code"] != version("egostream"):
        raise ConfigError(
            f"{started.run} runs on egostream {started.identity['code']}, this is {version('egostream')}"
        )


def _check_identity(started: RunStartedEvent, field: str, here: str | None) -> None:
    """A field of the run's identity is what this process would make it. Raises ConfigError."""
    announced = started.identity.get(field)
    if announced != here:
        raise ConfigError(
            f"{started.run} has {field} {announced or 'none'!r}, this process {here or 'none'!r}"
        )


def _text(spec: SystemSpec) -> str:
    return ":".join(
        [spec.name, *([",".join(f"{k}={v}" for k, v in spec.options.items())] if spec.options else [])]
    )


async def judge_worker(
    url: str,
    run: str,
    *,
    wait_s: float = 60.0,
    judges: Sequence[str] = (OFFICIAL,),
    votes: int = 3,
    models: ModelOptions = DEFAULT_MODELS,
) -> None:
    """Judge. Raises ConfigError where the run was announced with other judges than these."""
    async with run_on(url, run, wait_s) as (log, started):
        asked = by_model(judges)
        settings = await anyio.to_thread.run_sync(read_models, models.models) if asked else {}
        async with open_models(
            settings, models.cache or default_cache(), offline=models.offline, asked=asked
        ) as source:
            panel = panel_of_run(started, source, judges=judges, votes=votes)
            here = panel.describe()
            there = {field for field in started.identity if field.startswith("judge.")}
            for field in sorted(there | here.keys()):
                _check_identity(started, field, here.get(field))
            await run_judges(log, started, panel)


async def conductor_worker(
    url: str,
    run: str,
    *,
    wait_s: float = 60.0,
    stall_timeout_s: float | None = None,
    call_timeout_s: float = 600.0,
) -> RunEndedEvent:
    """Conduct, and watch the others. `stall_timeout_s`: how long a role may be silent that owes something, the replayer
    included; without it, the replayer may, since its clock is its own, and the others as in a run of one process."""
    async with run_on(url, run, wait_s) as (log, started):
        limit_s = stall_timeout_s or longest_silence_s(started, call_timeout_s)
        async with metered(log, started, CONDUCTOR_ROLE, children=False), anyio.create_task_group() as tasks:
            tasks.start_soon(partial(watch, log, started, limit_s, replayer=stall_timeout_s is not None))
            ended = await conduct(log, started, stall_timeout_s=limit_s)
            tasks.cancel_scope.cancel()
    return ended


async def scoreboard_worker(
    url: str,
    run: str,
    show: Callable[[RunStartedEvent], Callable[[Progress], None]],
    *,
    wait_s: float = 60.0,
    out: Path | None = None,
) -> Scores:
    """Wait until the run has ended and fold its scores. `out`: a folder for its verdicts, noting where the log is."""
    async with run_on(url, run, wait_s) as (log, started):
        await monitor(log, started, show(started))
        if out is not None:
            await anyio.to_thread.run_sync(partial(enter_folder, out, url, started.run, overwrite=False))
            await anyio.to_thread.run_sync(note_run, out, url, started.run)
        results = await read_results(log, started, out)
        if out is not None:
            await anyio.to_thread.run_sync(write_results, out, results)
        return results.scores


@asynccontextmanager
async def run_on(url: str, run: str, wait_s: float) -> AsyncIterator[tuple[Log, RunStartedEvent]]:
    """Open a shared log and wait for a run to begin there. Raises StallError when it does not in time, ConfigError
    when `any` could mean several, LogError where a run is named whose topics this user may not read."""
    async with open_log(url) as log:
        deadline_s = anyio.current_time() + wait_s
        while True:
            if run == ANY_RUN and len(owners := await runs_of(log)) > 1:
                raise ConfigError(f"{url} holds several runs: name one with --run: {', '.join(owners)}")
            started = await find_run(log, None if run == ANY_RUN else run)
            if started is not None:
                break
            if anyio.current_time() > deadline_s:
                named, hint = f"{run} ", ""
                if run == ANY_RUN:
                    named = ""
                    # A broker does not tell hidden topics from none, save by name
                    hint = "; a run that this user may not read is not seen: name it with --run"
                raise StallError(
                    f"no run {named}began on {url} within {wait_s:g} s{hint if '://' in url else ''}"
                )
            await anyio.sleep(_LOOK_S)
        yield log, started
