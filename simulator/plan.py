"""What a run is, worked out before anything begins: options, systems, dataset, identity."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from adapters.answering import ModelResponder
from adapters.endpoints import ModelSettings, default_cache, read_models
from adapters.endpoints.settings import DEFAULT_FILE
from adapters.memory import Fork
from adapters.prompt import PromptLanguage, prompt_language
from adapters.registry import SystemSpec, capabilities, parse_spec
from adapters.registry import options_of as options_of_system
from judges.panel import JudgePanel
from producers.benchmarks import Asked, cut_outline, first_of, metrics_by, read_benchmark
from producers.canaries import plant_canaries
from producers.datasets import read_dataset
from producers.lifelog import Dataset
from simulator.errors import ConfigError
from simulator.events import Benchmark, Isolation, Limits, Means, Metric, RunStartedEvent, identity_digest
from simulator.marks import IDENTITY_FIELD
from simulator.models import (
    OFFICIAL,
    ModelSource,
    answered_apart,
    judge_panel,
    named,
    probe_panel,
    responder_of,
    system_identity,
    uses_of,
)
from simulator.timebase import monotonic_us
from simulator.waits import CONDUCTOR_ROLE, JUDGE_ROLE, agent_role

MAX_PARTITIONS = 4
_MEANS: Final[Mapping[Fork, Means | None]] = {
    "cheap": "fork",
    "copy": "copy",
    "replay": "replay",
    "none": None,
}


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is asked for. `rate`: simulated seconds per real second; `limits`: what may be under way at
    once; no part of the run's identity; `segments`: only so many first segments of each stream;
    `call_timeout_s`: after this long, an ingest, answer or commit has failed; `stall_timeout_s`: after this long
    without anything of a role that owes something, the run has.

    `log`: where the events go, `kafka://host:port` or a file; None means a file in `out`. `attached`: labels of
    systems whose agents run elsewhere and attach to the log; `answer_timeout_s`: how long such an agent may take for
    an answer, a commit or a delta. `canaries`: how many marks are planted in observations, for the audit to find.

    `benchmark`: what `data` holds, and how it is asked; `asked`: when LifeDialBench asks. `value`: what answers are
    made from, the records that a memory found or the whole segments in which these lie.

    `models`: the file that configures models; `cache`: where their answers are kept, None for the person's own cache;
    `offline`: they are answered from there alone. `judges`: `official`, or models by name; several judge every case
    together, each by the majority of its `votes`. `answers`: the model that answers for memory systems, from records of
    `answer_tokens` together; None means extraction.
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
    limits: Limits = Limits()
    benchmark: Benchmark = "streammembench"
    asked: Asked = "online"
    value: Literal["memory", "session"] = "memory"
    call_timeout_s: float = 600.0
    overwrite: bool = False
    canaries: int = 0
    stall_timeout_s: float | None = None
    models: Path | None = None
    cache: Path | None = None
    offline: bool = False
    judges: tuple[str, ...] = (OFFICIAL,)
    votes: int = 3
    answers: str | None = None
    answer_tokens: int = 2000


_OF_THE_DAY = ("out", "log", "overwrite", "rate", "policy", "stall_timeout_s", "offline")
"""Options that say where and how fast, not what."""


def noted(options: RunOptions) -> dict[str, Any]:
    """What a run's folder notes of its options, so that unjudged trajectories can be run again."""
    data = options.data if options.data.startswith("synthetic:") else str(Path(options.data).absolute())
    plain = msgspec.structs.asdict(replace(options, data=data))
    plain |= {name: str(plain[name].absolute()) for name in ("models", "cache") if plain[name] is not None}
    return {name: value for name, value in plain.items() if name not in _OF_THE_DAY}


def options_of(note: dict[str, Any], out: Path, log: str | None) -> RunOptions:
    """The options that a folder noted. Raises ConfigError where they can't be read."""
    try:
        return msgspec.convert(
            {**note, "out": out, "log": log}, RunOptions, dec_hook=lambda kind, value: kind(value)
        )  # the hook makes paths
    except msgspec.ValidationError as error:
        raise ConfigError(f"{out.parent}: the options noted there can't be read: {error}") from error


