"""What a page is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from markupsafe import Markup

from consumers.histogram import Percentiles
from consumers.latency import LatencyReport
from simulator.report.words import NOTHING, answered_text, rate_text, time_text


class Cell(msgspec.Struct, frozen=True):
    """What stands in a table, and the number that it says, exactly."""

    text: str
    value: float | int | None = None


class Table(msgspec.Struct, frozen=True):
    """Rows under a head; the first cell of each row names it."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    id: str = ""


class Picture(msgspec.Struct, frozen=True):
    """A plot, how to read it, and the numbers behind it."""

    svg: Markup
    caption: str
    table: Table


class Section(msgspec.Struct, frozen=True):
    """A heading and what is below it: tables first, then pictures."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """`warnings`: what one has to know before any number, the worst first. `facts`: name → what was measured, and
    where. `tiles`: name → the numbers that matter most."""

    title: str
    answer: Sequence[str]
    warnings: Sequence[str]
    tiles: Mapping[str, str]
    facts: Mapping[str, str]
    sections: Sequence[Section]


def time_cell(us: float | None) -> Cell:
    """Microseconds."""
    return Cell(time_text(us), us)


def rate_cell(per_s: float | None) -> Cell:
    """So many each second."""
    return Cell(rate_text(per_s), per_s)


def count_cell(count: int) -> Cell:
    """How many."""
    return Cell(f"{count:,}", count)


def number_cell(value: float | None, form: str = ",.4g") -> Cell:
    """A number in a form of its own."""
    return Cell(NOTHING if value is None else format(value, form), value)


def numbers(caption: str, head: Sequence[str], rows: Iterable[Sequence[float | None]]) -> Table:
    """The numbers behind a plot."""
    return Table(caption, head, [[number_cell(value, ",.6g") for value in row] for row in rows])


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
        f"{report.lanes:,} lane{'s' if report.lanes != 1 else ''} at {rate} for {load.get('duration_s', 0):,.6g} s, "
        f"{load.get('arrivals', '')} arrivals, seed {load.get('seed', 0)}: {report.observations:,} observations in "
        f"{report.segments:,} segments"
    )


def time_us(of: Percentiles | None, name: str) -> int | None:
    """`p50`, `p99` or `max` of a stage; None where it has no value."""
    return None if of is None else {"p50": of.p50_us, "p99": of.p99_us, "max": of.max_us}[name]
