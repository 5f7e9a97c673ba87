"""Two memory systems under the same load, round by round: what their ratio is, and whether that says anything. Pure.

A and B are loaded one after the other, and each round swaps who is first, so that a machine that becomes slower or
faster hits both alike. So A is held against B of the same round: the ratio of each round is one value, and what is told
is the median of those with its exact interval (`simulator.load.confidence.of_median`). It says that one is better only
where the whole interval does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from consumers.histogram import fewest_of
from consumers.latency import FEWEST_ACHIEVED, LatencyReport
from simulator.counts import counted
from simulator.load.confidence import Interval, of_median

Side = Literal["A", "B"]
Says = Literal["A", "B", "none", "unjudged"]
Better = Literal["lower", "higher"]

LEAST_ROUNDS: Final = 5
"""With fewer, no interval of a median holds often enough to say anything."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One load of each, and which of them was first."""

    first: Side
    a: LatencyReport
    b: LatencyReport


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of both. `a` and `b`: their medians over the rounds. `ratios`: A / B of each round, None where there
    is none; `median`: the middle one (the geometric mean of two), `low` and `high`: their spread, `interval`: where the
    median lies. `says`: which one is better, that no difference is seen, or that it can't be told, for the `reason`."""

    name: str
    unit: str
    better: Better
    a: float | None
    b: float | None
    ratios: tuple[float | None, ...]
    median: float | None
    low: float | None
    high: float | None
    interval: Interval | None
    says: Says
    reason: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison came to. `systems`: A and B, as they were asked for. `reason`: why it ended before all rounds
    were measured; empty where none is lacking."""

    systems: tuple[str, str]
    figures: tuple[Figure, ...]
    rounds: tuple[Round, ...]
    reason: str = ""

    @property
    def told(self) -> bool:
        """Whether no round is lacking and every figure could be told, be it that no difference is seen."""
        return not self.reason and all(figure.says != "unjudged" for figure in self.figures)

    @property
    def few(self) -> dict[str, int]:
        """Each percentile of which a load had too few values for it to be more than the greatest of them: how many the
        one with the fewest had."""
        reports = [report for each in self.rounds for report in (each.a, each.b)]
        found = {
            f"{of}{name}": fewest_of(
                f"{name}_us", (report.from_due(of_answers=bool(of)) for report in reports)
            )
            for of in ("", "answer ")
            for name in ("p50", "p99")
        }
        return {name: fewest for name, fewest in found.items() if fewest is not None}


def round_folder(number: int, side: Side) -> str:
    """The folder, in the comparison's, of one load of the n-th round."""
    return f"{number:02d}-{side}"


def compare(systems: tuple[str, str], rounds: Sequence[Round], reason: str = "") -> Comparison:
    """Hold A against B in every figure. `reason`: why there are no more rounds, where some are lacking."""
    incomplete = _incomplete(rounds)
    figures = []
    asked = any(report.answers is not None for each in rounds for report in (each.a, each.b))
    for name, unit, better, value, needs in (*_FIGURES, *(_ANSWERS if asked else ())):
        pairs = [(value(each.a), value(each.b)) for each in rounds]
        figures.append(hold_against(name, unit, better, pairs, reason=incomplete, needs=needs))
    return Comparison(systems=systems, figures=tuple(figures), rounds=tuple(rounds), reason=reason)


def hold_against(
    name: str,
    unit: str,
    better: Better,
    pairs: Sequence[tuple[float | None, float | None]],
    *,
    reason: str = "",
    needs: str = "a value above zero in every load",
) -> Figure:
    """One figure of all rounds. `reason`: why it must not be told, although it can be counted; `needs`: what it takes
    to have a ratio."""
    ratios = [None if a is None or b is None or a <= 0 or b <= 0 else a / b for a, b in pairs]
    known = [ratio for ratio in ratios if ratio is not None]
    interval = of_median(known)
    if not reason and len(known) < len(ratios):
        number = ratios.index(None) + 1
        reason = f"{name} has no ratio in round {number}: it needs {needs}"
    if not reason and interval is None:
        reason = (
            f"{counted(len(known), 'round is', 'rounds are')} too few to tell: take {LEAST_ROUNDS} or more"
        )
    says: Says = "none"
    if reason or interval is None:
        says = "unjudged"
    elif interval.high < 1:
        says = "A" if better == "lower" else "B"
    elif interval.low > 1:
        says = "B" if better == "lower" else "A"
    return Figure(
        name=name,
        unit=unit,
        better=better,
        a=_middle([a for a, _ in pairs if a is not None]),
        b=_middle([b for _, b in pairs if b is not None]),
        ratios=tuple(ratios),
        median=_middle(known),
        low=min(known, default=None),
        high=max(known, default=None),
        interval=interval,
        says=says,
        reason=reason,
    )