class Plan(msgspec.Struct, frozen=True):
    """A run worked out and not begun: all input errors have been raised by now."""

    options: RunOptions
    dataset: Dataset
    systems: tuple[SystemSpec, ...]
    started: RunStartedEvent
    asked_us: int
    """When the run was asked for, by `timebase.monotonic_us`: the run's clock is known only once its log was read."""
    models: dict[str, ModelSettings] = {}
    """Those that are configured, by name."""
    cache: Path | None = None
    """Where their answers are kept; None keeps none."""


def plan_run(options: RunOptions, progress: Callable[[int, int], None] | None = None) -> Plan:
    """Check the options and read the dataset. Blocking. Raises ConfigError and DatasetError."""
    asked_us = monotonic_us()
    systems = _systems(options)
    settings: dict[str, ModelSettings] = {}
    if asks_models(options, systems):
        # else a file with a fault would be in the way of runs that don't need it
        options = replace(options, models=options.models or default_models())
        settings = read_models(options.models)
    language = prompt_language(options.language)
    numbers = {
        "top_k": options.top_k,
        "word_budget": options.word_budget,
        "votes": options.votes,
        "answer_tokens": options.answer_tokens,
    }
    for name, value in (numbers | msgspec.structs.asdict(options.limits)).items():
        if value < 1:
            raise ConfigError(f"{name} is {value}: it must be at least 1")
    dataset = _dataset(options, progress)
    if not any(lifelog.segments for lifelog in dataset.lifelogs.values()):
        raise ConfigError(f"{options.data} holds no segment to replay")
    if options.canaries:
        dataset = replace(dataset, lifelogs=plant_canaries(dataset.lifelogs, options.canaries, options.seed))
    panel = panel_of(options, named(settings))
    responder = responder_for(options, named(settings))
    identity = {
        "code": version("egostream"),
        "protocol": options.benchmark,
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
        **system_identity(settings, systems, language),
    }
    if responder is not None:
        identity |= {"answers": responder.name, "answer_tokens": str(options.answer_tokens)}
    if options.benchmark == "lifedialbench":
        identity["asked"] = options.asked
    if options.value != "memory":
        identity["value"] = options.value
    if options.canaries:  # what was replayed is no longer the dataset as it was read
        identity[IDENTITY_FIELD] = str(options.canaries)
    means = unforked(systems, options.isolation)
    if means:  # a branch that was made in another way may be another memory, of a system that isn't the same each time
        identity["means"] = " ".join(f"{label}={kind}" for label, kind in means.items())
    started = replace(
        announce(options, dataset, systems, identity),
        models=uses_of(settings, systems, options.judges, options.answers),
        answered_apart=answered_apart(systems, options.attached, responder),
    )
    cache = options.cache or default_cache()
    return Plan(options, dataset, systems, started, asked_us, settings, cache)


def asks_models(options: RunOptions, systems: Iterable[SystemSpec]) -> bool:
    """Whether a run asks any model."""
    own = any(capabilities(spec).asks for spec in systems)
    return own or options.answers is not None or judged_by_model(options)


def at_each_top_k(systems: Iterable[str], top_ks: Sequence[int]) -> tuple[str, ...]:
    """Each system once for every k, as `LABEL.kK`; as it is where it has no option `top_k`, or is given one. Raises
    ConfigError."""
    swept: list[str] = []
    for text in systems:
        spec = parse_spec(text)
        if "top_k" in spec.options or "top_k" not in options_of_system(spec):
            swept.append(text)
            continue
        rest = text.removeprefix(f"{spec.label}=")
        label = re.sub(r"[^\w.-]+", "_", spec.label)
        joint = "," if spec.options else ":"
        swept += [f"{label}.k{k}={rest}{joint}top_k={k}" for k in top_ks]
    return tuple(swept)


def judged_by_model(options: RunOptions) -> bool:
    """Whether a model judges."""
    return by_model(options.judges)


