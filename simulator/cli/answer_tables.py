"""What `egostream load` prints of the questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from simulator.cli import common

if TYPE_CHECKING:
    from consumers.answers import AnswersReport, AnswerTimes, Ratio
    from consumers.histogram import Percentiles

_ABOUT = {
    "published": "handed to the log",
    "read": "read by the agent",
    "begun": "answer begun",
    "first_token": "first token",
    "answered": "answered",
    "written": "answer handed to the log",
    "received": "answer read by a consumer",
    "branch": "the fork for it alone",
    "answer": "the answer alone",
}
_ON = {
    "fork": "on a fork of its newest snapshot, while ingest goes on",
    "turn": "in turn with its ingest, on its one memory",
    "unknown": "as its own agent does",
}


def show_answers(report: AnswersReport) -> None:
    """The questions of one load: while segments came in, and after."""
    common.say("")
    for system, on in report.on.items():
        common.say(f"questions  {system} answers {_ON[on]}")
    for part, times in (("loaded", report.loaded), ("idle", report.idle)):
        common.say(f"{part:9}  {_counted(times)}")
    if report.snapshot is not None:
        numbers = report.snapshot
        common.say(
            f"snapshots  {numbers.n:,} forked after an ingest: p50 {_time(numbers.p50_us)}, p99 "
            f"{_time(numbers.p99_us)}, max {_time(numbers.max_us)}, in no stage of the segments' own"
        )
    table = Table(title="\nTime since a question was due", title_justify="left", box=None)
    table.add_column("Stage")
    for name in ("n", "p50", "p90", "p99", "p99.9", "max", "p50/idle", "p99/idle"):
        table.add_column(name, justify="right")
    for title, times in (("while segments came in:", report.loaded), ("after, idle:", report.idle)):
        table.add_row(title, style="bold")
        ratios = report.ratios if times is report.loaded else {}
        for stage, about in _ABOUT.items():
            _row(table, f"  {about}", stage, times.stages[stage], ratios.get(stage))
        table.add_section()
    common.show(table)


def _counted(times: AnswerTimes) -> str:
    said = f"{times.answered:,} of {times.due:,} answered"
    if times.asked_per_s is not None:
        said += f", asked at {times.asked_per_s:,.1f}/s"
    if times.due and not times.asked:
        return f"{said}: none was asked"
    if times.failed or times.unfinished:
        said += (
            f", {times.failed:,} failed, {times.unfinished:,} unfinished: the percentiles hold for the others only, "
            "and are too low"
        )
    return said


def _row(table: Table, name: str, stage: str, numbers: Percentiles | None, ratio: Ratio | None) -> None:
    if numbers is None:
        # a stage that nobody reports is not one that took no time
        table.add_row(name, "not streamed" if stage == "first_token" else "0", *["–"] * 5)
        return
    values = (numbers.p50_us, numbers.p90_us, numbers.p99_us, numbers.p999_us, numbers.max_us)
    ratios = () if ratio is None else (_times(ratio.p50), _times(ratio.p99))
    table.add_row(name, f"{numbers.n:,}", *map(_time, values), *ratios)


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:,.2f}"


def _time(us: float) -> str:
    return f"{us / 1e3:,.1f} ms" if us < 10e6 else f"{us / 1e6:,.1f} s"
