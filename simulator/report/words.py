"""Results in words and with units, as the command line and the page both say them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from simulator.counts import counted

if TYPE_CHECKING:  # they need the extra `load`, and `egostream load --help` does without it
    from consumers.answers import AnswerTimes
    from consumers.clocks import ClockOffset
    from consumers.histogram import Percentiles
    from consumers.latency import LatencyReport
    from simulator.load.comparison import Comparison, Figure
    from simulator.load.confidence import Interval
    from simulator.load.sweep import End, Found

STAGES: Final = {
    "published": "handed to the log",
    "read": "read by the agent",
    "begun": "ingest begun",
    "ended": "ingest ended",
    "written": "delta handed to the log",
    "remembered": "delta read by a consumer",
    "ingest": "the ingest alone",
    "from_send": "as measured from the send",
}
ANSWER_STAGES: Final = {
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
ANSWERED_ON: Final = {
    "fork": "on a fork of its newest snapshot, while ingest goes on",
    "turn": "in turn with its ingest, on its one memory",
    "unknown": "as its own agent does",
}
CLOCK_ERROR: Final = (
    "Stages with ± are by another clock: a smaller difference from another stage says nothing."
)
CLOCK_MARK: Final = "~ marks what lies, by half or more, within that error."
NOTHING: Final = "–"
_SAYS: Final = {
    "p50": "is faster",
    "p99": "is faster",
    "max": "is faster",
    "achieved": "achieves more",
    "1 + growth": "falls behind less",
    "CPU per segment": "takes less",
    "answer p50": "is faster",
    "answer p99": "is faster",
}


def time_text(us: float | None) -> str:
    """Microseconds, with the unit in which they can be read."""
    if us is None:
        return NOTHING
    if us < 1e3:
        return f"{us:,.0f} µs"
    return f"{us / 1e3:,.1f} ms" if us < 10e6 else f"{us / 1e6:,.1f} s"


def stage_texts(of: Percentiles, sent: Percentiles | None, error_us: float) -> list[str]:
    """p50, p90, p99, p99.9 and max of a stage. `error_us`: how far off they may be; ~ marks one of which half or more
    of what lies between it and the handing to the log (`sent`) is within that."""
    values, since = _values(of), _values(sent) if sent is not None else (0,) * 5
    return [
        f"{'~' if error_us and value - before <= 2 * error_us else ''}{time_text(value)}"
        for value, before in zip(values, since, strict=True)
    ]


def unreported_text(stage: str, times: AnswerTimes) -> str:
    """What stands for the number of a stage that no answer reported; one that was not streamed is not one that took no
    time, and of no answers nobody knows."""
    return "not streamed" if stage == "first_token" and times.answered else "0"


def is_marked(texts: Iterable[str]) -> bool:
    """Whether `stage_texts` marked one of these."""
    return any(text.startswith("~") for text in texts)


def error_text(error_us: float, *, marked: bool) -> str:
    """What the marks of a table mean whose stages another clock took; `marked`: some of its values have one."""
    known = (
        f"† by a clock that is known within ± {time_text(error_us)} (clock error): a smaller difference from a row "
        "without † says nothing."
    )
    if not marked:
        return known
    return (
        f"{known}\n~ of what lies between it and the handing to the log, half or more is within that error."
    )


def _values(of: Percentiles) -> tuple[int, ...]:
    return of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us


def rate_text(per_s: float | None) -> str:
    """So many each second."""
    return NOTHING if per_s is None else f"{per_s:,.1f}"


def growth_text(growth: float | None) -> str:
    """By how much later each second, as a share."""
    return NOTHING if growth is None else f"{growth:.1%}"


def clock_text(clock: ClockOffset) -> str:
    """Whose clock it is, and how far it is ahead of the replayer's."""
    whose = f"{clock.role} ({f'boot {clock.boot}' if clock.boot else 'it does not say whose'})"
    if clock.offset_us is None or clock.error_us is None:
        return f"{whose} is not known, nor any time by it: {clock.reason}"
    which = "ahead of" if clock.offset_us >= 0 else "behind"
    known = (
        f"{whose} is {time_text(abs(clock.offset_us))} {which} the replayer's, ± {time_text(clock.error_us)}, by "
        f"{clock.exchanges:,} exchanges"
    )
    return f"{known}; {clock.reason}" if clock.reason else known


def remembered_text(report: LatencyReport) -> str:
    """How many segments came through."""
    done = f"{report.remembered:,} of {counted(report.segments, 'segment')} remembered"
    if report.failed or report.unfinished:
        done += (
            f", {report.failed:,} failed, {report.unfinished:,} unfinished: "
            "the percentiles hold for the others only, and are too low"
        )
    return f"{done}."


