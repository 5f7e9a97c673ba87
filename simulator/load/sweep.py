"""The search for the most that keeps an objective: bracketing, then bisection. Pure: it is told what each load came to.

What is swept is a factor on the load's rate, or the number of wearers. Whether a load keeps the objective is one
measurement of a noisy thing. One that broke it ends the search above it, and a machine that does other things for a
moment breaks it as well: so that is believed of a value only once it was measured twice, or by two of three where those
do not agree. The two ends of what was found are measured again, and all that they said is reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from consumers.histogram import Percentiles, fewest_of
from consumers.latency import LatencyReport
from simulator.counts import counted
from simulator.errors import ConfigError
from simulator.load.confidence import Interval, chance

LAG: Final = "lag"
GROWS: Final = 0.02
"""A lane keeps up if its lateness grows by less than this share of the time that passes."""
_PERCENTILE = re.compile(r"\s*(answer\s+)?(p50|p90|p99|p99\.9|max)\s*<\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min)\s*")
_UNIT_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}
_FIELD: Final = {"p50": "p50_us", "p90": "p90_us", "p99": "p99_us", "p99.9": "p999_us", "max": "max_us"}
_TELLING: Final = 3
"""Measurements from which a chance is worth its interval."""
_FURTHEST: Final = 2**20
"""From the first value to the highest that is tried, and to the lowest."""

Axis = Literal["rate", "wearers"]


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What a load has to keep: a percentile of due to remembered below a limit (or of its questions, asked while
    segments came in, of due to the answer's receipt); without one, that lag doesn't grow."""

    text: str
    of_answers: bool = False
    field: str = ""
    limit_us: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Objective:
        """`p99 < 2s`, with p50, p90, p99, p99.9 or max and us, ms, s or min; `answer p99 < 500ms`; or `lag`. Raises
        ConfigError."""
        if text.strip() == LAG:
            return cls(text=LAG)
        found = _PERCENTILE.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"{text!r} is no objective: write a limit such as 'p99 < 2s' (p50, p90, p99, p99.9, max; us, ms, s, "
                f"min), 'answer p99 < 500ms' for the questions, or '{LAG}' for a lag that does not grow"
            )
        return cls(
            text=text.strip(),
            of_answers=found[1] is not None,
            field=_FIELD[found[2]],
            limit_us=float(found[3]) * _UNIT_US[found[4]],
        )

    def kept(self, report: LatencyReport) -> bool:
        """Whether a load kept it. What failed or was not finished keeps nothing. Raises ConfigError for a load too
        short to tell."""
        if report.failed or report.unfinished:
            return False
        if not self.field:
            if report.growth is None:
                raise ConfigError(
                    f"{counted(report.segments, 'segment')} on {counted(report.lanes, 'lane')}: too few to "
                    "tell whether lag grows, take a longer --duration"
                )
            return report.growth < GROWS
        answers = report.answers
        if self.of_answers:
            if answers is None:
                raise ConfigError(f"the objective {self.text!r} needs --questions-per-second")
            if answers.loaded.failed or answers.loaded.unfinished:
                return False
        numbers = self.numbers(report)
        if numbers is None:
            raise ConfigError("no segment was remembered: take a longer --duration")
        return bool(getattr(numbers, self.field) < self.limit_us)

    def numbers(self, report: LatencyReport) -> Percentiles | None:
        """Of what a percentile is taken; None of nothing."""
        return report.from_due(of_answers=self.of_answers)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One load of a sweep. `value`: the rate (or observations per second), or the number of wearers."""

    value: float
    kept: bool
    report: LatencyReport


class End(msgspec.Struct, frozen=True, kw_only=True):
    """One end of what a sweep found. It was measured `of` times in all and kept the objective in `kept_times`; whether
    those `agreed`. `chance`: the interval of its chance of keeping it, by the measurements after those that made it an
    end, because of which there are others; None where they are fewer than three, which tell next to nothing."""

    value: float
    kept_times: int
    of: int
    agreed: bool
    chance: Interval | None

    @classmethod
    def measured(cls, value: float, said: Sequence[bool]) -> End:
        """By what each of its measurements said, the first first."""
        again = said[_settling(said) :]
        return cls(
            value=value,
            kept_times=sum(said),
            of=len(said),
            agreed=len(set(said)) == 1,
            chance=chance(sum(again), len(again)) if len(again) >= _TELLING else None,
        )


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found: the highest value that kept the objective, and the lowest that did not; None where there is
    none in reach. Every load that was measured is one of `points`, in that order. `reason`: why it ended before all was
    measured that should have been; empty where nothing is lacking."""

    axis: Axis
    unit: str
    objective: str
    highest_kept: End | None
    lowest_broken: End | None
    points: tuple[Measured, ...]
    reason: str = ""

    @property
    def sure(self) -> bool:
        """Whether there are two ends, and each said the same whenever it was measured, as often as it should be."""
        ends = (self.highest_kept, self.lowest_broken)
        return not self.reason and all(end is not None and end.agreed for end in ends)

    @property
    def few(self) -> dict[str, int]:
        """The objective's percentile, where a load had too few values for it to be more than the greatest of them: how
        many the one with the fewest had."""
        objective = Objective.parse(self.objective)
        fewest = fewest_of(objective.field, (objective.numbers(point.report) for point in self.points))
        return {} if fewest is None else {objective.text.partition("<")[0].strip(): fewest}


