"""Dataset readers: a path → lifelogs with segments, anchors, and a report of every oddity."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from producers.datasets.egolife import read_srt, read_sync
from producers.datasets.files import Kind, Layout, Progress, find_layouts
from producers.datasets.srt import Language
from producers.datasets.streammembench import read_release
from producers.datasets.writing import write_release
from producers.lifelog import Dataset
from producers.seeded import PREFIX, parse_numbers
from producers.synthetic import SyntheticOptions, synthesise
from simulator.errors import DatasetError

__all__ = [
    "Language",
    "Layout",
    "Progress",
    "layouts_at",
    "one_layout",
    "read_dataset",
    "read_layout",
    "write_release",
]

_RELEASE_PARTS = ("segments", "evidence_tasks")


def layouts_at(path: str | Path) -> tuple[list[Layout], str | None]:
    """The datasets at or below a folder, and the one stream that the path names, if it is a participant's
    folder in a StreamMemBench release. Raises DatasetError if there is none."""
    given = Path(path)
    if not given.exists():
        raise DatasetError(path, "no such folder")
    if not given.is_dir():
        raise DatasetError(path, "is a file: give the folder of the dataset, or name its --benchmark")
    top = given.resolve()
    stream = None
    if top.name in _RELEASE_PARTS:
        given = top = top.parent
    elif top.parent.name in _RELEASE_PARTS:
        stream, top = top.name, top.parent.parent
        given = top
    layouts = find_layouts(given)
    if not layouts:
        content = "it is empty" if not any(given.iterdir()) else "no file in it is of a known layout"
        known = "segments/ of StreamMemBench; Transcript/, DenseCaption/ (.srt), Sync/ (.json) of EgoLife"
        raise DatasetError(path, f"no lifelog: {content}; expected {known}")
    return layouts, stream


def one_layout(
    path: str | Path, language: Language = "en", kind: Kind | None = None
) -> tuple[Layout, str | None]:
    """The one dataset (of a kind) at or below a folder, by language where one folder holds both releases; and the
    one stream that the path names, if it does. Raises DatasetError where there is none or there are several."""
    layouts, stream = layouts_at(path)
    if kind is not None:
        found = ", ".join(sorted({layout.kind for layout in layouts}))
        layouts = [layout for layout in layouts if layout.kind == kind]
        if not layouts:
            raise DatasetError(path, f"holds no {kind} dataset, only {found}")
    chosen = layouts
    asked_by_path = any(Path(path).resolve().is_relative_to(layout.path.resolve()) for layout in layouts)
    if not asked_by_path and all(layout.kind == "streammembench" for layout in layouts):
        other = {"en": "_zh", "zh": "_en"}.get(language)
        chosen = [layout for layout in layouts if other is None or not layout.path.name.endswith(other)]
    if len(chosen) != 1:
        choices = ", ".join(str(layout.path) for layout in layouts)
        reason = "holds several datasets" if chosen else f"has no release in language {language}"
        raise DatasetError(path, f"{reason}: give one of {choices}")
    return chosen[0], stream


def read_layout(
    layout: Layout,
    *,
    language: Language = "en",
    streams: Collection[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read one dataset that `layouts_at` found."""
    if layout.kind == "streammembench":
        return read_release(layout, streams, progress)
    if layout.kind == "egolife-sync":
        return read_sync(layout, streams, progress)
    return read_srt(layout, language, streams, progress)


def read_dataset(
    path: str | Path,
    *,
    language: Language = "en",
    streams: Collection[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read the one dataset at or below a path, or a `synthetic:` one.

    `language` picks the text of bilingual cues, and the release where one folder holds both languages;
    `streams` keeps these wearers alone. Blocks: call it in a thread. Raises DatasetError (naming path, line
    and reason) for what can't be read, and with the choices where several datasets lie below the path;
    ConfigError for a wrong `synthetic:` path.
    """
    if isinstance(path, str) and path.startswith(PREFIX):
        return _keep(synthesise(parse_numbers(path, SyntheticOptions)), streams)
    layout, stream = one_layout(path, language)
    if stream is not None:
        streams = [stream] if streams is None else streams
    return read_layout(layout, language=language, streams=streams, progress=progress)


def _keep(dataset: Dataset, streams: Collection[str] | None) -> Dataset:
    if streams is None:
        return dataset
    if unknown := sorted(set(streams) - set(dataset.lifelogs)):
        raise DatasetError(
            dataset.path, f"no stream {', '.join(unknown)}; there is {', '.join(dataset.lifelogs)}"
        )
    lifelogs = {name: lifelog for name, lifelog in dataset.lifelogs.items() if name in streams}
    anchors = [anchor for anchor in dataset.anchors if anchor.stream in streams]
    return msgspec.structs.replace(dataset, lifelogs=lifelogs, anchors=anchors)
