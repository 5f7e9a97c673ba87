"""The search for the most that keeps an objective: bracketing, then bisection. Pure: it is told what each load came to.

What is swept is a factor on the load's rate, or the number of wearers. Whether a load keeps the objective is one
measurement of a noisy thing, so the two ends of what was found are measured again, and all that they said is reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from consumers.latency import LatencyReport
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
                    f"{report.segments} segments on {report.lanes} lanes are too few to tell whether lag grows: take a "
                    "longer --duration"
                )
            return report.growth < GROWS
        numbers, answers = report.stages["remembered"], report.answers
        if self.of_answers:
            if answers is None:
                raise ConfigError(f"the objective {self.text!r} needs --questions-per-second")
            if answers.loaded.failed or answers.loaded.unfinished:
                return False
            numbers = answers.loaded.stages["received"]
        if numbers is None:
            raise ConfigError("no segment was remembered: take a longer --duration")
        return bool(getattr(numbers, self.field) < self.limit_us)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One load of a sweep. `value`: the rate (or observations per second), or the number of wearers."""

    value: float
    kept: bool
    report: LatencyReport


class End(msgspec.Struct, frozen=True, kw_only=True):
    """One end of what a sweep found. It was measured `of` times in all and kept the objective in `kept_times`; whether
    those `agreed`. `chance`: the interval of its chance of keeping it, by the measurements after the first alone, since
    by the first it became the end; None where those are fewer than three, which tell next to nothing."""

    value: float
    kept_times: int
    of: int
    agreed: bool
    chance: Interval | None

    @classmethod
    def measured(cls, value: float, said: Sequence[bool]) -> End:
        """By what each of its measurements said, the first first."""
        again = said[1:]
        return cls(
            value=value,
            kept_times=sum(said),
            of=len(said),
            agreed=len(set(said)) == 1,
            chance=chance(sum(again), len(again)) if len(again) >= _TELLING else None,
        )


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found: the highest value that kept the objective, and the lowest that did not; None where there is
    none in reach. Every load that was measured is one of `points`, in that order."""

    axis: Axis
    unit: str
    objective: str
    highest_kept: End | None
    lowest_broken: End | None
    points: tuple[Measured, ...]

    @property
    def sure(self) -> bool:
        """Whether there are two ends, and each said the same whenever it was measured."""
        ends = (self.highest_kept, self.lowest_broken)
        return all(end is not None and end.agreed for end in ends)


def load_folder(number: int, value: float) -> str:
    """The folder, in the sweep's, of the load that was measured as the n-th."""
    return f"{number:02d}-{value:.6g}"


class Search:
    """Asks for values (`ask`), is told what came of each (`tell`), until both ends are known within `tolerance` (0.05:
    5 %; whole numbers: next to each other) and were measured `again` times more."""

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
        return next((end for end in (low, high) if end is not None and self._times(end) <= self._again), None)

    def tell(self, value: float, kept: bool) -> None:
        """What came of a value."""
        self._seen.setdefault(value, []).append(kept)

    def found(self, objective: str, unit: str, points: tuple[Measured, ...]) -> Found:
        """What is known. `unit`: of the values."""
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
        )

    def _ends(self) -> tuple[float | None, float | None]:
        """The lowest value whose first measurement broke the objective, and the highest below it that kept it: above a
        value that breaks it, nothing counts. Later measurements of a value don't move the ends: they say how sure
        they are."""
        high = min((value for value, said in self._seen.items() if not said[0]), default=None)
        limit = math.inf if high is None else high
        low = max((value for value, said in self._seen.items() if said[0] and value < limit), default=None)
        return low, high

    def _middle(self, low: float, high: float) -> float | None:
        if self._axis == "wearers":
            return float((low + high) // 2) if high - low > 1 else None
        return math.sqrt(low * high) if high > low * (1 + self._tolerance) else None

    def _times(self, value: float) -> int:
        return len(self._seen[value])


def values(search: Search) -> Iterator[float]:
    """The values that a search asks for, while it is told what came of each."""
    while (value := search.ask()) is not None:
        yield value
