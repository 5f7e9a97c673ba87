"""What every dataset reader gives: lifelogs in time order, cut into segments, with anchors and a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from simulator.events import AnchorEvent, OutlineEvent, ProbeEvent, Source, Subject
from simulator.eventtime import DAY1_US, DAY_US

__all__ = ["DAY1_US", "DAY_US", "SEGMENT_US", "Dataset", "Lifelog", "RawObservation", "Report", "SegmentSpan"]

SEGMENT_US = 300_000_000
"""A segment is five minutes (StreamMemBench, section 3)."""


def spread_us(start_us: int, end_us: int, index: int, count: int) -> int:
    """Event time of observation `index` of `count` in a segment whose observations carry no clock time."""
    return start_us + index * (end_us - start_us) // count


class RawObservation(msgspec.Struct, frozen=True, gc=False):
    """One caption or utterance as read. Its `seq` is its place in `Lifelog.observations`."""

    event_time_us: int
    source: Source
    text: str
    day: str
    stream_index: int | None = None
    """Counts within the day."""
    end_time_us: int | None = None


class SegmentSpan(msgspec.Struct, frozen=True, gc=False):
    """Observations `first_seq`..`last_seq` (both inside) of one five-minute window. Windows without an
    observation are no segments."""

    day: str
    segment_id: int
    """The dataset's own number within the day."""
    start_time_us: int
    end_time_us: int
    first_seq: int
    last_seq: int


class Lifelog(msgspec.Struct, frozen=True):
    """One wearer's stream: observations in event-time order; segments partition them."""

    stream: str
    observations: Sequence[RawObservation]
    segments: Sequence[SegmentSpan]


class Report(msgspec.Struct):
    """What a reader counted: `counts` (files, cues, observations ...) and `oddities` (what was not as the
    format says, and what was done about it). Nothing is dropped without a count here. `examples` has the
    first few places of each oddity, as `file:line: text`."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    oddities: Counter[str] = msgspec.field(default_factory=Counter)
    examples: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def odd(self, oddity: str, where: str) -> None:
        """Count an oddity and keep its place, if it is among the first three."""
        self.oddities[oddity] += 1
        places = self.examples.setdefault(oddity, [])
        if len(places) < 3:
            places.append(where)


class Dataset(msgspec.Struct, frozen=True):
    """All that was read from one path. `anchors` come with an empty `run`: whoever starts a run fills it in.
    `digest` is the SHA-256 over the files' names and bytes, in name order (over the options for
    synthetic)."""

    layout: Literal[
        "streammembench", "egolife-sync", "egolife-srt", "synthetic", "realmem", "lifedialbench", "apm"
    ]
    path: str
    lifelogs: Mapping[str, Lifelog]
    anchors: Sequence[AnchorEvent]
    report: Report
    digest: str
    probes: Sequence[ProbeEvent] = ()
    """In place of anchors, as these without a `run`."""
    outlines: Sequence[OutlineEvent] = ()
    """With probes: one for each lifelog."""

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """What trajectories are about."""
        return (*self.anchors, *self.probes)
