"""The page of one load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from markupsafe import Markup
from matplotlib.axes import Axes

from consumers.histogram import Percentiles
from consumers.lags import STAGES
from consumers.latency import BESIDE, LatencyReport
from consumers.process_use import ProcessUse
from simulator.counts import counted
from simulator.load.sweep import GROWS
from simulator.report.answers_section import answers_section
from simulator.report.charts import (
    SERIES,
    counts_from_zero,
    draw,
    line_of,
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
    time_cell,
)
from simulator.report.percentiles import percentile_picture
from simulator.report.words import (
    CLOCK_ERROR,
    CLOCK_MARK,
    NOTHING,
    clock_text,
    growth_text,
    is_marked,
    rate_text,
    remembered_text,
    stage_texts,
    time_text,
)
from simulator.report.words import STAGES as ABOUT

_SINCE = "Seconds since the first segment was due (s)"
_MOST_BINS = 60


def load_page(report: LatencyReport) -> Page:
    """What a load came to."""
    system = report.identity.get("systems") or ", ".join(report.systems)
    remembered = report.stages["remembered"]
    highest = report.highest
    answer = [remembered_text(report)]
    if remembered is not None:
        answer.append(
            f"Half were remembered within {time_text(remembered.p50_us)} of being due, 99% within "
            f"{time_text(remembered.p99_us)}, all within {time_text(remembered.max_us)}."
        )
    if report.growth is not None:
        keeps = "it keeps up" if report.growth < GROWS else "it falls ever further behind"
        answer.append(
            f"Lateness grows by {growth_text(max(0.0, report.growth))} of the time that passes: {keeps}."
        )
    tiles = {
        "p50, due to remembered": time_text(time_us(remembered, "p50")),
        "p99": time_text(time_us(remembered, "p99")),
        "longest": time_text(time_us(remembered, "max")),
        "achieved of offered, observations/s": f"{rate_text(report.achieved_observations_per_s)} of "
        f"{rate_text(report.offered_observations_per_s)}",
        "furthest behind": counted(highest.segments, "segment") if report.lag else NOTHING,
        "of life": f"{highest.event_time_s:,.0f} s" if report.lag else NOTHING,
    }
    return Page(
        title=f"Load of {system}",
        answer=answer,
        warnings=[*warnings_of(report), *_growing(report), *_of_few(remembered)],
        tiles=tiles,
        facts=facts_of(report, [system]),
        sections=[
            _latency(report),
            *([] if report.answers is None else [answers_section(report.answers)]),
            *_over_time(report),
            *_processes(report),
        ],
    )


def _growing(report: LatencyReport) -> list[str]:
    if report.growth is None or report.growth < GROWS:
        return []
    return [
        f"Lag grows by {growth_text(report.growth)} of the time that passes, so all times depend on how long the load "
        "was: of a longer one they would be higher."
    ]


def _of_few(remembered: Percentiles | None) -> list[str]:
    """A percentile of too few values is their greatest."""
    if remembered is None or remembered.n >= 1000:
        return []
    which = "p99 and p99.9 are" if remembered.n < 100 else "p99.9 is"
    return [
        f"Of {remembered.n:,} segments, {which} no more than the greatest value: offer more for a longer time."
    ]


def _latency(report: LatencyReport) -> Section:
    rows = [_row("observation handed to the log", report.pacing)]
    sent = report.stages.get("published")
    for name in (*STAGES, *BESIDE):
        error_us = report.error_us.get(name, 0.0)
        about = f"{ABOUT[name]} (± {time_text(error_us)})" if error_us else ABOUT[name]
        rows.append(_row(about, report.stages.get(name), sent, error_us))
    head = ("Stage", "n", "mean", "p50", "p90", "p99", "p99.9", "max")
    tables = [
        Table("Time since due, of each stage; the last two do not run from due", head, rows, id="stages")
    ]
    if len(report.by_lane) > 1:
        lanes = [_row(lane, of_lane) for lane, of_lane in report.by_lane.items()]
        tables.append(Table("From due to remembered, of each lane", ("Lane", *head[1:]), lanes, id="lanes"))
    pictures = [
        percentile_picture(
            "stages",
            "Latency by percentile, each stage",
            {ABOUT[name]: report.stages.get(name) for name in reversed(STAGES)},
            "Each line is the time from due until a stage was reached. Read up from a percentile: so many segments had "
            "reached it within that time. Where two lines part is where the time goes.",
        ),
        percentile_picture(
            "hidden",
            "What a measure from the send would hide",
            {
                "from due to remembered": report.stages.get("remembered"),
                "from send to remembered": report.stages.get("from_send"),
                "the ingest alone": report.stages.get("ingest"),
            },
            "A stall delays all that falls due meanwhile. Measured from due, that counts for every segment; measured "
            "from the send, or of the ingest alone, for one.",
        ),
    ]
    known = [clock_text(clock) + "." for clock in report.clocks]
    if report.error_us:
        known.append(CLOCK_ERROR)
        if is_marked(cell.text for row in rows for cell in row):
            known.append(CLOCK_MARK)
    text = "Every time runs from the moment at which a segment was due, not from when it was sent."
    return Section(
        "How late", " ".join([text, *known]), tables, [picture for picture in pictures if picture is not None]
    )


def _row(
    name: str, of: Percentiles | None, sent: Percentiles | None = None, error_us: float = 0.0
) -> list[Cell]:
    """`error_us`: how far off these numbers may be; `sent`: those from which on it counts."""
    if of is None:
        return [Cell(name), count_cell(0), *[time_cell(None)] * 6]
    times = [of.mean_us, of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us]
    texts = [time_text(of.mean_us), *stage_texts(of, sent, error_us)]
    return [Cell(name), count_cell(of.n), *map(Cell, texts, times)]


def _over_time(report: LatencyReport) -> list[Section]:
    points = report.lag
    if not points:
        return []
    at_s = [point.at_s for point in points]
    lags: list[tuple[str, str, str, list[float], float, str]] = [
        (
            "lag-segments",
            "Lag over time, in segments",
            "Segments behind (count)",
            [point.mean_segments for point in points],
            float(report.highest.segments),
            "Segments that were due and not yet remembered, of all lanes together, on average over each step. A line "
            "that goes on rising is a memory that does not keep up.",
        ),
        (
            "lag-life",
            "Lag over time, in seconds of life",
            "Life behind (s of event time)",
            [point.event_time_s for point in points],
            report.highest.event_time_s,
            "How much of life the lane furthest behind has yet to remember. A segment stands for five minutes, so the "
            "lag is never less than that from when one is due until it is remembered.",
        ),
    ]
    pictures: list[Picture] = []
    for name, title, y_label, values, highest, caption in lags:

        def plot(axis: Axes, values: Sequence[float] = values, highest: float = highest) -> None:
            line_of(axis, at_s, values, 0, "lag", drawstyle="steps-pre")
            axis.fill_between(at_s, values, step="pre", alpha=0.15, color=SERIES[0], linewidth=0)
            reference(axis, highest, f"highest at any moment: {highest:,.0f}")
            counts_from_zero(axis, highest, whole=True)
            axis.set_xlim(0, max(at_s) or 1)

        alt = f"{title}: at most {highest:,.0f} at any moment, at the end {values[-1]:,.4g}."
        table = numbers(title, (_SINCE, y_label), zip(at_s, values, strict=True))
        pictures.append(Picture(Markup(draw(name, title, alt, (_SINCE, y_label), plot, 2.9)), caption, table))
    if points[-1].due_observations:
        pictures.append(_rates(report))
    text = (
        f"{rate_text(report.offered_observations_per_s)} observations/s were offered, "
        f"{rate_text(report.achieved_observations_per_s)} remembered; lag was at most "
        f"{counted(report.highest.segments, 'segment')} or {report.highest.event_time_s:,.0f} s of life."
    )
    return [Section("Over time", text, pictures=pictures)]


def _rates(report: LatencyReport) -> Picture:
    """How fast observations fell due and were remembered, in stretches of the load."""
    points = report.lag
    # some ten segments in each, or the rates would be those of one segment more or less
    step = math.ceil(len(points) / min(_MOST_BINS, max(5, report.segments // 10)))
    inner = points[:-1:step]
    if len(inner) > 1 and points[-1].at_s - inner[-1].at_s < (inner[1].at_s - inner[0].at_s) / 2:
        inner = inner[:-1]  # what is left over is no stretch of its own
    chosen = [*inner, points[-1]]
    bins = [(before, now) for before, now in pairwise(chosen) if now.at_s > before.at_s]
    rows = [
        (
            before.at_s,
            now.at_s,
            (now.due_observations - before.due_observations) / (now.at_s - before.at_s),
            (now.remembered_observations - before.remembered_observations) / (now.at_s - before.at_s),
        )
        for before, now in bins
    ]
    title, y_label = "Observations offered and remembered", "Observations per second (1/s)"

    def plot(axis: Axes) -> None:
        edges = [0.0, *(row[1] for row in rows)]
        for number, (label, column) in enumerate((("offered", 2), ("remembered", 3))):
            values = [row[column] for row in rows]
            line_of(axis, edges, [*values, *values[-1:]], number, label, drawstyle="steps-post")
        counts_from_zero(axis, max((max(row[2:]) for row in rows), default=0.0))
        axis.set_xlim(0, edges[-1] or 1)

    alt = (
        f"{title}: {rate_text(report.offered_observations_per_s)} per second offered and "
        f"{rate_text(report.achieved_observations_per_s)} remembered, on the whole."
    )
    table = numbers(title, ("From (s)", "To (s)", "Offered (1/s)", "Remembered (1/s)"), rows)
    caption = (
        "Observations count when their segment is due, and when it is remembered: with few segments a second, both "
        "come in steps."
    )
    return Picture(Markup(draw("rates", title, alt, (_SINCE, y_label), plot, 3.1)), caption, table)


def _processes(report: LatencyReport) -> list[Section]:
    if not report.processes:
        return []
    head = (
        "Process",
        "samples",
        "processor",
        "children's",
        "memory",
        "children's",
        "loop late, median",
        "longest",
    )
    rows = [
        [
            Cell(use.process),
            count_cell(use.samples),
            number_cell(use.cpu, ".0%"),
            number_cell(use.children_cpu, ".0%"),
            *(
                Cell(f"{size / 2**20:,.0f} MiB", size)
                for size in (use.rss_max_bytes, use.children_rss_max_bytes)
            ),
            time_cell(use.loop_lag_p50_us),
            time_cell(use.loop_lag_max_us),
        ]
        for use in report.processes
    ]
    # In the order of their work: with more processes than colours, the least busy are in the table alone.
    drawn = sorted(
        (use for use in report.processes if use.points), key=lambda use: -use.cpu - use.children_cpu
    )[:8]
    pictures = []
    if drawn:
        pictures = [
            _use_picture(
                drawn,
                "cpu",
                ("Processor time of each process", "Processor (% of a core)"),
                lambda use: [point.cpu * 100 for point in use.points],
                "With the processes that it started. At 100% a process of one thread has no more to give.",
            ),
            _use_picture(
                drawn,
                "loop",
                ("Lateness of each event loop", "Longest lateness (ms)"),
                lambda use: [point.loop_lag_us / 1e3 for point in use.points],
                "The longest, of each second, that the process's own event loop came late to a timer of 10 ms: while "
                "it is late, nothing in that process goes on.",
            ),
            _use_picture(
                drawn,
                "memory",
                ("Memory of each process", "Resident memory (MiB)"),
                lambda use: [point.rss_bytes / 2**20 for point in use.points],
                "With the processes that it started.",
            ),
        ]
    table = Table("Share of one core, highest resident memory, event loop", head, rows, id="processes")
    return [Section("Processes", "", [table], pictures)]


def _use_picture(
    uses: Sequence[ProcessUse],
    name: str,
    titles: tuple[str, str],
    values: Callable[[ProcessUse], list[float]],
    caption: str,
) -> Picture:
    title, y_label = titles

    def plot(axis: Axes) -> None:
        for number, use in enumerate(uses):
            marker = {"marker": "o", "markersize": 3} if len(use.points) < 40 else {}
            line_of(axis, [point.at_s for point in use.points], values(use), number, use.process, **marker)
        counts_from_zero(axis, max(max(values(use)) for use in uses))

    alt = f"{title}. " + "; ".join(f"{use.process}: at most {max(values(use)):,.4g}" for use in uses)
    rows = [
        [Cell(use.process), number_cell(point.at_s, ",.6g"), number_cell(value, ",.6g")]
        for use in uses
        for point, value in zip(use.points, values(use), strict=True)
    ]
    table = Table(title, ("Process", _SINCE, y_label), rows)
    return Picture(Markup(draw(name, title, alt, (_SINCE, y_label), plot, 3.0)), caption, table)
