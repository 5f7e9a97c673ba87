"""Probes: the questions of the benchmarks that ask once (RealMem, LifeDialBench, APM), in one form.

A probe says what is asked, when, and on which memory; its gold is for judges alone. Readers give them beside a
dataset's streams, in the order in which they are asked.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec

from producers.lifelog import Dataset
from simulator.events import Gold, SessionSpan
from simulator.eventtime import format_event_time

ProbeBenchmark = Literal["realmem", "lifedialbench", "apm"]
LETTERS: Final = string.ascii_uppercase
"""Of the first option, the second ..."""

_OPTION = re.compile(r"\s*[(\[]?\s*([A-Za-z])\s*(?:[.):\]、]|\s-)\s*(.*)", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `id` is opaque (`probe_id`), for agents see it; `source_id` is the data set's own."""

    id: str
    source_id: str
    stream: str
    segment: int
    """It is asked on the memory as it is after this segment; -1: before the first."""
    asked_time_us: int
    """The event time at which the data set says that it is asked; never before the segment's end where the data
    set's own times are sound."""
    text: str
    options: tuple[str, ...] = ()
    """Texts of the options without letters, A first; empty for an open question."""
    gold: Gold
    groups: dict[str, str] = {}
    """What results are reported by: `category`, `type`, `task` ... → the probe's group."""


class ProbeSet(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark's streams and its probes, by stream (in the dataset's order) and then in time."""

    benchmark: ProbeBenchmark
    dataset: Dataset
    probes: Sequence[Probe]
    sessions: Mapping[str, Sequence[SessionSpan]] = {}
    """Stream → its sessions, where these are more than segments."""


def probe_id(stream: str, segment: int, ordinal: int) -> str:
    """`Ethan_Hunt/s30/p0`: the first of the probes asked after segment 30."""
    return f"{stream}/s{segment}/p{ordinal}"


def asked_text(probe: Probe) -> str:
    """What the person says: the question and, of a choice, the options with letters and how to answer."""
    if not probe.options:
        return probe.text
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, probe.options, strict=False)]
    told = (
        "Name one option by its letter." if probe.gold.decision else "Answer with the letter of one option."
    )
    return "\n".join([probe.text, *lines, told])


def quarter_of(segment: int, segments: int) -> int:
    """The quarter of its stream, 1 to 4, in which a probe became due after `segment` of `segments`: for the decay of
    what lies further and further back. Before the first segment is in the first quarter."""
    return max(segment, 0) * 4 // segments + 1


def day_label(event_time_us: int) -> str:
    """`DAY1` within a year of DAY1, else the date: how a segment's day is called."""
    return format_event_time(event_time_us).partition(" ")[0]


def as_event_time_us(moment: datetime) -> int:
    """A moment without time zone, taken as UTC: event times are clock times of the place."""
    return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def stream_name(text: str) -> str:
    """A stream's name from a data set's: what would break ids and folders (`@`, `/`, spaces ...) becomes `_`."""
    kept = "".join(c if c.isalnum() or c in "._-" else "_" for c in text.strip())
    return kept.strip("._") or "unnamed"


def split_option(text: str, place: int) -> tuple[str, str, bool]:
    """An option as the data sets write it (`B. in the drawer`) as its letter, its text, and whether the letter was
    there; without one, the letter is that of its place (0 is A)."""
    if match := _OPTION.fullmatch(text):
        return match[1].upper(), match[2].strip(), True
    return LETTERS[place], text.strip(), False
