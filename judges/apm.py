"""APM-Bench's measures: decisions at heartbeats, gated scores, what is stored, how fast a stream is replayed.

Pure functions; definitions and their source: docs/apm.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from simulator.events import Decision

RATINGS: Final = (1, 5)
"""The judge rates a response that passed the gate from 1 to 5 against the reference."""
HOUR_US: Final = 3_600_000_000

_DECISION = re.compile(r"[\s*_`\"'\[(<{]*(?:decision\s*[:=]\s*)?[*_`\"']*(INTERVENE|SILENT)\b", re.IGNORECASE)


class DecisionReply(msgspec.Struct, frozen=True):
    """What a reply at a heartbeat decides, and what it says. `decision` is None where it says neither word first."""

    decision: Decision | None
    said: str = ""


def read_decision(reply: str) -> DecisionReply:
    """A reply begins with INTERVENE or SILENT (in any case, `Decision:` before it or not); the rest is what it says."""
    match = _DECISION.match(reply)
    if match is None:
        return DecisionReply(None, reply.strip())
    said = reply[match.end() :].lstrip(" \t*_`\"'])>}:.,;\u2013\u2014-").strip()
    return DecisionReply("INTERVENE" if match[1].upper() == "INTERVENE" else "SILENT", said)


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One heartbeat probe as judged. `decision` None: the reply decided nothing, which is wrong on either polarity.
    `option_right` is None where no option was asked for. `rating` is there where the gate was passed and a response
    was to be rated; a right SILENT has none."""

    task: str
    expected: Decision
    decision: Decision | None
    option_right: bool | None = None
    rating: int | None = None

    @property
    def decided_right(self) -> bool:
        """The decision is the expected one."""
        return self.decision == self.expected

    @property
    def passed_gate(self) -> bool:
        """The decision is right and, where an option was asked for, the option."""
        return self.decided_right and self.option_right is not False


class Mean(msgspec.Struct, frozen=True):
    """A mean over `n`; None where there is nothing to take it over."""

    value: float | None
    n: int


def mean(values: Iterable[float]) -> Mean:
    """The mean, by an exact sum, so that no order changes it."""
    kept = list(values)
    return Mean(math.fsum(kept) / len(kept) if kept else None, len(kept))


def scaled_rating(rating: int) -> float:
    """1..5 as 0..100. Raises ValueError for another rating."""
    low, high = RATINGS
    if not low <= rating <= high:
        raise ValueError(f"a rating of {rating}, not {low} to {high}")
    return (rating - low) * 100.0 / (high - low)


def gated_score(probe: Judged) -> float:
    """0 where the gate was failed; 100 for a right SILENT, which leaves nothing to rate; else the scaled rating.
    Raises ValueError where a rating is missing: that probe is unjudged, and not 0."""
    if not probe.passed_gate:
        return 0.0
    if probe.expected == "SILENT":
        return 100.0
    if probe.rating is None:
        raise ValueError(f"a probe of {probe.task} passed the gate and has no rating")
    return scaled_rating(probe.rating)


def response_quality(probes: Iterable[Judged]) -> Mean:
    """The mean scaled rating of responses after a right decision to speak up: how good it is once it speaks, whatever
    it misses. A wrong option after a right decision has no rating and counts 0."""
    kept = [probe for probe in probes if probe.decided_right and probe.expected == "INTERVENE"]
    return mean(gated_score(probe) for probe in kept)


class BalancedAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of right decisions by polarity, and their mean; None where a polarity has no probe."""

    intervene: Mean
    """On positive probes."""
    silent: Mean
    """On negative probes."""
    value: float | None


def balanced_accuracy(probes: Iterable[Judged]) -> BalancedAccuracy:
    """Mean of the INTERVENE rate on positive and the SILENT rate on negative probes. Probes of several tasks are pooled
    before the two are averaged: a task with few negatives weighs no more than its probes."""
    kept = list(probes)
    intervene = mean(probe.decided_right for probe in kept if probe.expected == "INTERVENE")
    silent = mean(probe.decided_right for probe in kept if probe.expected == "SILENT")
    value = None
    if intervene.value is not None and silent.value is not None:
        value = (intervene.value + silent.value) / 2
    return BalancedAccuracy(intervene=intervene, silent=silent, value=value)


def peak_bytes_per_hour(
    stored_bytes: Sequence[tuple[int, int]], session_ends_us: Sequence[int], active_us: int
) -> float:
    """The most bytes that a memory kept at the end of any completed session, per hour of stream.

    Args:
        stored_bytes: (event time, bytes by which what is kept changed), in any order.
        session_ends_us: event times at which sessions ended.
        active_us: how long the sessions took together; gaps between them are no stream.

    Raises:
        ValueError: there is no completed session, or it took no time.
    """
    if active_us <= 0 or not session_ends_us:
        raise ValueError("no completed session: there is no hour to divide by")
    changes = sorted(stored_bytes)
    peak = kept = place = 0
    for end_us in sorted(session_ends_us):
        while place < len(changes) and changes[place][0] <= end_us:
            kept += changes[place][1]
            place += 1
        peak = max(peak, kept)
    return peak * HOUR_US / active_us


def replay_real_time_factor(processing_us: int, stream_us: int) -> float:
    """Time that the memory worked over the stream's duration: below 1 it keeps up with life. Raises ValueError for a
    stream of no duration."""
    if stream_us <= 0:
        raise ValueError("a stream of no duration has no real-time factor")
    return processing_us / stream_us
