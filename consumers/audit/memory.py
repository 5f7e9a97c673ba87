"""Invariant 2, and what 3 and 5 say of records: what each lane stored when, and what a response may rest on.

Of every record that a lane wrote its id, a fingerprint of its text, and its times are kept; texts are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from consumers.audit.certificate import Book, Kept, fingerprint
from consumers.audit.stream import Streams
from consumers.rebuild import LaneRebuilds, RebuildFold
from simulator.events import (
    CommittedEvent,
    DeltaEvent,
    LaneRebuiltEvent,
    MemoryRecord,
    ResponseEvent,
    RetrievedRecord,
    RunStartedEvent,
)
from simulator.log.protocol import StoredRecord

SKEW_US: Final = 5_000_000
"""How far the clocks of our own machines may be apart: less than this, and nothing is said of wall times."""
ATTACHED_SKEW_US: Final = 60_000_000
"""The same for the machines of attached agents, of whose clocks we know nothing."""

_AS_WRITTEN: Final = "an answer has to name records as a delta or its commit wrote them"
AFTER_FAILURE: Final = "a record that no delta names, on a lane of which an ingest or a commit had failed"


class Version(NamedTuple):
    """One writing of one record. `order` counts the lane's writings."""

    order: int
    segment: int
    """The segment of the delta, or that which the trajectory stands on."""
    trajectory: str
    """Empty for the main memory."""
    text: bytes
    event_time_us: int
    deleted: bool


class _Lane:
    __slots__ = ("commits", "deltas", "failed", "last", "order", "stored")

    def __init__(self) -> None:
        self.deltas: dict[int, Kept] = {}
        self.last = -1
        self.order = 0
        self.stored: dict[str, Version | list[Version]] = {}
        self.commits: dict[str, dict[str, Version]] = defaultdict(dict)
        """Record id → trajectory → what its commit last wrote."""
        self.failed: list[tuple[int, str]] = []
        """(segment, trajectory) of ingests and commits that failed: they may have stored something."""

    def versions(self, record: str) -> list[Version]:
        found = self.stored.get(record, [])
        return found if isinstance(found, list) else [found]

    def store(self, record: str, version: Version) -> None:
        before = self.stored.get(record)
        if before is None:
            self.stored[record] = version
        elif isinstance(before, list):
            before.append(version)
        else:
            self.stored[record] = [before, version]


