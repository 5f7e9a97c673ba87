"""Pictures of evaluation runs: shares with their intervals, what failed, and what it cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from consumers.scores import LABELS, Labels
from simulator.report.charts import CARD, GRID, HATCHES, MARKERS, NUMBERS, SERIES, draw
from simulator.report.parts import Cell, Picture, Table, count_cell, number_cell
from simulator.report.shares import Shown

_LEAST_HEIGHT_IN = 2.2
_LINE_IN = 0.17
_LABEL_CHARACTERS = 20
_LABEL_LINES = 2
_EXACT = "exact for rates (Clopper-Pearson)"
_NORMAL = "normal for means (± 1.96 standard errors)"
_UNLABELLED = "can't tell: unjudged"
_LABEL_COLOURS = (2, 7, 1, 3, 5, 0, 6)
"""No failure, the failures in the order of `LABELS`, what can't be told."""


class Systems:
    """The systems of a page: each has its colour, its mark and its hatching in all pictures. `privileged` ones are
    daggered."""

    def __init__(self, systems: Mapping[str, str]) -> None:
        self._names = dict(systems)
        self._numbers = {system: number for number, system in enumerate(systems)}

    def __len__(self) -> int:
        return len(self._names)

    def name(self, system: str) -> str:
        """As it stands on the page."""
        return self._names[system]

    def number(self, system: str) -> int:
        """Which of the page's series it is, from 0."""
        return self._numbers[system]


def interval_picture(
    name: str,
    title: str,
    axes: tuple[str, str],
    systems: Systems,
    rows: Mapping[str, Sequence[Shown]],
) -> Picture | None:
    """Shares as points with their intervals, a row for each label, the systems of a row below each other. `axes`: what
    the shares are, without the unit, and what the rows are. None where nothing was judged."""
    known = [each for shown in rows.values() for each in shown if each.value is not None]
    if not known:
        return None
    order = sorted({each.system for each in known}, key=systems.number)

    def plot(axis: Axes) -> None:
        places = list(range(len(rows)))[::-1]
        for line, system in enumerate(order):
            number = systems.number(system)
            colour, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
            offset = 0.35 - 0.7 * (line + 0.5) / len(order)
            label = systems.name(system)
            for place, shown in zip(places, rows.values(), strict=True):
                for each in shown:
                    if each.system != system or each.value is None:
                        continue
                    if each.interval is not None:
                        ends = [100 * each.interval.low, 100 * each.interval.high]
                        axis.plot(ends, [place + offset] * 2, color=colour, linewidth=2.2, alpha=0.55)
                    axis.scatter(
                        [100 * each.value], [place + offset], color=colour, marker=marker, s=24, zorder=3
                    )
            axis.scatter([], [], color=colour, marker=marker, s=24, label=label)
        axis.set_yticks(places, [_label(label) for label in rows])
        axis.set_ylim(-0.5, len(rows) - 0.5)
        axis.set_xlim(-3, 103)
        axis.grid(visible=False, axis="y")
        for place in places[:-1]:
            axis.axhline(place - 0.5, color=GRID, linewidth=0.7)
        axis.tick_params(axis="y", length=0)

    kinds = [_EXACT] * any(each.passed is not None for each in known)
    kinds += [_NORMAL] * any(each.passed is None and each.interval is not None for each in known)
    alt = f"{title}. " + "; ".join(
        f"{label}: " + ", ".join(f"{systems.name(e.system)} {share_text(e)}" for e in shown)
        for label, shown in rows.items()
    )
    height_in = max(_LEAST_HEIGHT_IN, 0.85 + len(rows) * max(0.36, _LINE_IN * len(order) + 0.12))
    svg = draw(name, title, alt, (f"{axes[0]} (%)", axes[1]), plot, height_in)
    caption = f"95% intervals, {' and '.join(kinds)}." if kinds else "Too few for intervals."
    return Picture(Markup(svg), caption, _numbers(title, axes[1], systems, rows))


def _numbers(title: str, by: str, systems: Systems, rows: Mapping[str, Sequence[Shown]]) -> Table:
    head = (by or "Metric", "System", "%", "passed", "judged", "unjudged", "from (%)", "to (%)")
    cells = [
        [
            Cell(label),
            Cell(systems.name(each.system)),
            _percent(each.value),
            number_cell(each.passed, ",d"),
            count_cell(each.n),
            count_cell(each.unjudged),
            _percent(None if each.interval is None else each.interval.low),
            _percent(None if each.interval is None else each.interval.high),
        ]
        for label, shown in rows.items()
        for each in shown
    ]
    return Table(title, head, cells)


def _percent(share: float | None) -> Cell:
    return number_cell(None if share is None else 100 * share, ".4g")


