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
    ratio_text,
    time_text,
)

if TYPE_CHECKING:
    from consumers.answers import AnswersReport, Ratio
    from consumers.histogram import Percentiles


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
    for title, times in (("while segments came in:", report.loaded), ("after, idle:", report.idle)):
        table.add_row(title, style="bold")
        ratios = report.ratios if times is report.loaded else {}
        for stage, about in ANSWER_STAGES.items():
            _row(table, f"  {about}", stage, times.stages[stage], ratios.get(stage))
        table.add_section()
    common.show(table)


def _row(table: Table, name: str, stage: str, numbers: Percentiles | None, ratio: Ratio | None) -> None:
    if numbers is None:
        # a stage that nobody reports is not one that took no time
        table.add_row(name, "not streamed" if stage == "first_token" else "0", *[NOTHING] * 5)
        return
    values = (numbers.p50_us, numbers.p90_us, numbers.p99_us, numbers.p999_us, numbers.max_us)
    ratios = () if ratio is None else (ratio_text(ratio.p50), ratio_text(ratio.p99))
    table.add_row(name, f"{numbers.n:,}", *map(time_text, values), *ratios)
