"""An offered load: lifelogs laid out anew, so that their segments end when a schedule says. Pure; fixed by its seed.

The replayer publishes what is due by the clock, so a load is nothing but lifelogs whose event times are the schedule:
real time is event time divided by the rate. Nights and gaps go, since they would be no load. A segment stands for five
minutes of life on average, whatever the rate: so a lag in event time means the same at every rate.

`regular`: the segments of a lane end evenly (at a given observation rate: as far apart as they have observations), and
the lanes take turns. `poisson`: the gaps between a lane's segments are exponential and independent. Within a segment,
observations keep their places in proportion. A lane repeats its stream when that is used up; of two lanes of one
stream, the second begins elsewhere in it, so that they don't ingest the same text at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from producers.lifelog import DAY1_US, DAY_US, SEGMENT_US, Lifelog, RawObservation, SegmentSpan
from producers.seeded import seeded
from simulator.errors import ConfigError

Arrivals = Literal["regular", "poisson"]

MOST_OBSERVATIONS = 5_000_000
"""All are laid out before the first is due, and kept in memory: about 200 bytes each."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is offered. Exactly one of `rate` (simulated seconds per real second) and `observations_per_second` (of all
    lanes together) is given; the lanes are the streams in turn."""

    wearers: int | None = None
    """None: each stream once."""
    duration_s: float
    arrivals: Arrivals = "regular"
    rate: float | None = None
    observations_per_second: float | None = None
    seed: int = 0


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """A load laid out: the lanes' lifelogs, and the rate at which the clock has to run."""

    lifelogs: dict[str, Lifelog]
    rate: float

    @property
    def observations(self) -> int:
        """How many observations are offered."""
        return sum(len(lifelog.observations) for lifelog in self.lifelogs.values())


def offer(lifelogs: Mapping[str, Lifelog], load: Load) -> Offered:
    """Lay a load out. Raises ConfigError for numbers that can't be, and where no segment would end in the time."""
    sources = [lifelog for lifelog in lifelogs.values() if lifelog.segments]
    wearers = len(sources) if load.wearers is None else load.wearers
    _check(load, wearers, sources)
    sources = sources[:wearers]
    means = [sum(map(_size, lifelog.segments)) / len(lifelog.segments) for lifelog in sources]
    mean = sum(means[i % len(sources)] for i in range(wearers)) / wearers
    if load.rate is not None:
        rate = load.rate
    else:
        assert load.observations_per_second is not None  # _check
        rate = load.observations_per_second / wearers / mean * SEGMENT_US / 1e6
    expected = mean * wearers * load.duration_s * rate / (SEGMENT_US / 1e6)
    if expected > MOST_OBSERVATIONS:
        raise ConfigError(
            f"this load is about {expected:,.0f} observations, and {MOST_OBSERVATIONS:,} fit in memory: take a shorter "
            "--duration"
        )
    offered: dict[str, Lifelog] = {}
    copies = -(-wearers // len(sources))
    for lane in range(wearers):
        source, copy = sources[lane % len(sources)], lane // len(sources)
        # An observation rate is kept by every lane, and not only by the mean of them.
        share = 1.0 if load.rate is not None else means[lane % len(sources)] / mean
        first = len(source.segments) * copy // copies
        name = source.stream if copy == 0 else f"{source.stream}.{copy + 1}"
        if name in offered:
            raise ConfigError(
                f"two lanes would be called {name}: rename that stream, or take fewer --wearers"
            )
        ends_us = _ends(source, first, lane, lane / wearers, share * SEGMENT_US, load)
        offered[name] = _laid_out(source, name, first, ends_us, load.duration_s * rate * 1e6)
    if not any(lifelog.segments for lifelog in offered.values()):
        segment_s = SEGMENT_US / 1e6 / rate
        raise ConfigError(
            f"no segment ends within {load.duration_s:g} s, since one takes {segment_s:g} s at this rate: take a "
            "longer --duration or a higher rate"
        )
    return Offered(lifelogs={n: log for n, log in offered.items() if log.segments}, rate=rate)


def _check(load: Load, wearers: int, sources: Sequence[Lifelog]) -> None:
    if not sources:
        raise ConfigError("the data holds no segment to offer")
    if wearers < 1:
        raise ConfigError(f"wearers is {wearers}: it must be at least 1")
    if (load.rate is None) == (load.observations_per_second is None):
        raise ConfigError("give either --rate or --observations-per-second: one of the two is the load")
    for name in ("rate", "observations_per_second", "duration_s"):
        value = getattr(load, name)
        if value is not None and not (0 < value < math.inf):
            raise ConfigError(f"{name} is {value:g}: a load needs a finite number above zero")


def _size(span: SegmentSpan) -> int:
    return span.last_seq - span.first_seq + 1


def _ends(
    source: Lifelog, first: int, lane: int, phase: float, mean_us: float, load: Load
) -> Iterator[tuple[float, float]]:
    """Beginning and end of each segment, in microseconds after the load began, without end."""
    count = len(source.segments)
    mean_size = sum(map(_size, source.segments)) / count
    random = seeded(f"load/{load.seed}/{lane}").random
    at_us = mean_us * phase if load.arrivals == "regular" else 0.0
    for number in _from(first):
        if load.arrivals == "poisson":
            gap_us = -math.log(1.0 - random()) * mean_us
        elif load.rate is not None:
            gap_us = mean_us
        else:
            gap_us = mean_us * _size(source.segments[number % count]) / mean_size
        yield at_us, at_us + gap_us
        at_us += gap_us


def _from(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def _laid_out(
    source: Lifelog, name: str, first: int, ends_us: Iterator[tuple[float, float]], duration_us: float
) -> Lifelog:
    """The source's segments from number `first` on, each in its own gap, as long as they end in time."""
    observations: list[RawObservation] = []
    spans: list[SegmentSpan] = []
    of_day: dict[int, tuple[int, int]] = {}
    """Day → its first segment and first observation."""
    for number, (start, end) in zip(_from(first), ends_us, strict=False):
        if end > duration_us:
            break
        span = source.segments[number % len(source.segments)]
        start_us = DAY1_US + round(start)
        end_us = max(DAY1_US + round(end), start_us + 1)  # an observation lies before its segment's end
        day = round(start) // DAY_US
        first_segment, first_index = of_day.setdefault(day, (len(spans), len(observations)))
        first_seq = len(observations)
        stretch = (end_us - start_us) / max(1, span.end_time_us - span.start_time_us)
        for raw in source.observations[span.first_seq : span.last_seq + 1]:
            place_us = math.floor((raw.event_time_us - span.start_time_us) * stretch)
            observations.append(
                RawObservation(
                    event_time_us=start_us + min(max(place_us, 0), end_us - start_us - 1),
                    source=raw.source,
                    text=raw.text,
                    day=f"DAY{day + 1}",
                    stream_index=len(observations) - first_index,
                )
            )
        spans.append(
            SegmentSpan(
                f"DAY{day + 1}",
                len(spans) - first_segment,
                start_us,
                end_us,
                first_seq,
                len(observations) - 1,
            )
        )
    return Lifelog(name, observations, spans)
