"""Whether a memory that is built again is the one that the log describes. Pure.

A new owner of a lane ingests the logged segments anew, and takes in the commits of open trajectories. What a memory
system stores may be another thing each time (a model that is not cached, ids drawn at random); what the rest of the run
measures is then not the memory that the log's deltas describe. So each delta is held against the one that is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from simulator.counts import counted
from simulator.events import CommittedEvent, DeltaEvent, LaneRebuiltEvent, MemoryRecord, decode, encode
from simulator.protocols.trajectory import about

Written = DeltaEvent | CommittedEvent
_FIELDS: Final = MemoryRecord.__struct_fields__


def difference(logged: Written, again: Written) -> str | None:
    """In what two results of one ingest or commit differ; None: they wrote the same records in the same order, or
    both failed. What they took is not compared. Says no word of what is stored."""
    if (lost := _failed(again)) != _failed(logged):
        return "failed this time" if lost else "failed in the log, and not this time"
    read = decode(encode(again))  # as the log's was: structs are not checked when they are made
    assert isinstance(read, Written)
    if len(read.records) != len(logged.records):
        return f"{counted(len(read.records), 'record')}, and {len(logged.records)} in the log"
    for place, (one, other) in enumerate(zip(logged.records, read.records, strict=True)):
        if unlike := [name for name in _FIELDS if getattr(one, name) != getattr(other, name)]:
            return f"record {place + 1} of {len(logged.records)} has another {' and '.join(unlike)}"
    return None


class Rebuild:
    """One rebuild of a lane: first what the log has of it, then what comes again. `number`: 1 for the lane's first."""

    def __init__(self, number: int = 1) -> None:
        self._number = number
        self._logged: dict[str, Written] = {}
        self._expected = 0
        self._segments = 0
        self._differs = False

    def expect(self, event: Written) -> None:
        """Take what the log holds; of two with one id the first counts."""
        if event.id not in self._logged:
            self._logged[event.id] = event
            self._expected += isinstance(event, DeltaEvent)

    def failed(self, name: str) -> str | None:
        """The error of an ingest or commit that stored nothing, as the log has it: the memory goes on without it."""
        logged = self._logged.get(name)
        return logged.error if logged is not None and _failed(logged) else None

    def compare(self, event: Written) -> LaneRebuiltEvent | None:
        """Take what came of an ingest or a commit. Gives what is to be said: that the last delta came out the same as
        all before it, or the first difference."""
        logged = self._logged.pop(event.id, None)
        if logged is None or self._differs:
            return None
        is_delta = isinstance(event, DeltaEvent)
        self._segments += is_delta
        said = difference(logged, event)
        if said is None and not (is_delta and self._segments == self._expected):
            return None
        self._differs = said is not None
        name = f"{event.lane}/rebuilt/{self._number}"
        return LaneRebuiltEvent(
            **about(event, f"{name}/differs" if self._differs else name),
            rebuild=self._number,
            segments=self._segments,
            difference=said or "",
        )


class LaneRebuilds(msgspec.Struct, frozen=True, kw_only=True):
    """How often a lane's memory was built again, and how often it became another; `first`: the first difference."""

    lane: str
    rebuilds: int
    differing: int = 0
    first: str = ""


class RebuildFold:
    """Feed it what a run says of rebuilds, in any order and as often as it comes."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], LaneRebuiltEvent] = {}

    def feed(self, event: LaneRebuiltEvent) -> None:
        """Take an event in."""
        key = event.lane, event.rebuild
        if event.difference or key not in self._seen:
            self._seen[key] = event

    def lanes(self) -> tuple[LaneRebuilds, ...]:
        """Each lane that was built again, by name."""
        by_lane: dict[str, list[LaneRebuiltEvent]] = {}
        for (lane, _), event in sorted(self._seen.items()):
            by_lane.setdefault(lane, []).append(event)
        return tuple(_of_lane(lane, events) for lane, events in by_lane.items())


def same_line(lanes: Iterable[LaneRebuilds]) -> str | None:
    """That lanes were built again to the memory that the log describes, in words; None where none was."""
    same = [lane for lane in lanes if not lane.differing]
    if not same:
        return None
    return f"{_lanes(len(same))} rebuilt from the log, the same as it says."


def differing_line(lanes: Iterable[LaneRebuilds]) -> str | None:
    """That lanes were built again to another memory, in words; None where none was."""
    others = [lane for lane in lanes if lane.differing]
    if not others:
        return None
    more = f", and {len(others) - 1} more" if len(others) > 1 else ""
    return (
        f"{_lanes(len(others))} rebuilt from the log to another memory than it describes, so that what is measured "
        f"is of two memories: {others[0].first}{more}."
    )


def _of_lane(lane: str, events: list[LaneRebuiltEvent]) -> LaneRebuilds:
    differing = [event for event in events if event.difference]
    first = f"{', '.join(differing[0].causes)}: {differing[0].difference}" if differing else ""
    return LaneRebuilds(lane=lane, rebuilds=len(events), differing=len(differing), first=first)


def _failed(event: Written) -> bool:
    """It stored nothing; with records, only the snapshot after it failed."""
    return event.error is not None and not event.records


def _lanes(count: int) -> str:
    return counted(count, "lane was", "lanes were")
