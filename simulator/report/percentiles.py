"""A plot of times by percentile."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup
from matplotlib.axes import Axes

from consumers.histogram import Histogram, Percentiles
from simulator.report.charts import draw, line_of, log_time_axis, percentile_axis, time_unit
from simulator.report.parts import (
    Picture,
    Table,
    number_cell,
    time_cell,
)
from simulator.report.words import time_text

_LEVELS = (0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0)


def percentile_picture(
    name: str, title: str, of: Mapping[str, Percentiles | None], caption: str, of_what: str = "segments"
) -> Picture | None:
    """Times against the percentile of so many segments, or `of_what` they are; None without any."""
    known = {label: Histogram.of(each) for label, each in of.items() if each is not None}
    if not known:
        return None
    most = max(histogram.n for histogram in known.values())
    highest_us = max(each.max_us for each in of.values() if each is not None)
    lowest_us = min(histogram.at(0.0) for histogram in known.values())
    unit = time_unit(highest_us)[1]

    def plot(axis: Axes) -> None:
        divisor, _ = log_time_axis(axis, highest_us, lowest_us)
        percentile_axis(axis, most)
        for number, (label, histogram) in enumerate(known.items()):
            # beyond 1 - 1/n there is nothing to tell but the greatest value
            curve = [
                (min(1 / (1 - share) if share < 1 else most, histogram.n), us)
                for share, us in histogram.curve()
            ]
            times = [max(1, us) / divisor for _, us in curve]
            line_of(axis, [x for x, _ in curve], times, number, label, linewidth=1.4 if number else 2.2)

    alt = f"{title}. " + "; ".join(
        f"{label}: p50 {time_text(each.p50_us)}, p99 {time_text(each.p99_us)}, longest {time_text(each.max_us)}"
        for label, each in of.items()
        if each is not None
    )
    axes = (f"Percentile of {of_what} (%, spaced by 1/(1 − p))", f"Time ({unit}, log scale)")
    rows = [
        [number_cell(level, ",.6g"), *(time_cell(h.at(level)) for h in known.values())] for level in _LEVELS
    ]
    table = Table(title, ("Percentile (%)", *known), rows)
    return Picture(Markup(draw(name, title, alt, axes, plot, 3.9)), caption, table)