def load_folder(number: int, value: float) -> str:
    """The folder, in the sweep's, of the load that was measured as the n-th."""
    return f"{number:02d}-{value:.6g}"


class Search:
    """Asks for values (`ask`), is told what came of each (`tell`), until both ends are known within `tolerance` (0.05:
    5 %; whole numbers: next to each other) and were measured `again` times after that. A value that broke the
    objective is asked for once more at once, and a third time where it then kept it: the majority is believed."""

    def __init__(self, axis: Axis, first: float, *, tolerance: float = 0.05, again: int = 1) -> None:
        if not 0 < tolerance < 1:
            raise ConfigError(f"tolerance is {tolerance:g}: it must lie between 0 and 1")
        self._axis = axis
        self._first = first
        self._tolerance = tolerance
        self._again = again
        self._seen: dict[float, list[bool]] = {}

    def ask(self) -> float | None:
        """The next value to measure; None when all is known."""
        unsettled = next((value for value, said in self._seen.items() if _believed(said) is None), None)
        if unsettled is not None:
            return unsettled
        low, high = self._ends()
        if low is None and high is None:
            return self._first
        if high is None:
            assert low is not None
            if low < self._first * _FURTHEST:
                return low * 2
        elif low is None:
            if self._axis == "wearers" and high > 1:
                return float(max(1, high // 2))
            if self._axis == "rate" and high > self._first / _FURTHEST:
                return high / 2
        elif (middle := self._middle(low, high)) is not None:
            return middle
        return next(
            (end for end in (low, high) if end is not None and self._times_again(end) < self._again), None
        )

    def tell(self, value: float, kept: bool) -> None:
        """What came of a value."""
        self._seen.setdefault(value, []).append(kept)

    def found(self, objective: str, unit: str, points: tuple[Measured, ...], reason: str = "") -> Found:
        """What is known. `unit`: of the values; `reason`: why nothing more is measured, where it is not all known."""
        low, high = (
            None if value is None else End.measured(value, self._seen[value]) for value in self._ends()
        )
        return Found(
            axis=self._axis,
            unit=unit,
            objective=objective,
            highest_kept=low,
            lowest_broken=high,
            points=points,
            reason=reason,
        )

    def _ends(self) -> tuple[float | None, float | None]:
        """The lowest value of which it is not believed that it keeps the objective, and the highest below it of which
        it is: above a value that breaks it, nothing counts. What is measured once a value is settled doesn't move the
        ends: it says how sure they are."""
        kept = {value: _believed(said) is True for value, said in self._seen.items()}
        high = min((value for value, keeps in kept.items() if not keeps), default=None)
        limit = math.inf if high is None else high
        low = max((value for value, keeps in kept.items() if keeps and value < limit), default=None)
        return low, high

    def _middle(self, low: float, high: float) -> float | None:
        if self._axis == "wearers":
            return float((low + high) // 2) if high - low > 1 else None
        return math.sqrt(low * high) if high > low * (1 + self._tolerance) else None

    def _times_again(self, value: float) -> int:
        said = self._seen[value]
        return len(said) - _settling(said)


def _settling(said: Sequence[bool]) -> int:
    """How many of a value's measurements it takes to believe it, the first first."""
    if said[0]:
        return 1
    return 2 if len(said) > 1 and not said[1] else 3


def _believed(said: Sequence[bool]) -> bool | None:
    """Whether a value keeps the objective, by what its measurements said; None while that takes another one."""
    last = _settling(said)
    return said[last - 1] if len(said) >= last else None


def values(search: Search) -> Iterator[float]:
    """The values that a search asks for, while it is told what came of each."""
    while (value := search.ask()) is not None:
        yield value
