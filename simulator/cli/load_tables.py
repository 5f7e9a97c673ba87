"""What `egostream load` prints: the tables of one load, of a sweep and of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from simulator.cli import common
from simulator.counts import counted
from simulator.report.words import (
    NOTHING,
    STAGES,
    bracket_text,
    clock_text,
    end_text,
    error_text,
    figure_text,
    growth_text,
    interval_text,
    is_marked,
    lacking_text,
    level_text,
    rate_text,
    remembered_text,
    says_text,
    spread_text,
    stage_texts,
    steered_text,
    time_text,
)

if TYPE_CHECKING:
    from consumers.histogram import Percentiles
    from consumers.latency import LatencyReport
    from simulator.load.comparison import Comparison
    from simulator.load.sweep import Found


def show_report(report: LatencyReport) -> None:
    """The tables of one load."""
    common.say(remembered_text(report))
    if report.steered:
        common.say(steered_text(report))
    common.say(
        f"offered  {rate_text(report.offered_observations_per_s)} observations/s, "
        f"{rate_text(report.offered_segments_per_s)} segments/s"
    )
    common.say(
        f"achieved {rate_text(report.achieved_observations_per_s)} observations/s, "
        f"{rate_text(report.achieved_segments_per_s)} segments/s"
    )
    high, last = report.highest, report.lag[-1] if report.lag else report.highest
    common.say(
        f"lag      at most {counted(high.segments, 'segment')}, {counted(high.observations, 'observation')}, "
        f"{high.event_time_s:,.0f} s of life; at the end {counted(last.segments, 'segment')}"
        if report.lag
        else "lag      not known"
    )
    if report.growth is not None:
        common.say(
            f"growth   {growth_text(max(report.growth, 0.0))}: so much later each second, in the worst lane"
        )
    for use in report.processes:
        common.say(
            f"process  {use.process}: {use.cpu:.0%} of a core, {use.rss_max_bytes / 2**20:,.0f} MiB; children "
            f"{use.children_cpu:.0%}, {use.children_rss_max_bytes / 2**20:,.0f} MiB; event loop late by "
            f"{time_text(use.loop_lag_max_us)} at most"
        )
    for clock in report.clocks:
        common.say(f"clock    {clock_text(clock)}")
    table = Table(title="\nTime since due", title_justify="left", box=None)
    table.add_column("Stage")
    for name in ("n", "p50", "p90", "p99", "p99.9", "max"):
        table.add_column(name, justify="right")
    _row(table, "observation handed to the log", report.pacing)
    marked = False
    for stage, numbers in report.stages.items():
        if stage == "ingest":
            table.add_section()  # these two don't run from due
        error_us = report.error_us.get(stage, 0.0)
        marked |= is_marked(_row(table, STAGES[stage], numbers, report.stages["published"], error_us))
    common.show(table)
    if report.error_us:
        common.say(error_text(max(report.error_us.values()), marked=marked))


def show_found(found: Found) -> None:
    """The curve, and the answer with what it stands on."""
    table = Table(
        title=f"Time from due to remembered; objective: {found.objective}", title_justify="left", box=None
    )
    rates = ("offered obs/s", "achieved obs/s")
    for name in (found.unit, *rates, "n", "p50", "p99", "max", "growth", "objective"):
        table.add_column(name, justify="right")
    for point in sorted(found.points, key=lambda point: point.value):
        report = point.report
        numbers = report.stages["remembered"]
        times = (
            [NOTHING] * 3
            if numbers is None
            else map(time_text, (numbers.p50_us, numbers.p99_us, numbers.max_us))
        )
        table.add_row(
            f"{point.value:,.6g}",
            rate_text(report.offered_observations_per_s),
            rate_text(report.achieved_observations_per_s),
            f"{report.remembered:,}",
            *times,
            growth_text(report.growth),
            "kept" if point.kept else "broken",
        )
    common.show(table)
    common.say(f"\n{bracket_text(found)}")
    for said in lacking_text(found):
        common.say(said)
    common.say(f"highest that kept it   {end_text(found.highest_kept, found.unit)}")
    common.say(f"lowest that broke it   {end_text(found.lowest_broken, found.unit)}")


def show_comparison(comparison: Comparison) -> None:
    """Each figure of both, its ratio with spread and interval, and what that says."""
    for side, system in zip("AB", comparison.systems, strict=True):
        common.say(f"{side}  {system}")
    table = Table(
        title=f"\nMedians and ratios of {counted(len(comparison.rounds), 'round')}",
        title_justify="left",
        box=None,
    )
    table.add_column("Figure")
    for name in ("A", "B", "A/B", "spread", f"interval{level_text(comparison.figures)}"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("says")
    for figure in comparison.figures:
        ratio = NOTHING if figure.median is None else f"{figure.median:.3f}"
        table.add_row(
            figure.name,
            figure_text(figure, figure.a),
            figure_text(figure, figure.b),
            ratio,
            spread_text(figure),
            interval_text(figure.interval),
            "not told" if figure.says == "unjudged" else says_text(figure),
        )
    common.show(table)
    for said in lacking_text(comparison):
        common.say(said)
    for reason in dict.fromkeys(figure.reason for figure in comparison.figures if figure.reason):
        common.say(f"not told: {reason}")


def _row(
    table: Table,
    name: str,
    numbers: Percentiles | None,
    sent: Percentiles | None = None,
    error_us: float = 0.0,
) -> list[str]:
    """`error_us`: how far off these numbers may be; `sent`: those from which on it counts. Gives the times as they are
    shown."""
    name += " †" if error_us else ""
    texts = [NOTHING] * 5 if numbers is None else stage_texts(numbers, sent, error_us)
    table.add_row(name, f"{0 if numbers is None else numbers.n:,}", *texts)
    return texts
