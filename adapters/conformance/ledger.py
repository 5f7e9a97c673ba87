"""What a memory's deltas say that it holds, and what is wrong in them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from adapters.memory import Answer, Delta
from simulator.events import MemoryRecord, RetrievedRecord

_SCORE_TOLERANCE: Final = 1e-6


class BrokenError(Exception):
    """A demand is not kept; the message says how, for people to read."""


class Ledger:
    """The records that a memory holds by its deltas: id → record."""

    def __init__(self) -> None:
        self.held: dict[str, MemoryRecord] = {}
        self.deleted: dict[str, MemoryRecord] = {}
        self.faults: list[str] = []
        """What is wrong in the deltas that were taken in."""

    def copy(self) -> Ledger:
        """That of a branch."""
        copy = Ledger()
        copy.held, copy.deleted, copy.faults = dict(self.held), dict(self.deleted), list(self.faults)
        return copy

    def apply(self, what: str, delta: Delta) -> None:
        """Take a delta in, as well as can be: what is wrong in it is noted in `faults`."""
        said: set[str] = set()
        for record in delta.records:
            if (fault := self._fault(record, said)) is not None:
                self.faults.append(f"{what}: {fault}")
            said.add(record.id)
            if record.op != "delete":
                self.held[record.id] = record
            elif record.id in self.held:
                self.deleted[record.id] = self.held.pop(record.id)

    def _fault(self, record: MemoryRecord, said: set[str]) -> str | None:
        known = self.held.get(record.id)
        if not record.id:
            return "a record has no id"
        if record.id in said:
            return f"the delta names record {record.id} twice"
        if record.op == "add" and known is not None:
            return f"record {record.id} is added, and was before: say op=update, or draw another id"
        if record.op != "add" and known is None:
            return f"op={record.op} of record {record.id}, which no delta added"
        if record.op == "update" and known is not None and _content(known) == _content(record):
            return f"op=update of record {record.id}, and it is as it was"
        return None

    def check_found(self, found: Iterable[RetrievedRecord]) -> None:
        """Raise BrokenError for a fault in the deltas, and unless each record is held as it was found."""
        if self.faults:
            raise BrokenError(self.faults[0])
        for record in found:
            held = self.held.get(record.id)
            if held is None and record.id in self.deleted:
                raise BrokenError(f"record {record.id} is found, and a delta deleted it")
            if held is None:
                raise BrokenError(
                    f"record {record.id} is found ({_shown(record.text)}), and no delta named it"
                )
            if _content(held) != _content(record):
                raise BrokenError(
                    f"record {record.id} is found as {_shown(record.text)} at {record.event_time_us}; its delta said "
                    f"{_shown(held.text)} at {held.event_time_us}"
                )


class WallClock:
    """What today's date looks like in a text."""

    def __init__(self, now: datetime | None = None) -> None:
        now = now or datetime.now(UTC)
        self._year = re.compile(
            rf"(?<!\d)({'|'.join({str((now + timedelta(days=d)).year) for d in (-1, 1)})})(?!\d)"
        )
        forms = (
            "%Y-%m-%d",
            "%Y/%m/%d",
            "%Y%m%d",
            "%d %B %Y",
            "%B %d, %Y",
            "%d.%m.%Y",
            "%m/%d/%Y",
            "%Y年%m月%d日",
        )
        days = [now + timedelta(days=d) for d in (-1, 0, 1)]
        self._dates = {day.strftime(form) for day in days for form in forms}

    def in_record(self, text: str) -> str | None:
        """A year of today in a text that a memory holds or says; None: there is none."""
        found = self._year.search(text)
        return found and found[0]

    def in_prompt(self, text: str) -> str | None:
        """A date of today in a prompt, which may have years of its own; None: there is none."""
        return next((date for date in sorted(self._dates) if date in text), None)


def says(answer: Answer, word: str) -> bool:
    """The answer, or a record that it rests on, has this word."""
    return any(word in text.lower() for text in (answer.text, *(r.text for r in answer.retrieved)))


def differing(one: Delta, other: Delta) -> str | None:
    """In what two deltas differ; None: they have the same records."""
    if one.records == other.records:
        return None
    if len(one.records) != len(other.records):
        return f"{len(one.records)} records and {len(other.records)}"
    first, second = next((a, b) for a, b in zip(one.records, other.records, strict=True) if a != b)
    return f"{_record(first)} and {_record(second)}"


def unlike(one: Answer, other: Answer, *, by_text: bool = False) -> str | None:
    """In what two answers differ; None: they are the same but for what they took, and the last digits of scores, which
    with some libraries hang on where numbers lie in memory. `by_text`: but for ids as well."""
    if by_text and [r.text for r in one.retrieved] == [r.text for r in other.retrieved]:
        return None
    if not _equal(one.retrieved, other.retrieved):
        first, second = ([f"{r.id} ({r.score:.6g})" for r in answer.retrieved[:4]] for answer in (one, other))
        return f"found {', '.join(first) or 'nothing'}, then {', '.join(second) or 'nothing'}"
    return None if one.text == other.text else f"said {_shown(one.text)}, then {_shown(other.text)}"


def _equal(one: tuple[RetrievedRecord, ...], other: tuple[RetrievedRecord, ...]) -> bool:
    return len(one) == len(other) and all(
        a.id == b.id
        and _content(a) == _content(b)
        and math.isclose(a.score, b.score, rel_tol=_SCORE_TOLERANCE)
        for a, b in zip(one, other, strict=True)
    )


def check_writable(what: str, given: Delta | Answer) -> None:
    """Raise BrokenError unless it can be written to a log and read again: structs are not checked when made."""
    try:
        msgspec.json.decode(msgspec.json.encode(given), type=type(given))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BrokenError(f"{what}: what it gave can't be written: {error}") from error


def _content(record: MemoryRecord | RetrievedRecord) -> tuple[str, int]:
    return record.text, record.event_time_us


def _record(record: MemoryRecord) -> str:
    return f"{record.op} {record.id} at {record.event_time_us} ({_shown(record.text)})"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