def share_text(shown: Shown | None) -> str:
    """A share with what it stands on, as the terminal's tables have it."""
    if shown is None:
        return "–"
    value = "–" if shown.value is None else f"{shown.value:.1%}"
    counted = f"n={shown.n}" if shown.passed is None else f"{shown.passed}/{shown.n}"
    left = f", {shown.unjudged}\N{NO-BREAK SPACE}unjudged" if shown.unjudged else ""
    return f"{value} ({counted}){left}"


def labels_picture(name: str, systems: Systems, labels: Sequence[Labels]) -> Picture | None:
    """Why trajectories failed, one bar a system; None where there is no trajectory."""
    kinds = ("no failure", *LABELS, _UNLABELLED)
    counts = {
        each.system: (
            each.no_failure,
            *(each.labels[label] for label in LABELS),
            sum(each.unlabelled.values()),
        )
        for each in labels
    }
    if not any(map(sum, counts.values())):
        return None
    shown = [place for place in range(len(kinds)) if any(of[place] for of in counts.values())]

    def plot(axis: Axes) -> None:
        places = list(range(len(counts)))[::-1]
        begun = [0] * len(counts)
        for place in shown:
            widths = [of[place] for of in counts.values()]
            number = _LABEL_COLOURS[place]
            colour = SERIES[number]
            axis.barh(
                places,
                widths,
                left=begun,
                height=0.62,
                color=colour,
                edgecolor=CARD,
                linewidth=1,
                hatch=HATCHES[shown.index(place)],
                label=kinds[place],
            )
            begun = [before + width for before, width in zip(begun, widths, strict=True)]
        _system_ticks(axis, systems, list(counts))
        axis.set_xlim(0, max(begun) * 1.02)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))

    title = "Where it went wrong"
    alt = f"{title}. " + "; ".join(
        f"{systems.name(system)}: " + ", ".join(f"{kinds[p]} {of[p]}" for p in shown)
        for system, of in counts.items()
    )
    rows = [
        [Cell(kind), *(count_cell(of[place]) for of in counts.values())] for place, kind in enumerate(kinds)
    ]
    table = Table(title, ("Trajectories (number)", *map(systems.name, counts)), rows)
    height_in = max(_LEAST_HEIGHT_IN, 0.9 + 0.4 * len(counts))
    svg = draw(name, title, alt, ("Trajectories (number)", ""), plot, height_in)
    caption = (
        "The first that applies: the evidence was not stored (formation); R1 failed, and all after it passed (initial "
        "evidence use); R_F failed too (feedback incorporation), or passed and R2 failed (correction consolidation); "
        "R1 passed and R2 failed (evidence-use persistence)."
    )
    return Picture(Markup(svg), caption, table)


def bars_picture(
    name: str, title: str, axis_label: str, systems: Systems, values: Mapping[str, float | None], caption: str
) -> Picture | None:
    """One amount of each system, from zero; None where there is nothing but zeros. `axis_label`: with the unit."""
    known = {system: value for system, value in values.items() if value is not None}
    if not any(known.values()):
        return None

    def plot(axis: Axes) -> None:
        for place, (system, value) in enumerate(reversed(known.items())):
            number = systems.number(system)
            axis.barh(
                [place],
                [value],
                height=0.62,
                color=SERIES[number % len(SERIES)],
            )
        _system_ticks(axis, systems, list(known))
        axis.set_xlim(0, max(known.values()) * 1.06)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=4))

    alt = f"{title}, {axis_label}. "
    alt += "; ".join(f"{systems.name(system)}: {value:,.4g}" for system, value in known.items())
    rows = [[Cell(systems.name(system)), number_cell(value, ",.6g")] for system, value in values.items()]
    height_in = max(_LEAST_HEIGHT_IN, 0.9 + 0.34 * len(known))
    svg = draw(name, title, alt, (axis_label, ""), plot, height_in)
    return Picture(Markup(svg), caption, Table(title, ("System", axis_label), rows))


def _system_ticks(axis: Axes, systems: Systems, shown: Sequence[str]) -> None:
    """A row for each system, the first on top."""
    axis.set_yticks(range(len(shown))[::-1], [_label(systems.name(system)) for system in shown])
    axis.set_ylim(-0.6, len(shown) - 0.4)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_formatter(NUMBERS)


def _label(text: str) -> str:
    """In lines that leave room for what is drawn beside them, broken where a system's options part."""
    lines = [""]
    for part in re.findall(r"[^:,/\s]+[:,/\s]*|[:,/\s]+", text):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > _LABEL_CHARACTERS:
            lines.append("")
        lines[-1] += part
    if len(lines) > _LABEL_LINES:
        lines = [*lines[: _LABEL_LINES - 1], "".join(lines[_LABEL_LINES - 1 :])]
    return "\n".join(
        line if len(line) <= _LABEL_CHARACTERS else f"{line[: _LABEL_CHARACTERS - 1]}…"
        for line in map(str.strip, lines)
    )
