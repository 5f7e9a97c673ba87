"""Anchors as a release states them: every field, also where the stream says otherwise, and where it stands.

`producers.datasets.read_release` gives what a run needs of an anchor; this is for those who check it: a missing field
is read as missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from producers.datasets.files import Files, Layout, Progress
from producers.datasets.streammembench import day_of, files_by_stream, read_release
from producers.lifelog import Lifelog, Report


class SupportingMetadata(msgspec.Struct):
    """What a supporting observation says of its place in the stream and of what it is quoted for."""

    stream_index: int | None = None
    quote_hint: str | None = None


class Supporting(msgspec.Struct):
    """An observation that an anchor names as evidence."""

    text: str | None = None
    source: str | None = None
    timestamp: str | None = None
    metadata: SupportingMetadata | None = None

    @property
    def stream_index(self) -> int | None:
        """As its metadata says, else as its timestamp does."""
        index = self.metadata.stream_index if self.metadata is not None else None
        return self.timestamp_index if index is None else index

    @property
    def timestamp_index(self) -> int | None:
        """The index in `stream_index:17`; None for another form."""
        head, _, number = (self.timestamp or "").partition(":")
        return int(number) if head == "stream_index" and number.isascii() and number.isdecimal() else None

    @property
    def quote(self) -> str | None:
        """What is quoted of it."""
        return self.metadata.quote_hint if self.metadata is not None else None


class SourceSpan(msgspec.Struct):
    """Where an anchor says that its evidence lies."""

    time_window: str | None = None
    raw_indices: Any = None


class Task(msgspec.Struct):
    """One task as stated."""

    user_request: str | None = None
    expected_behavior: str | None = None


class Tasks(msgspec.Struct):
    """Both tasks as stated."""

    initial_task: Task = msgspec.field(default_factory=Task)
    followup_task: Task = msgspec.field(default_factory=Task)


class StatedAnchor(msgspec.Struct):
    """An anchor as stated."""

    evidence_id: str | None = None
    evidence_statement: str | None = None
    evidence_type: str | None = None
    subject: str | None = None
    supporting_observations: list[Supporting] | None = None
    source_span: SourceSpan | None = None
    tasks: Tasks = msgspec.field(default_factory=Tasks)


class Place(msgspec.Struct, frozen=True):
    """Where an anchor stands: the file and the place inside it, and the segment that it is stated for."""

    file: str
    """Relative to the release, POSIX; empty for an anchor that is in no file."""
    path: str
    """`$.items[3].evidence_anchors[0]`."""
    stream: str
    day: str
    segment_id: int
    time_range: str | None = None


class Stated(msgspec.Struct, frozen=True):
    """An anchor and its place."""

    place: Place
    anchor: StatedAnchor


class Release(msgspec.Struct, frozen=True):
    """What a release states: its streams, and its anchors in file order. `digest`: over the files that were read."""

    lifelogs: Mapping[str, Lifelog]
    anchors: Sequence[Stated]
    digest: str


class _Item(msgspec.Struct):
    segment_id: int
    evidence_anchors: list[StatedAnchor] = []
    time_range: str | None = None


class _EvidenceFile(msgspec.Struct):
    items: list[_Item] = []
    day: str | None = None


def read_stated(
    layout: Layout, streams: Collection[str] | None = None, progress: Progress | None = None
) -> Release:
    """Read a release (a layout of that kind) with all that its anchors state. Raises DatasetError for a file that is
    no JSON or has values of another type (naming the place), never for an anchor that is incomplete or wrong."""
    report = Report()
    by_stream = files_by_stream(layout, "evidence_tasks", report)
    paths = {name: by_stream[name] for name in sorted(by_stream) if streams is None or name in streams}
    evidence_count = sum(map(len, paths.values()))
    segment_files = [path for path in layout.files if path.relative_to(layout.path).parts[0] == "segments"]

    def shown(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total + evidence_count)

    dataset = read_release(layout._replace(files=segment_files), streams, shown)
    segments_read = dataset.report.counts["files"]

    def shown_after(done: int, total: int) -> None:
        if progress is not None:
            progress(segments_read + done, segments_read + total)

    files = Files(layout.path, evidence_count, report, shown_after)
    anchors = []
    for stream, day_files in paths.items():
        for path in day_files:
            content = files.json(path, _EvidenceFile)
            day = day_of(path, content.day)
            for number, item in enumerate(content.items):
                for position, anchor in enumerate(item.evidence_anchors):
                    inside = f"$.items[{number}].evidence_anchors[{position}]"
                    place = Place(files.name(path), inside, stream, day, item.segment_id, item.time_range)
                    anchors.append(Stated(place, anchor))
    digest = hashlib.sha256(f"{dataset.digest}/{files.digest}".encode()).hexdigest()
    return Release(dataset.lifelogs, anchors, digest)
