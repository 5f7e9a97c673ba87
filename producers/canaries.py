"""Plants canaries: unique marks in observations, by which the audit sees who saw what too early or elsewhere. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec.structs import replace

from producers.lifelog import Lifelog
from simulator.errors import ConfigError
from simulator.marks import mark_of


def plant_canaries(lifelogs: Mapping[str, Lifelog], count: int, seed: int) -> dict[str, Lifelog]:
    """The lifelogs with `count` observations that end in a mark (`simulator.marks`), spread evenly over all
    observations, and so over the streams by their lengths. The same lifelogs, count and seed give the same. Raises
    ConfigError where there are fewer observations."""
    total = sum(len(lifelog.observations) for lifelog in lifelogs.values())
    if count < 0 or count > total:
        raise ConfigError(f"{count} canaries can't be planted in {total} observations")
    chosen = [_pick(i, count, total, seed) for i in range(count)]
    planted: dict[str, Lifelog] = {}
    first = 0
    for stream, lifelog in lifelogs.items():
        observations = list(lifelog.observations)
        for place in chosen:
            seq = place - first
            if 0 <= seq < len(observations):
                raw = observations[seq]
                observations[seq] = replace(raw, text=f"{raw.text} {mark_of(seed, stream, seq)}")
        first += len(observations)
        planted[stream] = Lifelog(stream=stream, observations=observations, segments=lifelog.segments)
    return planted


def _pick(i: int, count: int, total: int, seed: int) -> int:
    """One place in the i-th of `count` equal parts."""
    start, stop = i * total // count, (i + 1) * total // count
    number = int.from_bytes(hashlib.sha256(f"{seed}/canary/{i}".encode()).digest()[:8])
    return start + number % (stop - start)
