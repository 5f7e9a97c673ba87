"""Dataset files as text and JSON, with every failure as a DatasetError; and where the layouts lie below a
path."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec

from producers.lifelog import DAY1_US, DAY_US, Report
from simulator.errors import DatasetError

Progress = Callable[[int, int], None]
"""Takes the files done and the files in all."""
Kind = Literal["streammembench", "egolife-sync", "egolife-srt"]
T = TypeVar("T")

_MAX_DEPTH = 6
_MAX_FOLDERS = 20_000
_DAY_FOLDER = re.compile(r"DAY\d{1,4}", re.ASCII | re.IGNORECASE)
_CLOCK_NAME = re.compile(r"DAY(\d{1,4})", re.ASCII | re.IGNORECASE)


class Files:
    """Reads the files of one dataset: counts them, digests names and bytes, reports progress.

    `digest` is the SHA-256 over each file's name relative to `root` (POSIX), its length and its bytes, in the
    order of reading: readers go by name.
    """

    def __init__(self, root: Path, total: int, report: Report, progress: Progress | None = None) -> None:
        self._root = root
        self._total = total
        self._done = 0
        self._report = report
        self._progress = progress
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Over all that was read so far, in hexadecimal."""
        return self._hash.hexdigest()

    def name(self, path: Path) -> str:
        """The path relative to the dataset's root, for places in the report."""
        return path.relative_to(self._root).as_posix()

    def text(self, path: Path) -> str:
        """A UTF-8 file; a byte order mark is dropped and counted. Raises DatasetError for one that can't be
        read or isn't UTF-8, naming the line of the first bad byte."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DatasetError(path, f"can't be read: {error.strerror or error}") from error
        self._hash.update(f"{self.name(path)}\0{len(content)}\0".encode())
        self._hash.update(content)
        self._report.counts["files"] += 1
        self._report.counts["bytes"] += len(content)
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise DatasetError(path, f"not UTF-8: byte 0x{content[error.start]:02x}", line) from error
        if text.startswith("\ufeff"):
            self._report.odd("byte_order_mark", self.name(path))
            text = text[1:]
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)
        return text

    def json(self, path: Path, type_: type[T]) -> T:
        """A JSON file as `type_`. Raises DatasetError: with the line for broken JSON, with the place inside
        it (`$.items[3].tasks`) for a value of another form."""
        text = self.text(path)
        try:
            return msgspec.json.decode(text, type=type_)
        except msgspec.ValidationError as error:
            raise DatasetError(path, str(error)) from error
        except RecursionError as error:
            raise DatasetError(path, "not JSON of a lifelog: nested too deeply") from error
        except msgspec.DecodeError as error:
            try:
                json.loads(text)
            except json.JSONDecodeError as broken:
                raise DatasetError(path, f"not JSON: {broken.msg}", broken.lineno) from error
            raise DatasetError(path, f"not JSON: {error}") from error


class FileName(NamedTuple):
    """What a raw file's name says. `start_us`: event time of 00:00:00 inside the file; None where the name
    has no day and clock time, so that its content can't be placed."""

    participant: str
    start_us: int | None
    as_specified: bool
    """`<participant>_DAYn_HHMMSScc.<one extension>`, and nothing else."""


def parse_name(path: Path) -> FileName:
    """Read `<participant>_DAYn_HHMMSScc.srt`, its parts in any order, with any extensions after it."""
    stem, *extensions = path.name.split(".")
    participant: list[str] = []
    day = clock = None
    order = ""
    for part in stem.split("_"):
        if day is None and (match := _CLOCK_NAME.fullmatch(part)):
            day, order = int(match[1]), order + "d"
        elif clock is None and re.fullmatch(r"\d{8}|\d{6}", part, re.ASCII):
            clock, order = part, order + "c"
        else:
            participant.append(part)
            order += "p" if not order.endswith("p") else ""
    if clock is None or day is None or day < 1:
        return FileName("_".join(participant), None, False)
    hours, minutes, seconds = int(clock[:2]), int(clock[2:4]), int(clock[4:6])
    if hours > 23 or minutes > 59 or seconds > 59:
        return FileName("_".join(participant), None, False)
    clock_us = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(clock[6:] or 0) * 10_000
    start_us = DAY1_US + (day - 1) * DAY_US + clock_us
    return FileName(
        "_".join(participant), start_us, order == "pdc" and len(extensions) == 1 and len(clock) == 8
    )


def day_name(event_time_us: int) -> str:
    """The day that a time falls on: `DAY1` and so on."""
    return f"DAY{(event_time_us - DAY1_US) // DAY_US + 1}"


class Layout(NamedTuple):
    """One dataset below a path: `files` are all that its reader reads, in name order. `path` is the folder
    that names it alone."""

    kind: Kind
    path: Path
    files: Sequence[Path]


def _tree(file: Path, top: Path) -> Path:
    """The folder above `<participant>/DAYn/file`, as far as these are there and below `top`."""
    folder = file.parent
    in_day = folder != top and _DAY_FOLDER.fullmatch(folder.name) is not None
    if in_day:
        folder = folder.parent
    if folder != top and (in_day or folder.name == parse_name(file).participant):
        folder = folder.parent
    return folder


def find_layouts(top: Path) -> list[Layout]:
    """All datasets at or below a folder, in path order. Raises DatasetError if it can't be read or is too big
    to be a dataset's folder."""
    found: dict[tuple[Kind, Path], list[Path]] = {}

    def failed(error: OSError) -> None:
        raise DatasetError(error.filename, f"can't be read: {error.strerror}") from error

    walk = os.walk(top, onerror=failed, followlinks=True)
    for folders, (name, subfolders, names) in enumerate(walk, 1):
        folder = Path(name)
        if folders > _MAX_FOLDERS:
            raise DatasetError(
                top, f"more than {_MAX_FOLDERS} folders below it: give the dataset's own folder"
            )
        depth = len(folder.relative_to(top).parts)
        subfolders[:] = sorted(s for s in subfolders if not s.startswith(".")) if depth < _MAX_DEPTH else []
        if "segments" in subfolders:
            files = sorted(
                p for part in ("segments", "evidence_tasks") for p in (folder / part).rglob("*.json")
            )
            if any(_DAY_FOLDER.match(file.name) for file in files):
                found["streammembench", folder] = files
                subfolders[:] = [s for s in subfolders if s not in ("segments", "evidence_tasks")]
        for entry in sorted(names):
            path = folder / entry
            if entry.lower().endswith(".srt"):
                found.setdefault(("egolife-srt", _tree(path, top)), []).append(path)
            elif entry.lower().endswith(".json") and (
                folder.name == "Sync" or parse_name(path).start_us is not None
            ):
                found.setdefault(("egolife-sync", _tree(path, top)), []).append(path)
    layouts = [Layout(kind, path, sorted(files)) for (kind, path), files in found.items()]
    parents = {layout.path.parent for layout in layouts}
    if (
        len(layouts) == 2
        and len(parents) == 1
        and {f.path.name for f in layouts} == {"DenseCaption", "Transcript"}
    ):
        return [Layout("egolife-srt", parents.pop(), sorted(f for layout in layouts for f in layout.files))]
    return sorted(layouts, key=lambda layout: layout.path)
