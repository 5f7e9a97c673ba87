"""What a run is, worked out before anything begins: options, systems, dataset, identity."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from adapters.registry import SystemSpec, capabilities, parse_spec
from judges.deterministic import official_judges
from judges.panel import JudgePanel
from producers.datasets import read_dataset
from producers.lifelog import Dataset, Lifelog
from simulator.errors import ConfigError
from simulator.events import Isolation, Metric, RunStartedEvent
from simulator.topics import wall_us
from simulator.waits import CONDUCTOR_ROLE, JUDGE_ROLE, agent_role

MAX_PARTITIONS = 4


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is asked for. `rate`: simulated seconds per real second; `max_ahead`: how many segments the
    replayer may be ahead of the slowest lane; `segments`: only so many first segments of each stream;
    `call_timeout_s`: after this long, an ingest, answer or commit has failed; `stall_timeout_s`: after this long
    without anything of a role that owes something, the run has.

    `log`: where the events go, `kafka://host:port` or a file; None means a file in `out`. `attached`: labels of
    systems whose agents run elsewhere and attach to the log; `answer_timeout_s`: how long such an agent may take for
    an answer, a commit or a delta.
    """

    data: str
    systems: tuple[str, ...]
    out: Path
    log: str | None = None
    attached: tuple[str, ...] = ()
    answer_timeout_s: float = 600.0
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
    max_ahead: int = 128
    calls_in_flight: int = 64
    call_timeout_s: float = 600.0
    overwrite: bool = False
    stall_timeout_s: float | None = None

    @property
    def stall_limit_s(self) -> float:
        """After how long a silence of a role that owes something is an error: as asked, or long after every call's
        own deadline."""
        if self.stall_timeout_s is not None:
            return self.stall_timeout_s
        return max(self.call_timeout_s, self.answer_timeout_s if self.attached else 0.0) + 1200


class Plan(msgspec.Struct, frozen=True):
    """A run worked out and not begun: all input errors have been raised by now."""

    options: RunOptions
    dataset: Dataset
    systems: tuple[SystemSpec, ...]
    started: RunStartedEvent
    asked_us: int
    """Wall time at which the run was asked for."""


def plan_run(options: RunOptions, progress: Callable[[int, int], None] | None = None) -> Plan:
    """Check the options and read the dataset. Blocking. Raises ConfigError and DatasetError."""
    asked_us = wall_us()
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
        "systems": " ".join((*options.systems, *options.attached)),
        "isolation": options.isolation,
        "ablate_commit": str(options.ablate_commit),
        "seed": str(options.seed),
        "top_k": str(options.top_k),
        "word_budget": str(options.word_budget),
        **panel.describe(),
    }
    digest = hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()
    labels = (*(spec.label for spec in systems), *options.attached)
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
        attached=options.attached,
        answer_timeout_s=options.answer_timeout_s,
        required=(*(agent_role(label) for label in labels), JUDGE_ROLE, CONDUCTOR_ROLE),
    )
    return Plan(options, dataset, systems, started, asked_us)


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


def _systems(options: RunOptions) -> tuple[SystemSpec, ...]:
    if not options.systems and not options.attached:
        raise ConfigError("no system: name at least one with --system (see `egostream systems`)")
    specs = tuple(parse_spec(text) for text in options.systems)
    for label in options.attached:
        if not label or any(c in "@/:=," or c.isspace() for c in label):
            raise ConfigError(
                f"{label!r} can't be an attached system's label: letters, digits, '-', '_' and '.'"
            )
    labels = [*(spec.label for spec in specs), *options.attached]
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