def steered_text(report: LatencyReport) -> str:
    """That somebody changed the pace meanwhile; empty where nobody did."""
    if not report.steered:
        return ""
    times = "once" if report.steered == 1 else f"{report.steered:,} times"
    return (
        f"The replay was told {times} to pause, go on or keep another rate: what was offered is not the load that was "
        "asked for."
    )


def value_text(value: float, unit: str) -> str:
    """A value of a sweep with its unit."""
    return f"{value:,.6g} {unit.removesuffix('s') if value == 1 and unit == 'wearers' else unit}"


def bracket_text(found: Found) -> str:
    """What a sweep answers, in a sentence."""
    low, high = found.highest_kept, found.lowest_broken
    if low is None and high is None:
        return "Nothing was measured."
    if low is None:
        assert high is not None
        return (
            f"Nothing in reach keeps it: {value_text(high.value, found.unit)} is the lowest that was tried."
        )
    if high is None:
        return (
            f"Nothing in reach breaks it: {value_text(low.value, found.unit)} is the highest that was tried."
        )
    agreed = low.agreed and high.agreed
    sure = "" if agreed else "; the measurements at an end do not agree, so measure for a longer time"
    apart = f" ({high.value / low.value - 1:.1%} apart)" if found.axis == "rate" else ""
    return f"The most that keeps it lies between {low.value:,.6g} and {high.value:,.6g} {found.unit}{apart}{sure}."


def lacking_text(found: Found | Comparison) -> list[str]:
    """What the answer of a sweep or of a comparison lacks, in sentences."""
    said = [f"It goes no further: {found.reason}."] if found.reason else []
    said += [
        f"{percentile} is no more than the longest time where a load has few values, and one had {fewest:,}: take a "
        "longer --duration."
        for percentile, fewest in found.few.items()
    ]
    return said


def end_text(end: End | None, unit: str) -> str:
    """One end of a sweep, with what it stands on."""
    if end is None:
        return "nothing in reach"
    said = f"{value_text(end.value, unit)}: kept in {end.kept_times} of {counted(end.of, 'measurement')}"
    if end.chance is None:
        return f"{said}, too few to give a chance (--again 3 does)"
    return f"{said}; measured again, its chance of keeping it lies in {_shares(end.chance)}"


def _shares(interval: Interval) -> str:
    """An exact interval of a chance."""
    return f"{interval.low:.0%} to {interval.high:.0%} ({interval.level:.0%} interval, Clopper-Pearson)"


def says_text(figure: Figure) -> str:
    """What a comparison says of one figure."""
    if figure.says == "unjudged":
        return f"not told: {figure.reason}"
    return "no difference seen" if figure.says == "none" else f"{figure.says} {_SAYS[figure.name]}"


def interval_text(interval: Interval | None) -> str:
    """Where a median ratio lies."""
    if interval is None:
        return NOTHING
    return f"{interval.low:.3f} to {interval.high:.3f}"


def spread_text(figure: Figure) -> str:
    """From the least ratio to the greatest."""
    return NOTHING if figure.low is None else f"{figure.low:.3f} to {figure.high:.3f}"


def level_text(figures: Iterable[Figure]) -> str:
    """The level, or levels, of the figures' intervals, as a heading has it; empty where there is none."""
    levels = sorted({figure.interval.level for figure in figures if figure.interval is not None})
    return "".join(f", {level:.1%}" for level in levels)


def figure_text(figure: Figure, value: float | None) -> str:
    """A figure's value with its unit."""
    if value is None:
        return NOTHING
    if figure.unit == "us":
        return time_text(value)
    return f"{value:,.4g} {figure.unit}"


def answered_text(times: AnswerTimes) -> str:
    """How many questions of a part were answered."""
    said = f"{times.answered:,} of {times.due:,} answered"
    if times.asked_per_s is not None:
        said += f", asked at {times.asked_per_s:,.1f}/s"
    if times.due and not times.asked:
        return f"{said}: none was asked"
    if times.failed or times.unfinished:
        not_asked = f" ({times.due - times.asked:,} of them not asked)" if times.asked < times.due else ""
        said += (
            f", {times.failed:,} failed, {times.unfinished:,} unfinished{not_asked}: the percentiles hold for the "
            "others only, and are too low"
        )
    return said


def ratio_text(ratio: float | None) -> str:
    """How many times as long."""
    return NOTHING if ratio is None else f"{ratio:,.2f}"