def by_model(judges: Iterable[str]) -> bool:
    """Whether one of these judges is a model."""
    return any(name != OFFICIAL for name in judges)


def default_models() -> Path | None:
    """`models.toml` in the current folder, by a path that holds from anywhere."""
    return DEFAULT_FILE.absolute() if DEFAULT_FILE.exists() else None


def panel_of(options: RunOptions, source: ModelSource) -> JudgePanel[Any]:
    """The judges that a run is asked for. Raises ConfigError."""
    return panel_for(
        options.benchmark,
        options.asked,
        source,
        judges=options.judges,
        ablate_commit=options.ablate_commit,
        votes=options.votes,
        language=prompt_language(options.language),
    )


def panel_of_run(
    started: RunStartedEvent, source: ModelSource, *, judges: Sequence[str], votes: int
) -> JudgePanel[Any]:
    """The same for a run that has begun, by judges that may not be its own. Raises ConfigError."""
    identity = started.identity
    return panel_for(
        started.protocol,
        msgspec.convert(identity.get("asked", "online"), Asked),
        source,
        judges=judges,
        ablate_commit=started.ablate_commit,
        votes=votes,
        language=prompt_language(identity["language"]),
    )


def panel_for(
    benchmark: Benchmark,
    asked: Asked,
    source: ModelSource,
    *,
    judges: Sequence[str],
    ablate_commit: bool,
    votes: int,
    language: PromptLanguage,
) -> JudgePanel[Any]:
    """The judges named, of all metrics that a benchmark asks for. Raises ConfigError."""
    if benchmark == "streammembench":
        return judge_panel(judges, metrics_of(ablate_commit), source, votes=votes, language=language)
    metrics = metrics_by(benchmark, asked, by_model=by_model(judges))
    return probe_panel(judges, metrics, source, votes=votes, language=language)


def responder_for(options: RunOptions, source: ModelSource) -> ModelResponder | None:
    """What a run is asked to answer by. Raises ConfigError."""
    return responder_of(
        options.answers,
        source,
        token_budget=options.answer_tokens,
        seed=options.seed,
        language=prompt_language(options.language),
    )


def announce(
    options: RunOptions,
    dataset: Dataset,
    systems: Sequence[SystemSpec],
    identity: dict[str, str],
    only: tuple[str, ...] = (),
) -> RunStartedEvent:
    """A run's first event. `only`: the trajectories that are run, where those are not all."""
    labels = (*(spec.label for spec in systems), *options.attached)
    privileged = tuple(spec.label for spec in systems if capabilities(spec).privileged)
    return RunStartedEvent(
        id="run/started",
        run=f"run-{identity_digest(identity)[:12]}",
        event_time_us=min(log.segments[0].start_time_us for log in dataset.lifelogs.values() if log.segments),
        identity=identity,
        streams=tuple(dataset.lifelogs),
        segments={name: len(lifelog.segments) for name, lifelog in dataset.lifelogs.items()},
        systems=labels,
        privileged=privileged,
        anchors=len(dataset.subjects),
        protocol=options.benchmark,
        partitions=min(len(dataset.lifelogs), MAX_PARTITIONS),
        isolation=options.isolation,
        means=unforked(systems, options.isolation),
        ablate_commit=options.ablate_commit,
        attached=options.attached,
        answer_timeout_s=options.answer_timeout_s,
        limits=options.limits,
        required=(*(agent_role(label) for label in labels), JUDGE_ROLE, CONDUCTOR_ROLE),
        only=only,
    )


def is_load(started: RunStartedEvent) -> bool:
    """Whether a run is a load, in which time waits for nobody and processes say what they use."""
    return "load" in started.identity


def identity_difference(there: RunStartedEvent, asked: RunStartedEvent) -> str:
    """The fields in which the identity of a run that is there differs from that of the one asked for."""
    names = sorted(there.identity.keys() | asked.identity.keys())
    fields = [
        f"{name} {there.identity.get(name, 'none')!r} (not {asked.identity.get(name, 'none')!r})"
        for name in names
        if there.identity.get(name) != asked.identity.get(name)
    ]
    return ", ".join(fields) or "another make-up"


