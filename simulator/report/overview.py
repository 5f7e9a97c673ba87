"""Evaluation runs side by side: all that their page shows, as data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import msgspec

from adapters.foreign.catalogue import catalogue
from adapters.registry import parse_spec
from consumers.audit import Certificate
from consumers.score_tables import score_notes, summary_lines
from consumers.scores import Scores
from simulator.errors import ConfigError
from simulator.events import Benchmark
from simulator.report.run_facts import Audited, audited, facts_of_run, foreign_facts, source_warnings
from simulator.report.shares import MAIN, STANDS_FOR, Shown, shares_of, title_of

BENCHMARKS: Final[Mapping[Benchmark, str]] = {
    "streammembench": "StreamMemBench",
    "lifedialbench": "LifeDialBench",
    "realmem": "RealMem",
    "apm": "APM",
}


class RunShown(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `where`: as it was given; `name`: what the page calls it. `lines`: what must be known before any number,
    the first of which says what stayed unjudged."""

    where: str
    name: str
    run: str
    benchmark: Benchmark
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    facts: dict[str, str]
    identity: dict[str, str]
    audit: Audited
    shown: tuple[Shown, ...]
    scores: Scores
    """Without its rows."""

    def of(self, by: str = "") -> dict[tuple[str, str, str], Shown]:
        """(System, group, metric) → what is shown of it, split by this."""
        return {(each.system, each.group, each.metric): each for each in self.shown if each.by == by}

    @property
    def groupings(self) -> tuple[str, ...]:
        """What it can be split by."""
        return tuple(dict.fromkeys(each.by for each in self.shown if each.by))


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of the summary."""

    run: str
    """The name of its run."""
    metric: str
    title: str


class SummaryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One system in all runs; None where it was not in a run, or a metric does not apply to it."""

    system: str
    privileged: bool
    cells: tuple[Shown | None, ...]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Runs side by side. `warnings`: the worst first."""

    warnings: tuple[str, ...]
    columns: tuple[Column, ...]
    summary: tuple[SummaryRow, ...]
    runs: tuple[RunShown, ...]


def run_shown(
    where: str, name: str, scores: Scores, identity: Mapping[str, str], certificate: Certificate | None
) -> RunShown:
    """What is shown of one run. `certificate`: the one in its folder, if there is one."""
    audit = audited(where, scores, certificate)
    return RunShown(
        where=where,
        name=name,
        run=scores.run,
        benchmark=scores.protocol,
        lines=tuple(summary_lines(scores)),
        notes=tuple(score_notes(scores)),
        facts=facts_of_run(where, scores, identity, audit) | foreign_facts(identity, catalogue()),
        identity=dict(identity),
        audit=audit,
        shown=shares_of(scores),
        scores=msgspec.structs.replace(scores, rows=()),
    )


def overview(runs: Sequence[RunShown]) -> Overview:
    """All runs side by side."""
    columns = [(run, metric) for run in runs for metric in _glance(run)]
    systems = dict.fromkeys(system for run in runs for system in run.scores.systems)
    overall = {run.name: run.of() for run in runs}
    return Overview(
        warnings=tuple(_warnings(runs)),
        columns=tuple(Column(run=run.name, metric=metric, title=title_of(metric)) for run, metric in columns),
        summary=tuple(
            SummaryRow(
                system=system,
                privileged=any(system in run.scores.privileged for run in runs),
                cells=tuple(overall[run.name].get((system, "", metric)) for run, metric in columns),
            )
            for system in systems
        ),
        runs=tuple(runs),
    )


def names_of(benchmarks: Sequence[Benchmark]) -> list[str]:
    """What runs of these benchmarks are called: numbered where a benchmark is there more than once."""
    return [
        f"{BENCHMARKS[each]} ({benchmarks[: place + 1].count(each)})"
        if benchmarks.count(each) > 1
        else BENCHMARKS[each]
        for place, each in enumerate(benchmarks)
    ]


def to_builtins(shown: Overview) -> dict[str, Any]:
    """As JSON has it: without the trajectories, as `scores.json`."""
    value: dict[str, Any] = msgspec.to_builtins(shown)
    for run in value["runs"]:
        del run["scores"]["rows"]
    return value


def _glance(run: RunShown) -> list[str]:
    there = {each.metric for each in run.shown if not each.by}
    return [STANDS_FOR.get(metric, metric) for metric in MAIN[run.benchmark] if metric in there]


def _warnings(runs: Sequence[RunShown]) -> Iterable[str]:
    for run in runs:
        if run.audit.sound is False:
            yield f"{run.name}: the log breaks an invariant, so its numbers prove nothing ({run.audit.says})."
    for run in runs:
        lines = run.lines if run.scores.unjudged.trajectories else run.lines[1:]
        yield from (f"{run.name}: {line}" for line in lines)
        if "Canaries" in run.facts:
            yield f"{run.name}: it holds canaries, so its scores are not those of a plain run."
        yield from (f"{run.name}: {said}." for said in source_warnings(run.identity, catalogue()))
        if run.audit.sound is None:
            yield f"{run.name}: {run.audit.says[0].lower()}{run.audit.says[1:]}."
    for one, other in combinations(runs, 2):
        if one.benchmark == other.benchmark and (fields := _differing(one.identity, other.identity)):
            yield f"{one.name} and {other.name} differ in {', '.join(fields)}: don't compare their columns."
    for system in dict.fromkeys(system for run in runs for system in run.scores.systems):
        given = {run.name: spec for run in runs if (spec := _spec_of(system, run.identity))}
        if len(set(given.values())) > 1:
            what = "; ".join(f"{name}: {spec}" for name, spec in given.items())
            yield f"{system} is not the same system in all runs, so its row is not that of one system: {what}."


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The fields, other than the systems, in which two runs of one benchmark differ."""
    names = sorted(one.keys() | other.keys())
    return [
        name
        for name in names
        if one.get(name) != other.get(name)
        and not name.startswith(("systems", "memory.", "embedder.", "means"))
    ]


def _spec_of(system: str, identity: Mapping[str, str]) -> str:
    """How the system of this label was given, its models included; empty where it was not, or is somebody else's."""
    for text in identity.get("systems", "").split():
        try:
            spec = parse_spec(text)
        except ConfigError:  # an attached agent has a label and no more
            continue
        if spec.label == system:
            models = [identity.get(f"{kind}.{system}", "") for kind in ("memory", "embedder")]
            return " ".join(filter(None, (text.removeprefix(f"{system}="), *models)))
    return ""
