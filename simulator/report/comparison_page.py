"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from consumers.histogram import Histogram, Percentiles
from consumers.latency import LatencyReport
from simulator.counts import counted
from simulator.load.comparison import Comparison, Figure
from simulator.report.charts import (
    INK,
    MARKERS,
    NUMBERS,
    SERIES,
    draw,
    line_of,
    log_time_axis,
)
from simulator.report.load_parts import facts_of, time_us, warnings_of
from simulator.report.parts import (
    Cell,
    Page,
    Picture,
    Section,
    Table,
    number_cell,
    time_cell,
)
from simulator.report.percentiles import percentile_picture
from simulator.report.words import (
    NOTHING,
    figure_text,
    interval_text,
    lacking_text,
    level_text,
    says_text,
    spread_text,
    time_text,
)


def comparison_page(comparison: Comparison) -> Page:
    """What a comparison came to."""
    rounds, systems = comparison.rounds, comparison.systems
    sides = [(side, [getattr(each, side.lower()) for each in rounds]) for side in ("A", "B")]
    warnings = lacking_text(comparison)
    warnings += [
        warning
        for number, each in enumerate(rounds, 1)
        for side, report in (("A", each.a), ("B", each.b))
        for warning in warnings_of(report, f"Round {number}, {side}: ")
    ]
    warnings += list(dict.fromkeys(f"Not told: {f.reason}." for f in comparison.figures if f.reason))
    answer = [f"A is {systems[0]}; B is {systems[1]}."]
    answer += [
        f"{figure.name}: {says_text(figure)}, A/B {figure.median:.3f}."
        for figure in comparison.figures
        if figure.says in ("A", "B")
    ]
    for said, begin in (("none", "No difference seen"), ("unjudged", "Not told")):
        if names := [figure.name for figure in comparison.figures if figure.says == said]:
            answer.append(f"{begin}: {', '.join(names)}.")
    facts = facts_of(rounds[0].a, [f"A: {systems[0]}", f"B: {systems[1]}"])
    facts["Run"] = f"{2 * len(rounds)} runs, two a round; the first: {rounds[0].a.run}"
    facts["Load"] = f"each: {facts.get('Load', NOTHING)}, the seed one more in each round"
    facts["Order"] = ", ".join("A B" if each.first == "A" else "B A" for each in rounds)
    p50, p99 = (_named(comparison, name) for name in ("p50", "p99"))
    tiles = {
        f"{figure.name}, A/B": NOTHING if figure.median is None else f"{figure.median:.3f}"
        for figure in comparison.figures
    }
    pictures = [_ratios(comparison), _merged(sides), *(_rounds(figure, comparison) for figure in (p50, p99))]
    text = (
        "The ratio A/B of each round, its median and its spread from the least to the greatest. The interval of the "
        "median is that of the sign test, exact at the level beside it, whatever the noise is like. It holds "
        "for each figure by itself: among several figures of two equal systems, one may well look different."
    )
    return Page(
        title=f"{systems[0]} against {systems[1]}, under the same load",
        answer=answer,
        warnings=warnings,
        tiles=tiles,
        facts=facts,
        sections=[
            Section("A against B", text, [_figures(comparison)], [p for p in pictures if p is not None])
        ],
    )


def _named(comparison: Comparison, name: str) -> Figure:
    return next(figure for figure in comparison.figures if figure.name == name)


def _figures(comparison: Comparison) -> Table:
    head = (
        "Figure",
        "better",
        "A",
        "B",
        "A/B",
        "spread",
        f"interval of the median{level_text(comparison.figures)}",
        "says",
    )
    rows = [
        [
            Cell(figure.name),
            Cell(figure.better),
            Cell(figure_text(figure, figure.a), figure.a),
            Cell(figure_text(figure, figure.b), figure.b),
            number_cell(figure.median, ".3f"),
            Cell(spread_text(figure)),
            Cell(interval_text(figure.interval)),
            Cell("not told" if figure.says == "unjudged" else says_text(figure)),
        ]
        for figure in comparison.figures
    ]
    return Table(
        f"Medians and ratios of {counted(len(comparison.rounds), 'round')}", head, rows, id="figures"
    )