def unforked(systems: Iterable[SystemSpec], isolation: Isolation) -> dict[str, Means]:
    """Label → how it gets its branches, for those that don't fork. Raises ConfigError where one can't."""
    branched = {spec.label: means_in(spec, isolation) for spec in systems}
    return {label: kind for label, kind in branched.items() if kind and kind != "fork"}


def means_of(spec: SystemSpec) -> Means | None:
    """How a system can get its branches; None where it can't."""
    return _MEANS[capabilities(spec).fork]


def means_in(spec: SystemSpec, isolation: Isolation) -> Means | None:
    """How a system gets its branches; None in isolation `shared`. Raises ConfigError where it can't."""
    if isolation == "shared":
        return None
    means = means_of(spec)
    if means is None:
        raise ConfigError(
            f"{spec.label} can't branch its memory (it declares fork=none): run it with --isolation shared"
        )
    return means


def metrics_of(ablate_commit: bool) -> tuple[Metric, ...]:
    """The metrics that a run needs judges for."""
    return (
        ("fidelity", "ieu", "fi", "fur", "fur_uncommitted")
        if ablate_commit
        else ("fidelity", "ieu", "fi", "fur")
    )


def first_segments(dataset: Dataset, count: int | None) -> Dataset:
    """The dataset cut to the first `count` segments of each stream, with the anchors and probes that lie in them."""
    if count is None:
        return dataset
    if count < 1:
        raise ConfigError(f"segments is {count}: it must be at least 1")
    lifelogs = {name: first_of(lifelog, count) for name, lifelog in dataset.lifelogs.items()}
    anchors = [anchor for anchor in dataset.anchors if anchor.segment < count]
    probes = [probe for probe in dataset.probes if probe.segment < count]
    outlines = [cut_outline(outline, count) for outline in dataset.outlines]
    return replace(dataset, lifelogs=lifelogs, anchors=anchors, probes=probes, outlines=outlines)


def _dataset(options: RunOptions, progress: Callable[[int, int], None] | None) -> Dataset:
    if options.benchmark != "streammembench":
        if options.ablate_commit:
            raise ConfigError(f"{options.benchmark} commits nothing: there is nothing to ablate")
        if options.asked != "online" and options.benchmark != "lifedialbench":
            raise ConfigError(
                f"{options.benchmark} asks when its probes are due: --asked is for lifedialbench"
            )
        return read_benchmark(
            options.benchmark,
            options.data,
            asked=options.asked,
            by_model=judged_by_model(options),
            streams=options.streams,
            segments=options.segments,
            language=options.language,
            progress=progress,
        )
    if options.asked != "online":
        raise ConfigError("streammembench asks when its anchors are due: --asked is for lifedialbench")
    dataset = read_dataset(
        options.data, language=options.language, streams=options.streams, progress=progress
    )
    return first_segments(dataset, options.segments)


def check_label(label: str) -> None:
    """Raise ConfigError for what can't be an attached system's label."""
    if not label or any(c in "@/:=," or c.isspace() for c in label):
        raise ConfigError(f"{label!r} can't be an attached system's label: letters, digits, '-', '_' and '.'")


def _systems(options: RunOptions) -> tuple[SystemSpec, ...]:
    if not options.systems and not options.attached:
        raise ConfigError("no system: name at least one with --system (see `egostream systems`)")
    specs = tuple(parse_spec(text) for text in options.systems)
    for label in options.attached:
        check_label(label)
    labels = [*(spec.label for spec in specs), *options.attached]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"two systems are called {label}: give one another label, as in other={label}")
    for spec in specs:
        means_in(spec, options.isolation)
    if options.isolation == "shared" and options.ablate_commit:
        raise ConfigError(
            "the commit ablation needs a branch without the commit: run it with --isolation branch"
        )
    if options.isolation == "shared" and options.policy == "run":
        raise ConfigError(
            "isolation shared needs time to wait for each trajectory: run it with --policy hold"
        )
    return specs
