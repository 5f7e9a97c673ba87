"""What `egostream load` prints of the questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from simulator.cli import common
from simulator.report.words import (
    ANSWER_STAGES,
    ANSWERED_ON,
    NOTHING,
    answered_text,
    error_text,
    is_marked,
    ratio_text,
    stage_texts,
    time_text,
    unreported_text,
)

if TYPE_CHECKING:
    from consumers.answers import AnswersReport, AnswerTimes, Ratio


def show_answers(report: AnswersReport) -> None:
    """The questions of one load: while segments came in, and after."""
    common.say("")
    for system, on in report.on.items():
        common.say(f"questions  {system} answers {ANSWERED_ON[on]}")
    for part, times in (("loaded", report.loaded), ("idle", report.idle)):
        common.say(f"{part:9}  {answered_text(times)}")
    if report.snapshot is not None:
        numbers = report.snapshot
        common.say(
            f"snapshots  {numbers.n:,} forked after an ingest: p50 {time_text(numbers.p50_us)}, p99 "
            f"{time_text(numbers.p99_us)}, max {time_text(numbers.max_us)}, in no stage of the segments' own"
        )
    table = Table(title="\nTime since a question was due", title_justify="left", box=None)
    table.add_column("Stage")
    for name in ("n", "p50", "p90", "p99", "p99.9", "max", "p50/idle", "p99/idle"):
        table.add_column(name, justify="right")
    marked = False
    for title, times in (("while segments came in:", report.loaded), ("after, idle:", report.idle)):
        table.add_row(title, style="bold")
        ratios = report.ratios if times is report.loaded else {}
        for stage, about in ANSWER_STAGES.items():
            error_us = report.error_us.get(stage, 0.0)
            name = f"  {about}{' †' if error_us else ''}"
            marked |= is_marked(_row(table, name, stage, times, ratios.get(stage), error_us))
        table.add_section()
    common.show(table)
    if report.error_us:
        common.say(error_text(max(report.error_us.values()), marked=marked))


def _row(
    table: Table, name: str, stage: str, times: AnswerTimes, ratio: Ratio | None, error_us: float
) -> list[str]:
    """Gives the times as they are shown."""
    numbers = times.stages[stage]
    if numbers is None:
        table.add_row(name, unreported_text(stage, times), *(values := [NOTHING] * 5))
        return values
    ratios = () if ratio is None else (ratio_text(ratio.p50), ratio_text(ratio.p99))
    values = stage_texts(numbers, times.stages["published"], error_us)
    table.add_row(name, f"{numbers.n:,}", *values, *ratios)
    return values
