"""The page of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simulator.counts import counted
from simulator.load.sweep import GROWS, LAG, Found, Measured, Objective, load_folder
from simulator.report.charts import (
    INK,
    MARKERS,
    NUMBERS,
    SERIES,
    counts_from_zero,
    draw,
    line_of,
    log_time_axis,
    reference,
)
from simulator.report.load_parts import facts_of, time_us, warnings_of
from simulator.report.parts import (
    Cell,
    Page,
    Picture,
    Section,
    Table,
    count_cell,
    number_cell,
    numbers,
    rate_cell,
    time_cell,
)
from simulator.report.words import (
    NOTHING,
    bracket_text,
    end_text,
    growth_text,
    lacking_text,
    value_text,
)

_FOLDERS = "Each load is a run in a folder of its own, of which egostream report makes a page too."
_DRAWN = ("p50", "p99", "max")


def sweep_page(found: Found) -> Page:
    """What a sweep found."""
    points = sorted(found.points, key=lambda point: point.value)
    system = points[0].report.identity.get("systems") or ", ".join(points[0].report.systems)
    warnings = lacking_text(found)
    warnings += [w for p in points for w in warnings_of(p.report, f"At {value_text(p.value, found.unit)}: ")]
    warnings += [
        f"At {value_text(end.value, found.unit)} the measurements do not agree: kept in {end.kept_times} of {end.of}."
        for end in (found.highest_kept, found.lowest_broken)
        if end is not None and not end.agreed
    ]
    answer = [
        f"Objective: {_objective_text(found.objective)}.",
        bracket_text(found),
        f"Highest that kept it: {end_text(found.highest_kept, found.unit)}.",
        f"Lowest that broke it: {end_text(found.lowest_broken, found.unit)}.",
    ]
    facts = facts_of(points[0].report, [system])
    facts["Load"] = (
        f"{counted(len(points), 'load')}, each a run of its own; the first: {facts.get('Load', NOTHING)}"
    )
    low, high = found.highest_kept, found.lowest_broken
    tiles = {
        f"highest kept, {found.unit}": NOTHING if low is None else f"{low.value:,.6g}",
        "kept in": NOTHING if low is None else f"{low.kept_times} of {low.of}",
        f"lowest broken, {found.unit}": NOTHING if high is None else f"{high.value:,.6g}",
        "kept there in": NOTHING if high is None else f"{high.kept_times} of {high.of}",
    }
    pictures = [
        _curve(found, points, of_answers=False),
        _curve(found, points, of_answers=True),
        _growth(found, points),
        _achieved(found, points),
    ]
    return Page(
        title=f"Sweep over the {'number of wearers' if found.axis == 'wearers' else 'rate'} of {system}",
        answer=answer,
        warnings=warnings,
        tiles=tiles,
        facts=facts,
        sections=[Section("The curve", _FOLDERS, [_curve_table(found)], [p for p in pictures if p])],
    )


def _objective_text(objective: str) -> str:
    if objective == LAG:
        return f"lag does not grow by {GROWS:.0%} of the time that passes, in any lane"
    what = (
        "question due to its answer received"
        if Objective.parse(objective).of_answers
        else "due to remembered"
    )
    return f"{objective}, from {what}"


def _curve_table(found: Found) -> Table:
    head = (found.unit, "offered, obs/s", "achieved, obs/s", "n", *_DRAWN, "growth", "objective", "folder")
    rows = []
    named = [(load_folder(number, point.value), point) for number, point in enumerate(found.points, 1)]
    for folder, point in sorted(named, key=lambda each: each[1].value):
        report, of = point.report, point.report.stages["remembered"]
        rows.append(
            [
                number_cell(point.value, ",.6g"),
                rate_cell(report.offered_observations_per_s),
                rate_cell(report.achieved_observations_per_s),
                count_cell(report.remembered),
                *(time_cell(time_us(of, name)) for name in _DRAWN),
                Cell(growth_text(report.growth), report.growth),
                Cell("kept" if point.kept else "broken"),
                Cell(folder),
            ]
        )
    return Table("Each load, from due to remembered", head, rows, id="curve")


def _label(found: Found) -> str:
    return {"wearers": "Wearers (lanes)", "× real time": "Rate (× real time)"}.get(
        found.unit, "Rate offered (observations/s)"
    )


def _value_axis(axis: Axes, found: Found, points: Sequence[Measured]) -> None:
    values = [point.value for point in points]
    if found.axis == "wearers":
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif max(values) > 20 * min(values):
        axis.set_xscale("log")
    axis.xaxis.set_major_formatter(NUMBERS)


def _marked(
    axis: Axes, points: Sequence[Measured], values: Sequence[float | None], number: int, label: str
) -> None:
    """A line through the medians of what each load came to, and each of them: full where the objective was kept."""
    known = [(point, value) for point, value in zip(points, values, strict=True) if value is not None]
    of: dict[float, list[float]] = {}
    for point, value in known:
        of.setdefault(point.value, []).append(value)
    line_of(axis, list(of), [median(each) for each in of.values()], number, label)
    for kept, fill in ((True, SERIES[number]), (False, "none")):
        some = [(point.value, value) for point, value in known if point.kept is kept]
        axis.scatter(
            [x for x, _ in some],
            [y for _, y in some],
            marker=MARKERS[number],
            facecolor=fill,
            edgecolor=SERIES[number],
            s=26,
            zorder=3,
        )


def _curve(found: Found, points: Sequence[Measured], *, of_answers: bool) -> Picture | None:
    """How late segments were remembered, or questions answered, against what was swept."""
    times = {
        name: [time_us(point.report.from_due(of_answers=of_answers), name) for point in points]
        for name in _DRAWN
    }
    known = [us for each in times.values() for us in each if us is not None]
    if not known:
        return None
    objective = Objective.parse(found.objective)
    limit_us = objective.limit_us if objective.field and objective.of_answers is of_answers else None
    highest_us = max(*known, limit_us or 0)
    unit = "s" if highest_us >= 10e6 else "ms"

    def plot(axis: Axes) -> None:
        divisor, _ = log_time_axis(axis, highest_us, min([*known, limit_us or highest_us]))
        for number, name in enumerate(_DRAWN):
            values = [None if us is None else max(1, us) / divisor for us in times[name]]
            _marked(axis, points, values, number, name)
        if limit_us:
            reference(axis, limit_us / divisor, found.objective)
        _value_axis(axis, found, points)

    what = "Answers" if of_answers else "Latency"
    title = f"{what} against {'wearers' if found.axis == 'wearers' else 'rate'}"
    alt = f"{title}; objective {found.objective}. {bracket_text(found)}"
    caption = (
        f"From due to {'received' if of_answers else 'remembered'}. Full marks are loads that kept the objective, "
        "hollow ones those that broke it; where a value was measured several times, the line goes through the median."
    )
    rows = [
        [
            number_cell(point.value, ",.6g"),
            *(time_cell(times[name][place]) for name in _DRAWN),
            Cell("kept" if point.kept else "broken"),
        ]
        for place, point in enumerate(points)
    ]
    table = Table(title, (_label(found), *_DRAWN, "objective"), rows)
    axes = (_label(found), f"Time since due ({unit}, log scale)")
    return Picture(
        Markup(draw("curve-answers" if of_answers else "curve", title, alt, axes, plot, 3.8)), caption, table
    )


def _growth(found: Found, points: Sequence[Measured]) -> Picture | None:
    values = [None if p.report.growth is None else max(0.0, p.report.growth) * 100 for p in points]
    known = [value for value in values if value is not None]
    if not known:
        return None

    def plot(axis: Axes) -> None:
        _marked(axis, points, values, 0, "growth of the worst lane")
        reference(axis, GROWS * 100, f"{GROWS:.0%}: keeps up below")
        _value_axis(axis, found, points)
        counts_from_zero(axis, max(*known, GROWS * 100))

    title = "Does lag grow?"
    y_label = "Later by (% of the time)"
    alt = f"{title} {y_label}: from {min(known):.1f} to {max(known):.1f}."
    caption = (
        "By how much later a segment is remembered for each second that passes, in the lane where it is most. A lane "
        "that can ingest half of what is offered has 100%."
    )
    table = numbers(title, (_label(found), y_label), zip((p.value for p in points), values, strict=True))
    return Picture(Markup(draw("growth", title, alt, (_label(found), y_label), plot, 3.0)), caption, table)


def _achieved(found: Found, points: Sequence[Measured]) -> Picture | None:
    pairs = [(p.report.offered_observations_per_s, p.report.achieved_observations_per_s) for p in points]
    known = [
        (offered, achieved) for offered, achieved in pairs if offered is not None and achieved is not None
    ]
    if not known:
        return None
    most = max(offered for offered, _ in known)

    def plot(axis: Axes) -> None:
        axis.plot(
            [0, most], [0, most], color=INK, linestyle=(0, (4, 3)), linewidth=1, label="all that is offered"
        )
        of: dict[float, list[tuple[float, float]]] = {}
        for offered, achieved in known:
            of.setdefault(round(offered, 6), []).append((offered, achieved))
        middle = [(each[0][0], median(y for _, y in each)) for _, each in sorted(of.items())]
        line_of(
            axis, [x for x, _ in middle], [y for _, y in middle], 0, "achieved, each load and their median"
        )
        axis.scatter([x for x, _ in known], [y for _, y in known], color=SERIES[0], s=18, zorder=3)
        axis.set_xlim(0, most * 1.05)
        axis.xaxis.set_major_formatter(NUMBERS)
        counts_from_zero(axis, max(most, *(achieved for _, achieved in known)))

    title = "Achieved against offered"
    labels = ("Offered (observations/s)", "Achieved (observations/s)")
    alt = f"{title}: at most {max(achieved for _, achieved in known):,.1f} observations per second were achieved."
    caption = "Where the line leaves the diagonal, the memory has no more to give."
    table = numbers(
        title, (_label(found), *labels), ((p.value, *pair) for p, pair in zip(points, pairs, strict=True))
    )
    return Picture(Markup(draw("achieved", title, alt, labels, plot, 3.2)), caption, table)
