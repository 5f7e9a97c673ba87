"""Running again what an outage spoilt, what stayed unjudged and what ran on a memory that lacks a segment: a run of
its own, beside the first, of just those trajectories.

A retry replays what they need into memories made anew, in `RUN/retry-1`, `RUN/retry-2` and so on. The run's own log
stays as it is. A trajectory that was retried counts as its newest attempt left it, wholly: marks of two attempts
are never mixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from consumers.monitor import Progress
from consumers.scores import Row, Scores
from simulator.errors import ConfigError
from simulator.events import RunStartedEvent
from simulator.log.protocol import Log
from simulator.marks import IDENTITY_FIELD, marks_in
from simulator.plan import Plan, announce, first_segments, identity_difference, options_of, plan_run
from simulator.results import Results, read_results, write_results
from simulator.run import execute
from simulator.runfolder import NOTE_NAME, RETRY_NAME, read_note


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may have moved since the run: where the dataset, the models' configuration and the cache are now, unless
    where they were. `offline`: as in `simulator.plan.RunOptions`."""

    data: str | None = None
    models: Path | None = None
    cache: Path | None = None
    offline: bool = False


def spoilt_rows(scores: Scores) -> list[Row]:
    """The trajectories that lack a judged metric, or whose memory lacks a segment: a judgment of one of these may be
    another without the outage."""
    return [
        row
        for row in scores.rows
        if row.missed or any(mark.outcome == "unjudged" for mark in row.marks.values())
    ]


def plan_retry(
    folder: Path,
    results: Results,
    now: RetryOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Plan | None:
    """The run of what an outage spoilt; None where nothing did. Blocking. Raises ConfigError where the run can't be
    retried, and says why."""
    base, rows = results.started, spoilt_rows(results.scores)
    if not results.scores.ended:
        raise ConfigError(f"{folder} has not ended: go on with it first, by the command that began it")
    if not rows:
        return None
    if base.isolation == "shared":
        raise ConfigError(
            f"{folder} ran with isolation shared, where a trajectory depends on all before it: run it anew"
        )
    if base.only:
        raise ConfigError(f"{folder} is a retry itself: retry the run that it belongs to, {folder.parent}")
    note = read_note(folder / NOTE_NAME) if (folder / NOTE_NAME).is_file() else None
    if note is None or not note.options:
        raise ConfigError(
            f"{folder} has no {NOTE_NAME} that says how the run was begun: retry the folder that `egostream run` made"
        )
    number = len(results.folders) + 1
    log = note.log if "://" in note.log else None
    options = options_of(note.options, folder / RETRY_NAME.format(number), log)
    moved = {name: value for name, value in msgspec.structs.asdict(now).items() if value}
    options = replace(options, **moved)
    plan = plan_run(options, progress)
    if plan.started.identity != base.identity:
        raise ConfigError(
            f"{options.data} and this version would make another run than that in {folder}: "
            f"{identity_difference(base, plan.started)}"
        )
    return _only(plan, rows, {"retry_of": base.run, "attempt": str(number + 1)})


def _only(plan: Plan, rows: Sequence[Row], identity: dict[str, str]) -> Plan:
    """The plan cut to what some trajectories need: their systems, streams, anchors, and the segments up to the last
    of them."""
    options, dataset = plan.options, plan.dataset
    labels = {row.system for row in rows}
    streams = {row.stream for row in rows}
    anchors = {row.anchor for row in rows}
    dataset = replace(
        dataset,
        lifelogs={name: lifelog for name, lifelog in dataset.lifelogs.items() if name in streams},
        anchors=[anchor for anchor in dataset.anchors if anchor.anchor in anchors],
        probes=[probe for probe in dataset.probes if probe.anchor in anchors],
        outlines=[outline for outline in dataset.outlines if outline.stream in streams],
    )
    dataset = first_segments(dataset, max(row.segment for row in rows) + 1)
    systems = tuple(spec for spec in plan.systems if spec.label in labels)
    options = replace(
        options,
        attached=tuple(label for label in options.attached if label in labels),
        rate=math.inf,
        policy="hold",
    )
    only = tuple(row.trajectory for row in rows)
    identity = {**plan.started.identity, **identity, "only": " ".join(only)}
    if options.canaries:  # those that lie in what is left
        texts = (seen.text for lifelog in dataset.lifelogs.values() for seen in lifelog.observations)
        identity[IDENTITY_FIELD] = str(sum(len(marks_in(text)) for text in texts))
    started = replace(
        announce(options, dataset, systems, identity, only),
        models=plan.started.models,
        answered_apart=plan.started.answered_apart,
    )
    return Plan(options, dataset, systems, started, plan.asked_us, plan.models, plan.cache)


async def run_retry(
    folder: Path,
    log: Log,
    plan: Plan,
    started: RunStartedEvent,
    show: Callable[[Progress], None] | None = None,
) -> Scores:
    """Execute a retry's plan and write the run's results anew with what came of it; gives the run's scores. Cut
    short, `egostream retry` goes on with it."""
    await execute(plan, show)
    results = await read_results(log, started, folder)
    await anyio.to_thread.run_sync(write_results, folder, results)
    return results.scores