class Memories:
    """What all lanes stored."""

    def __init__(self, started: RunStartedEvent, book: Book, streams: Streams) -> None:
        self._book = book
        self._started = started
        self._streams = streams
        self._shared = started.isolation == "shared"
        self._lanes: dict[str, _Lane] = {
            f"{system}@{stream}": _Lane() for system in started.systems for stream in started.streams
        }
        self.errors: set[tuple[str, int]] = set()
        """(lane, segment) of deltas that failed."""
        self.turns: dict[str, int] = {}
        """Isolation `shared`: trajectory → its turn on its lane. Known once the tasks are read."""
        self._rebuilds = RebuildFold()
        self._rebuilt: list[tuple[LaneRebuiltEvent, Kept]] = []

    @property
    def rebuilds(self) -> tuple[LaneRebuilds, ...]:
        """The lanes that were built again."""
        return self._rebuilds.lanes()

    def rebuilt(self, event: LaneRebuiltEvent, record: StoredRecord) -> None:
        """Take what a lane's new owner says of the memory that it built again. Fed before the deltas."""
        kept = Kept.of(event, record)
        self._book.checked["2"] += 1
        self._rebuilds.feed(event)
        self._rebuilt.append((event, kept))
        if event.difference:
            self._book.find(
                "2",
                "rebuilt_otherwise",
                f"the memory of {event.lane} was built again, and is not the one that the log describes; what was "
                f"measured before and after is of two memories. {', '.join(event.causes)}: {event.difference}",
                kept,
                *event.causes,
            )

    def delta_of(self, lane: str, segment: int) -> Kept | None:
        """The delta of a segment."""
        return self._lanes[lane].deltas.get(segment) if lane in self._lanes else None

    def last_delta(self, lane: str) -> int:
        """The newest segment that a lane has a delta of; -1 without one."""
        return self._lanes[lane].last if lane in self._lanes else -1

    def delta(self, event: DeltaEvent, record: StoredRecord, skew_us: int) -> None:
        """Take a delta, in offset order."""
        lane, book = self._lanes[event.lane], self._book
        book.checked["2"] += 1
        kept = Kept.of(event, record)
        known = lane.deltas.setdefault(event.segment, kept)
        if known is not kept:
            book.find(
                "2", "delta_twice", f"{event.lane} has two deltas of segment {event.segment}", kept, known
            )
        elif event.segment < lane.last:
            book.find("2", "delta_order", f"{event.id} comes after the delta of segment {lane.last}", kept)
        lane.last = max(lane.last, event.segment)
        if event.as_of != event.segment:
            book.find(
                "2",
                "delta_as_of",
                f"{event.id} says that it is as of {event.as_of}, not of its segment",
                kept,
            )
        self._check_cause(event, kept, skew_us)
        if event.error is not None:
            self.errors.add((event.lane, event.segment))
            lane.failed.append((event.segment, ""))
        for written in event.records:
            if written.event_time_us > event.event_time_us:
                book.find(
                    "2",
                    "delta_newer",
                    f"{event.id} wrote record {written.id}, which is newer than the segment",
                    kept,
                )
            lane.store(written.id, self._version(lane, written, event.segment, ""))

    def _check_cause(self, event: DeltaEvent, kept: Kept, skew_us: int) -> None:
        book, closing = self._book, self._streams.closings.get((event.stream, event.segment))
        if closing is None:
            book.lacks(
                "2", "delta_without_segment", f"{event.id} is there, and its segment was never closed", kept
            )
            return
        if event.causes != (closing.id,):
            book.find(
                "2",
                "delta_causes",
                f"{event.id} has causes {event.causes}, not its segment's end",
                kept,
                closing,
            )
        if event.event_time_us != closing.event_time_us:
            book.find(
                "2", "delta_time", f"{event.id} is not at the event time of its segment's end", kept, closing
            )
        began_us = kept.began_us if kept.began_us is not None else kept.wall_us
        if began_us is not None and closing.wall_us is not None and began_us < closing.wall_us - skew_us:
            early_s = (closing.wall_us - began_us) / 1e6
            book.find(
                "2",
                "delta_early",
                f"{event.id} was begun {early_s:.1f} s before its segment was closed; clocks may be "
                f"{skew_us / 1e6:g} s apart",
                kept,
                closing,
            )

    def _version(self, lane: _Lane, written: MemoryRecord, segment: int, trajectory: str) -> Version:
        lane.order += 1
        text = fingerprint(written.text)
        return Version(lane.order, segment, trajectory, text, written.event_time_us, written.op == "delete")

    def committed(self, event: CommittedEvent, segment: int) -> None:
        """Take what a commit wrote, in offset order. `segment`: that which its trajectory stands on."""
        lane = self._lanes[event.lane]
        if event.error is not None:
            lane.failed.append((segment, event.trajectory))
        for written in event.records:
            version = self._version(lane, written, segment, event.trajectory)
            lane.commits[written.id][event.trajectory] = version

    def close_deltas(self, failed_lanes: frozenset[str], *, ended: bool) -> None:
        """Every lane has a delta of each segment (`failed_lanes`: whose agents were given up), and no commit of a
        branch is in the main memory. A lane was built again from deltas that are there."""
        for event, kept in self._rebuilt:
            if event.segments > self.last_delta(event.lane) + 1:
                what = f"{event.id} says that {event.segments} deltas were compared, and fewer are there"
                self._book.lacks("2", "rebuilt_of_nothing", what, kept)
        for name, lane in self._lanes.items():
            stream = name.partition("@")[2]
            segments = self._started.segments.get(stream, 0)
            missing = [i for i in range(max(segments, lane.last + 1)) if i not in lane.deltas]
            gaps = [i for i in missing if i < lane.last]
            behind = f"{name} has no delta of {_shown(missing)}"
            if gaps or (missing and ended and name not in failed_lanes):
                self._book.find("2", "delta_missing", behind, f"{name}/delta/{missing[0]}")
            elif missing and not ended:
                self._book.leave_open(behind)
            if not self._shared:
                self._check_branches(name, lane)

    def _check_branches(self, name: str, lane: _Lane) -> None:
        for record, commits in lane.commits.items():
            for trajectory, version in commits.items():
                self._book.checked["5"] += 1
                versions = lane.versions(record)
                had = any(main.segment <= version.segment for main in versions)
                for main in versions:
                    # a system that goes on working at an older record comes to the same in both; that a conversation
                    # is in the main memory is looked for by what it says
                    if had and main.segment > version.segment:
                        continue
                    if main.text == version.text and not main.deleted and not version.deleted:
                        self._book.find(
                            "5",
                            "commit_in_main",
                            f"the main memory of {name} holds record {record} as the commit of "
                            f"{trajectory} wrote it on its own branch",
                            f"{name}/delta/{main.segment}",
                            f"{trajectory}/committed",
                        )

    def check_response(self, event: ResponseEvent, kept: Kept, segment: int) -> None:
        """All that a response rests on was there for it to see."""
        for found in event.retrieved:
            self._book.checked["3"] += 1
            self._book.checked["5"] += 1
            if found.event_time_us > event.event_time_us:
                self._book.find(
                    "3",
                    "newer_record",
                    f"{event.id} rests on record {found.id}, which is newer than the task",
                    kept,
                )
            self._check_found(event, kept, segment, found)

    def _check_found(self, event: ResponseEvent, kept: Kept, segment: int, found: RetrievedRecord) -> None:
        lane, find, lacks = self._lanes[event.lane], self._book.find, self._book.lacks
        text = fingerprint(found.text)
        main = lane.versions(found.id)
        commits = lane.commits.get(found.id, {})
        seen = self._visible(event, segment, main, commits)
        if (
            seen is not None
            and not seen.deleted
            and (seen.text, seen.event_time_us) == (text, found.event_time_us)
        ):
            return
        said = f"{event.id} rests on record {found.id}"
        for version in main:
            if version.segment > segment and version.text == text:
                find(
                    "3",
                    "future_record",
                    f"{said}, which its lane wrote for segment {version.segment}; the task stands "
                    f"on segment {segment}",
                    kept,
                    f"{event.lane}/delta/{version.segment}",
                )
                return
        for trajectory, version in commits.items():
            if version.text != text or version is seen:
                continue
            cause = f"{trajectory}/committed"
            if trajectory != event.trajectory:
                lacks(
                    "5",
                    "foreign_commit",
                    f"{said}, which the commit of another trajectory wrote",
                    kept,
                    cause,
                )
            elif event.arm == "uncommitted":
                find(
                    "5",
                    "uncommitted_sees_commit",
                    f"{said}, which the commit wrote that this arm is without",
                    kept,
                    cause,
                )
            else:
                find("3", "before_commit", f"{said}, which its own commit wrote later", kept, cause)
            return
        if seen is not None and seen.deleted:
            lacks("3", "deleted_record", f"{said}, which had been deleted", kept)
        elif seen is not None and seen.text != text:
            lacks("3", "record_text", f"{said} with another text than was stored: {_AS_WRITTEN}", kept)
        elif seen is not None:
            lacks("3", "record_time", f"{said} with another event time than was stored: {_AS_WRITTEN}", kept)
        elif main:
            find(
                "3",
                "future_record",
                f"{said}, which its lane wrote first for segment {main[0].segment}; the task stands "
                f"on segment {segment}",
                kept,
            )
        else:
            self._check_unknown(event, kept, segment, found, text)

    def _visible(
        self, event: ResponseEvent, segment: int, main: list[Version], commits: dict[str, Version]
    ) -> Version | None:
        """The writing of a record that a response sees: the last of those before it."""
        sees_own = event.phase == "R2" and event.arm == "committed"
        last: Version | None = None
        for version in main:
            if version.segment <= segment:
                last = version
        if self._shared:
            turn = self.turns.get(event.trajectory, -1)
            for trajectory, version in commits.items():
                earlier = self.turns.get(trajectory, turn + 1) < turn
                if (earlier or (trajectory == event.trajectory and sees_own)) and (
                    last is None or version.order > last.order
                ):
                    last = version
        elif sees_own and event.trajectory in commits:
            last = commits[event.trajectory]
        return last

    def _check_unknown(
        self, event: ResponseEvent, kept: Kept, segment: int, found: RetrievedRecord, text: bytes
    ) -> None:
        said = f"{event.id} rests on record {found.id}"
        for name, lane in self._lanes.items():
            if name != event.lane and any(v.text == text for v in self._all_versions(lane, found.id)):
                self._book.lacks("5", "foreign_lane", f"{said}, which only lane {name} wrote", kept)
                return
        failed = any(
            at <= segment and (not trajectory or trajectory == event.trajectory or self._shared)
            for at, trajectory in self._lanes[event.lane].failed
        )
        if failed:
            self._book.unproved[AFTER_FAILURE] += 1
        else:
            self._book.lacks(
                "3",
                "unknown_record",
                f"{said}, which no delta and no commit of its own wrote: {_AS_WRITTEN}",
                kept,
            )

    def _all_versions(self, lane: _Lane, record: str) -> Iterator[Version]:
        yield from lane.versions(record)
        yield from lane.commits.get(record, {}).values()


def _shown(segments: list[int]) -> str:
    first = ", ".join(map(str, segments[:5]))
    more = f" and {len(segments) - 5} more" if len(segments) > 5 else ""
    return f"segment{'s'[: len(segments) - 1]} {first}{more}"
