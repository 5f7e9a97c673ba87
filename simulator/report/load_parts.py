"""What the pages of loads have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from consumers.histogram import Percentiles
from consumers.latency import LatencyReport
from simulator.counts import counted
from simulator.report.words import NOTHING, answered_text, steered_text


def warnings_of(report: LatencyReport, of: str = "") -> list[str]:
    """What one has to know of a load before any of its numbers. `of`: which one it is, if there are several."""
    found: list[str] = []
    if report.failed or report.unfinished:
        found.append(
            f"{of}{report.failed:,} segments failed and {report.unfinished:,} were not finished, of "
            f"{report.segments:,}: every percentile holds for the others only, and is too low."
        )
    for part in () if report.answers is None else ("loaded", "idle"):
        times = getattr(report.answers, part)
        if times.failed or times.unfinished:
            found.append(f"{of}Questions, {part}: {answered_text(times)}.")
    if report.steered:
        found.append(f"{of}{steered_text(report)}")
    if not report.segments:
        found.append(f"{of}No segment was due by a clock: there is nothing to measure.")
    clipped = sum(n.clipped for n in (report.pacing, *report.stages.values()) if n is not None)
    if clipped:
        found.append(
            f"{of}{clipped:,} times lay outside of what is counted (below zero, or more than a week) and count as its "
            "nearest end: a clock was set while the load ran."
        )
    return found


def facts_of(report: LatencyReport, systems: Sequence[str]) -> dict[str, str]:
    """What was measured, and where, by the run's own identity."""
    identity = report.identity
    load: dict[str, Any] = msgspec.json.decode(identity.get("load", "{}"))
    machine: dict[str, Any] = msgspec.json.decode(identity.get("machine", "{}"))
    facts = {"System" if len(systems) == 1 else "Systems": ", ".join(systems), "Run": report.run}
    if asked := identity.get("asked_us"):
        facts["Begun"] = f"{datetime.fromtimestamp(int(asked) // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if machine:
        cores = f"{machine['cores']:,} of {machine['cores_in_all']:,}"
        facts["Machine"] = (
            f"{cores} cores ({machine['processor']}), {machine['memory_bytes'] / 2**30:,.1f} GiB of memory, "
            f"{machine['os']}, {machine['python']}"
        )
    if load:
        facts["Load"] = load_text(load, report)
    if "questions" in identity:
        asked = msgspec.json.decode(identity["questions"])
        facts["Questions"] = f"{asked.get('per_second', 0):,.6g} a second, of all lanes in turn"
    if "log" in identity:
        facts["Log"] = identity["log"]
    if "agents" in identity:
        facts["Agents"] = identity["agents"] + (" processes" if identity["agents"].isdigit() else "")
    if "replayer" in identity:
        facts["Replayer"] = identity["replayer"]
    if "calls_in_flight" in identity:
        facts["In flight"] = f"{identity['calls_in_flight']} calls at once, at most"
    if "dataset" in identity:
        facts["Data"] = (
            f"{', '.join(identity.get('streams', '').split(','))}; digest {identity['dataset'][:16]}"
        )
    facts["egostream"] = identity.get("code", NOTHING)
    return facts


def load_text(load: Mapping[str, Any], report: LatencyReport) -> str:
    """A schedule in words."""
    rate = (
        f"{load['rate']:,.6g} × real time"
        if load.get("rate") is not None
        else f"{load.get('observations_per_second', 0):,.6g} observations/s in all"
    )
    return (
        f"{counted(report.lanes, 'lane')} at {rate} for {load.get('duration_s', 0):,.6g} s, "
        f"{load.get('arrivals', '')} arrivals, seed {load.get('seed', 0)}: "
        f"{counted(report.observations, 'observation')} in {counted(report.segments, 'segment')}"
    )


def time_us(of: Percentiles | None, name: str) -> int | None:
    """`p50`, `p99` or `max` of a stage; None where it has no value."""
    return None if of is None else {"p50": of.p50_us, "p99": of.p99_us, "max": of.max_us}[name]