def _ratios(comparison: Comparison) -> Picture | None:
    figures = [figure for figure in comparison.figures if figure.median is not None]
    if not figures:
        return None
    places = list(range(len(figures)))[::-1]

    def plot(axis: Axes) -> None:
        axis.set_xscale("log")
        for place, figure in zip(places, figures, strict=True):
            assert figure.median is not None
            known = [ratio for ratio in figure.ratios if ratio is not None]
            if figure.interval is not None:
                ends = [figure.interval.low, figure.interval.high]
                axis.plot(
                    ends, [place, place], color=SERIES[0], linewidth=6, alpha=0.35, solid_capstyle="butt"
                )
            axis.scatter(known, [place] * len(known), color=SERIES[0], s=14, zorder=3)
            axis.scatter([figure.median], [place], marker="|", color=INK, s=260, linewidth=2, zorder=4)
        axis.axvline(1, color=INK, linestyle=(0, (4, 3)), linewidth=1)
        axis.set_yticks(places, [f"{figure.name}\n({figure.better} is better)" for figure in figures])
        axis.set_ylim(-0.6, len(figures) - 0.4)
        axis.grid(visible=False, axis="y")
        axis.xaxis.set_major_formatter(NUMBERS)
        axis.xaxis.set_minor_formatter(NUMBERS)
        _ratio_ticks(axis, [ratio for figure in figures for ratio in figure.ratios if ratio is not None])

    title = "A/B of each figure"
    alt = f"{title}. " + "; ".join(
        f"{figure.name}: median {figure.median:.3f}, from {figure.low:.3f} to {figure.high:.3f}"
        for figure in figures
    )
    caption = (
        "Each dot is a round, the stroke is their median, the bar is its interval. Left of 1, A has less than B; where "
        "the bar crosses 1, no difference is seen."
    )
    head = ("Figure", *(f"round {number}" for number in range(1, len(comparison.rounds) + 1)))
    rows = [
        [Cell(figure.name), *(number_cell(ratio, ".4f") for ratio in figure.ratios)] for figure in figures
    ]
    axes = ("Ratio A/B (no unit, log scale)", "")
    svg = draw("ratios", title, alt, axes, plot, 0.9 + 0.52 * len(figures))
    return Picture(Markup(svg), caption, Table(title, head, rows))


def _merged(sides: Sequence[tuple[str, Sequence[LatencyReport]]]) -> Picture | None:
    """All rounds of each in one histogram."""
    of: dict[str, Percentiles | None] = {}
    for side, reports in sides:
        merged = Histogram()
        for report in reports:
            if (known := report.stages["remembered"]) is not None:
                merged.add(Histogram.of(known))
        of[side] = merged.percentiles()
    return percentile_picture(
        "merged",
        "Latency by percentile, all rounds together",
        of,
        "From due to remembered.",
    )


def _rounds(figure: Figure, comparison: Comparison) -> Picture | None:
    """One figure round by round: whether the machine drifted meanwhile."""
    name = figure.name
    values_us = [
        (time_us(each.a.stages["remembered"], name), time_us(each.b.stages["remembered"], name))
        for each in comparison.rounds
    ]
    known = [us for pair in values_us for us in pair if us is not None]
    if not known:
        return None
    numbers_of = list(range(1, len(values_us) + 1))
    unit = "s" if max(known) >= 10e6 else "ms"

    def plot(axis: Axes) -> None:
        divisor, _ = log_time_axis(axis, max(known), min(known))
        for place, side in enumerate("AB"):
            some = [(n, pair[place]) for n, pair in zip(numbers_of, values_us, strict=True)]
            pairs = [(n, max(1, us) / divisor) for n, us in some if us is not None]
            line_of(
                axis,
                [n for n, _ in pairs],
                [y for _, y in pairs],
                place,
                side,
                marker=MARKERS[place],
                markersize=5,
            )
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))

    title = f"{name} of each round"
    axes = ("Round (number)", f"{name} since due ({unit}, log scale)")
    alt = f"{title}: A {time_text(figure.a)} and B {time_text(figure.b)} in the middle."
    rows = [
        [number_cell(n, "d"), *map(time_cell, pair)] for n, pair in zip(numbers_of, values_us, strict=True)
    ]
    caption = (
        "Where both lines go up or down together, it was the machine or the arrivals of that round: the ratio leaves "
        "that out."
    )
    return Picture(
        Markup(draw(f"rounds-{name}", title, alt, axes, plot, 2.9)),
        caption,
        Table(title, ("Round (number)", "A", "B"), rows),
    )


def _ratio_ticks(axis: Axes, ratios: Sequence[float]) -> None:
    """A log scale around 1 with numbers on it, however near to 1 all are."""
    low, high = min([*ratios, 0.95]), max([*ratios, 1.05])
    axis.set_xlim(low / 1.05, high * 1.05)
