"""Annotators' sheets: written from a sample, and read back with the answers. CSV (with a byte order mark, so that
spreadsheets read Chinese) or JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from producers.anchors.agreement import Answers
from producers.anchors.criteria import CRITERIA, QUESTIONS, Criterion
from producers.anchors.sampling import Row
from simulator.errors import ConfigError, DatasetError
from simulator.files import write_whole

SheetFormat = Literal["csv", "jsonl"]
SHEET_NAMES = ("annotator_a", "annotator_b")
_NEEDED = ("sample", "item", *CRITERIA)
_ANSWERS: Mapping[str, bool | None] = {
    **dict.fromkeys(("yes", "y", "true", "1", "是"), True),
    **dict.fromkeys(("no", "n", "false", "0", "否"), False),
    "": None,
}


class Sheet(msgspec.Struct, frozen=True):
    """One annotator's sheet. `answers` by item."""

    sample: str
    answers: Mapping[int, Answers]


def write_sheets(rows: Sequence[Row], folder: Path, form: SheetFormat, *, overwrite: bool) -> list[Path]:
    """Write one sheet for each annotator, and what is asked of them. Blocking. Raises ConfigError where a sheet is
    there already, unless it may be overwritten."""
    paths = [folder / f"{name}.{form}" for name in SHEET_NAMES]
    if not overwrite and (there := [str(path) for path in paths if path.exists()]):
        raise ConfigError(
            f"{' and '.join(there)} may hold answers: choose another --out, or pass --overwrite"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = _csv(rows) if form == "csv" else _json_lines(rows)
        for path in paths:
            write_whole(path, content)
        write_whole(folder / "README.md", _instructions(form).encode())
    except OSError as error:
        raise ConfigError(f"{folder} can't hold the sheets: {error.strerror}") from error
    return paths


def _cells(row: Row) -> dict[str, Any]:
    return {**msgspec.to_builtins(row), **dict.fromkeys(CRITERIA, ""), "note": ""}


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*Row.__struct_fields__, *CRITERIA, "note"])
    writer.writeheader()
    writer.writerows(_cells(row) for row in rows)
    return text.getvalue().encode("utf-8-sig")


def _json_lines(rows: Sequence[Row]) -> bytes:
    return b"".join(msgspec.json.encode(_cells(row)) + b"\n" for row in rows)


def _instructions(form: SheetFormat) -> str:
    asked = "\n".join(f"- `{criterion}`: {question}" for criterion, question in QUESTIONS.items())
    cell = "cell" if form == "csv" else "text"
    return f"""# Auditing anchors

Each row is a piece of evidence from a person's day, with two requests that should need it. Two people answer, each on
their own: one in `{SHEET_NAMES[0]}.{form}`, one in `{SHEET_NAMES[1]}.{form}`. Write `yes` or `no` into the {cell} of
each question, and leave it empty where you can't tell. Yes is always the good answer. Change nothing else; `note` is
yours.

{asked}

`context` shows the lines around those that are quoted, which have a `>`; `...` stands for lines left out.

Then: `egostream anchors agreement {SHEET_NAMES[0]}.{form} {SHEET_NAMES[1]}.{form}`
"""


def read_sheet(path: Path) -> Sheet:
    """Read a sheet by its ending, .csv or .jsonl. Blocking. Raises DatasetError, naming the line, for what is no sheet
    and for an answer that is neither yes nor no."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DatasetError(path, f"can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DatasetError(path, "not UTF-8: save it as CSV UTF-8", line) from error
    if path.suffix not in (".csv", ".jsonl"):
        raise DatasetError(path, "is no sheet: expected a file that ends in .csv or .jsonl")
    rows = _csv_rows(path, text) if path.suffix == ".csv" else _json_rows(path, text)
    sample, first_line = None, 0
    answers: dict[int, Answers] = {}
    lines: dict[int, int] = {}
    for line, row in rows:
        if missing := [name for name in _NEEDED if row.get(name) is None]:
            raise DatasetError(
                path, f"no {', '.join(missing)}: is it a sheet of `egostream anchors audit`?", line
            )
        if sample is None:
            sample, first_line = str(row["sample"]), line
        if row["sample"] != sample:
            raise DatasetError(path, f"is of sample {row['sample']}, line {first_line} of {sample}", line)
        item = _item(path, line, row["item"])
        if item in answers:
            raise DatasetError(path, f"item {item} is there twice, first in line {lines[item]}", line)
        lines[item] = line
        answers[item] = {criterion: _answer(path, line, criterion, row[criterion]) for criterion in CRITERIA}
    if sample is None:
        raise DatasetError(path, "has no rows")
    return Sheet(sample, answers)


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with the line that it begins on: cells have line breaks in them."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if reader.fieldnames is not None and "item" not in reader.fieldnames:
            raise DatasetError(path, "the first line must name the columns, with commas between them", 1)
        line = reader.line_num + 1
        for row in reader:
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise DatasetError(path, f"not CSV: {error}", reader.line_num) from error


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except json.JSONDecodeError as error:
            raise DatasetError(path, f"not JSON: {error.msg}", line) from error
        if not isinstance(row, dict):
            raise DatasetError(path, "not a JSON object", line)
        yield line, {name: "" if value is None else value for name, value in row.items()}


def _item(path: Path, line: int, value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal()):
        raise DatasetError(path, f"item is {value!r}, not a number", line)
    return int(text)


def _answer(path: Path, line: int, criterion: Criterion, value: object) -> bool | None:
    said = str(value).strip().lower()
    if said not in _ANSWERS:
        raise DatasetError(path, f"{criterion} is {value!r}: write yes or no, or leave it empty", line)
    return _ANSWERS[said]
