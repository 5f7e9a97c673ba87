"""What `egostream load` prints: the tables of one load, and of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from simulator.cli import common

if TYPE_CHECKING:
    from consumers.clocks import ClockOffset
    from consumers.histogram import Percentiles
    from consumers.latency import LatencyReport
    from simulator.sweep import Found

_ABOUT = {
    "published": "handed to the log",
    "read": "read by the agent",
    "begun": "ingest begun",
    "ended": "ingest ended",
    "written": "delta handed to the log",
    "remembered": "delta read by a consumer",
    "ingest": "the ingest alone",
    "from_send": "as measured from the send",
}


def show_report(report: LatencyReport) -> None:
    """The tables of one load."""
    done = f"{report.remembered:,} of {report.segments:,} segments remembered"
    if report.failed or report.unfinished:
        done += (
            f", {report.failed:,} failed, {report.unfinished:,} unfinished: "
            "the percentiles hold for the others only, and are too low"
        )
    common.say(f"{done}.")
    common.say(
        f"offered  {_rate(report.offered_observations_per_s)} observations/s, "
        f"{_rate(report.offered_segments_per_s)} segments/s"
    )
    common.say(
        f"achieved {_rate(report.achieved_observations_per_s)} observations/s, "
        f"{_rate(report.achieved_segments_per_s)} segments/s"
    )
    high, last = report.highest, report.lag[-1] if report.lag else report.highest
    common.say(
        f"lag      at most {high.segments:,} segments, {high.observations:,} observations, "
        f"{high.event_time_s:,.0f} s of life; at the end {last.segments:,} segments"
        if report.lag
        else "lag      not known"
    )
    if report.growth is not None:
        common.say(f"growth   {max(report.growth, 0.0):.1%}: so much later each second, in the worst lane")
    for use in report.processes:
        common.say(
            f"process  {use.process}: {use.cpu:.0%} of a core, {use.rss_max_bytes / 2**20:,.0f} MiB; children "
            f"{use.children_cpu:.0%}, {use.children_rss_max_bytes / 2**20:,.0f} MiB; event loop late by "
            f"{_time(use.loop_lag_max_us)} at most"
        )
    for clock in report.clocks:
        common.say(f"clock    {_clock(clock)}")
    table = Table(title="\nTime since due", title_justify="left", box=None)
    table.add_column("Stage")
    for name in ("n", "p50", "p90", "p99", "p99.9", "max"):
        table.add_column(name, justify="right")
    _row(table, "observation handed to the log", report.pacing)
    for stage, numbers in report.stages.items():
        if stage == "ingest":
            table.add_section()  # these two don't run from due
        _row(table, _ABOUT[stage], numbers, report.stages["published"], report.error_us.get(stage, 0.0))
    common.show(table)
    if report.error_us:
        error = _time(max(report.error_us.values()))
        common.say(
            f"† by a clock that is known within ± {error} (clock error): a smaller difference from a row without † "
            "says nothing.\n~ of what lies between it and the handing to the log, half or more is within that error."
        )


def show_found(found: Found, unit: str) -> None:
    """The curve, and the answer with what it stands on."""
    table = Table(
        title=f"Time from due to remembered; objective: {found.objective}", title_justify="left", box=None
    )
    for name in (unit, "offered obs/s", "achieved obs/s", "p50", "p99", "max", "growth", "objective"):
        table.add_column(name, justify="right")
    for point in sorted(found.points, key=lambda point: point.value):
        report = point.report
        numbers = report.stages["remembered"]
        times = ["–"] * 3 if numbers is None else map(_time, (numbers.p50_us, numbers.p99_us, numbers.max_us))
        table.add_row(
            f"{point.value:,.6g}",
            _rate(report.offered_observations_per_s),
            _rate(report.achieved_observations_per_s),
            *times,
            "–" if report.growth is None else f"{report.growth:.1%}",
            "kept" if point.kept else "broken",
        )
    common.show(table)
    low, high = found.highest_kept, found.lowest_broken
    kept = (
        "nothing in reach"
        if low is None
        else (f"{low:,.6g} {unit} (kept in {found.kept_times} of {found.kept_of})")
    )
    broken = (
        "nothing in reach"
        if high is None
        else (f"{high:,.6g} {unit} (kept in {found.broken_kept_times} of {found.broken_of})")
    )
    common.say(f"\nhighest that kept it   {kept}\nlowest that broke it   {broken}")


def _clock(clock: ClockOffset) -> str:
    whose = f"{clock.role} ({f'boot {clock.boot}' if clock.boot else 'it does not say whose'})"
    if clock.offset_us is None or clock.error_us is None:
        return f"{whose} is not known, nor any time by it: {clock.reason}"
    which = "ahead of" if clock.offset_us >= 0 else "behind"
    known = (
        f"{whose} is {_time(abs(clock.offset_us))} {which} the replayer's, ± {_time(clock.error_us)}, by "
        f"{clock.exchanges:,} exchanges"
    )
    return f"{known}; {clock.reason}" if clock.reason else known


def _row(
    table: Table,
    name: str,
    numbers: Percentiles | None,
    sent: Percentiles | None = None,
    error_us: float = 0.0,
) -> None:
    """`error_us`: how far off these numbers may be; `sent`: those from which on it counts."""
    name += " †" if error_us else ""
    if numbers is None:
        table.add_row(name, "0", *["–"] * 5)
        return
    values, since = _values(numbers), _values(sent) if sent is not None else (0,) * 5
    cells = [
        f"{'~' if error_us and value - before <= 2 * error_us else ''}{_time(value)}"
        for value, before in zip(values, since, strict=True)
    ]
    table.add_row(name, f"{numbers.n:,}", *cells)


def _values(numbers: Percentiles) -> tuple[float, ...]:
    return numbers.p50_us, numbers.p90_us, numbers.p99_us, numbers.p999_us, numbers.max_us


def _rate(per_s: float | None) -> str:
    return "–" if per_s is None else f"{per_s:,.1f}"


def _time(us: float) -> str:
    return f"{us / 1e3:,.1f} ms" if us < 10e6 else f"{us / 1e6:,.1f} s"