def _incomplete(rounds: Sequence[Round]) -> str:
    """Why latencies must not be held against each other: what failed or was not finished has none, so the worse of two
    systems might look faster. Empty where all was remembered."""
    for number, each in enumerate(rounds, 1):
        for side, report in (("A", each.a), ("B", each.b)):
            if report.failed or report.unfinished:
                return (
                    f"{side} left {report.failed:,} failed and {report.unfinished:,} unfinished of {report.segments:,} "
                    f"segments in round {number}: the figures hold for the others only"
                )
            answers = None if report.answers is None else report.answers.loaded
            if answers is not None and (answers.failed or answers.unfinished):
                return (
                    f"{side} left {answers.failed:,} failed and {answers.unfinished:,} unfinished of {answers.due:,} "
                    f"questions in round {number}: the figures hold for the others only"
                )
    return ""


def _middle(values: Sequence[float]) -> float | None:
    """The middle value; of two, their geometric mean, so that B / A has the inverse of A / B."""
    if not values:
        return None
    ordered, half = sorted(values), len(values) // 2
    if len(values) % 2:
        return ordered[half]
    return math.sqrt(ordered[half - 1] * ordered[half])


def _time(field: str, *, of_answers: bool = False) -> Callable[[LatencyReport], float | None]:
    def value(report: LatencyReport) -> float | None:
        numbers = report.from_due(of_answers=of_answers)
        return None if numbers is None else float(getattr(numbers, field))

    return value


def _stretch(report: LatencyReport) -> float | None:
    """Seconds that pass for a second of what is offered. Growth itself is about zero for all that keep up, and has no
    ratio; that of this is the ratio of the shares that two overloaded lanes can ingest."""
    return None if report.growth is None else 1 + max(report.growth, 0.0)


def _cpu_s_per_segment(report: LatencyReport) -> float | None:
    """Of all processes and their children."""
    per_s = report.achieved_segments_per_s
    cpu = sum(use.cpu + use.children_cpu for use in report.processes)
    return cpu / per_s if per_s and cpu else None


_SOME = "a segment that was remembered after it was due"
_Kind = tuple[str, str, Better, Callable[[LatencyReport], float | None], str]
"""Name, unit, which is better, the value of one load, and what it takes to have one."""
_ASKED = "a question that was answered after it was due"
_ANSWERS: Final[tuple[_Kind, ...]] = (
    ("answer p50", "us", "lower", _time("p50_us", of_answers=True), _ASKED),
    ("answer p99", "us", "lower", _time("p99_us", of_answers=True), _ASKED),
)
_FIGURES: Final[tuple[_Kind, ...]] = (
    ("p50", "us", "lower", _time("p50_us"), _SOME),
    ("p99", "us", "lower", _time("p99_us"), _SOME),
    ("max", "us", "lower", _time("max_us"), _SOME),
    (
        "achieved",
        "obs/s",
        "higher",
        lambda report: report.achieved_observations_per_s,
        f"{FEWEST_ACHIEVED} segments or more",
    ),
    ("1 + growth", "s/s", "lower", _stretch, "eight segments of a lane: take a longer --duration"),
    (
        "CPU per segment",
        "s",
        "lower",
        _cpu_s_per_segment,
        f"{FEWEST_ACHIEVED} segments, and two samples, one a second: take a longer --duration",
    ),
)
