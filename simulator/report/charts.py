"""Pictures as inline SVG: matplotlib draws them in stand-in colours, which are then the page's own, so that one picture
is legible in a light and in a dark scheme. Equal numbers give equal bytes.

Needs the extra `egostream[report]`: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

SERIES: Final = tuple(f"#0500{number:02x}" for number in range(1, 9))
"""Colours of what a picture shows, in the page as `--series-1` and so on."""
INK: Final = "#010101"
_MUTED: Final = "#020202"
GRID: Final = "#030303"
CARD: Final = "#040404"
"""What a picture lies on."""
_NAMES: Final = {INK: "ink", _MUTED: "muted", GRID: "grid", CARD: "card"} | {
    colour: f"series-{number}" for number, colour in enumerate(SERIES, 1)
}
DASHES: Final = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (9, 2)),
)
"""Lines differ by these too, for those who can't tell the colours apart."""
HATCHES: Final = ("", "///", "\\\\\\", "xxx", "---", "|||", "+++", "//")
"""So do areas. Dots would make an SVG ten times as large."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
NUMBERS: Final = FuncFormatter(lambda value, _: f"{value:,.10g}")
"""Ticks as numbers, without powers of ten."""
_WIDTH_IN: Final = 4.9
_LEGEND_LINE_IN: Final = 0.19
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
}

# Its notes on fonts are no concern of whoever reads a load's output.
logging.getLogger("matplotlib").setLevel(logging.ERROR)


def draw(
    name: str,
    title: str,
    alt: str,
    axes: tuple[str, str],
    plot: Callable[[Axes], None],
    height_in: float = 3.5,
) -> str:
    """An SVG element. `name`: unique in its page; `alt`: what it shows, for those who can't see it; `axes`: their
    labels, with units; `plot` draws into the axes. Blocking."""
    text = io.BytesIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # A label in letters that matplotlib's own font lacks is measured wrong, and drawn by the browser all the same.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        inside = figure.add_subplot()
        inside.set_title(title)
        inside.set_xlabel(axes[0])
        inside.set_ylabel(axes[1])
        plot(inside)
        handles, labels = inside.get_legend_handles_labels()
        if labels:
            labels = [label if len(label) <= 48 else f"{label[:24]}…{label[-23:]}" for label in labels]
            # as many columns as a line of text has room for
            columns = max(1, min(len(labels), 3, 66 // (max(map(len, labels)) + 8)))
            figure.set_figheight(height_in + _LEGEND_LINE_IN * -(-len(labels) // columns))
            figure.legend(handles, labels, loc="outside lower left", ncols=columns, handlelength=2.6)
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(text.getvalue().decode(), name, alt)


def _inline(svg: str, name: str, alt: str) -> str:
    """As part of a page: without the prologue, in the page's colours, with ids that are the picture's own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'xlink:href="#', f'href="#{name}-', svg)
    for colour, variable in _NAMES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    (view,) = re.findall(r'<svg [^>]*?(viewBox="[^"]*")', svg[: svg.index(">") + 1])
    head = f'<svg class="plot" id="plot-{name}" {view} role="img" aria-label="{escape(alt)}">'
    return head + svg[svg.index(">") + 1 :].strip()


def log_time_axis(axis: Axes, highest_us: float, lowest_us: float) -> tuple[float, str]:
    """Make the vertical axis one of times on a log scale: gives the microseconds of its unit, and the unit."""
    divisor, unit = time_unit(highest_us)
    low, high = max(1.0, lowest_us) / divisor / 1.3, max(1.0, highest_us) / divisor * 1.3
    high = max(high, low * 4)  # else there might be no number on it
    axis.set_yscale("log")
    axis.set_ylim(low, high)
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 300 else (1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(NUMBERS)
    axis.yaxis.set_minor_locator(NullLocator())
    return divisor, unit


def time_unit(highest_us: float) -> tuple[float, str]:
    """The microseconds of the unit that suits times up to this, and the unit."""
    return (1e6, "s") if highest_us >= 10e6 else (1e3, "ms")


def percentile_axis(axis: Axes, most: int) -> None:
    """Make the horizontal axis one of percentiles, spaced by 1/(1 - p), as far as so many values can tell."""
    axis.set_xscale("log")
    ticks = {1.0: "0", 2.0: "50", 10.0: "90", 100.0: "99"}
    digits = 1
    while 10 ** (digits + 2) <= most:
        ticks[10.0 ** (digits + 2)] = f"99.{'9' * digits}"
        digits += 1
    shown = {at: label for at, label in ticks.items() if at <= max(most, 2)}
    axis.xaxis.set_major_locator(FixedLocator(list(shown)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{shown.get(value, '')} %"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(1, max(most, 2) * 1.1)


def counts_from_zero(axis: Axes, highest: float, *, whole: bool = False) -> None:
    """Make the vertical axis one of amounts, from zero, with room for all of them. `whole`: numbers without a point."""
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole))
    axis.set_ylim(0, highest * 1.08 if highest > 0 else 1)
    axis.yaxis.set_major_formatter(NUMBERS)


def line_of(axis: Axes, x: Sequence[float], y: Sequence[float], number: int, label: str, **more: Any) -> None:
    """The line of the series with this number, from 0, in its colour and its dashes."""
    style = {"color": SERIES[number % len(SERIES)], "linestyle": DASHES[number % len(DASHES)], "label": label}
    axis.plot(x, y, **{**style, **more})


def reference(axis: Axes, y: float, label: str) -> None:
    """A dashed line across, to hold what is drawn against."""
    axis.axhline(y, color=INK, linestyle=(0, (4, 3)), linewidth=1, label=label)
