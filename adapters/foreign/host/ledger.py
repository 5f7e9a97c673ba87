"""What a memory's records are called, and what an operation changed: a diff of all records before and after.

Native ids are drawn at random by most systems, and would be others in a memory that is built again. Here a record is
named by the operation that wrote it first and its place there (`s17/m0`), in the order in which the driver lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from .driver import Held


class Entry(NamedTuple):
    """A record as deltas have named it last."""

    id: str
    text: str
    event_time_us: int


class Change(NamedTuple):
    """One record that an operation wrote, changed or deleted; a deleted one with the text that it had."""

    entry: Entry
    op: Literal["add", "update", "delete"]


class Ledger:
    """The records of one memory, by native id."""

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self._entries = dict(entries or {})

    def take(self, held: Mapping[str, Held], origin: str, newest_us: int) -> list[Change]:
        """What changed to make it so. `origin`: the operation, another one each time; `newest_us`: event time of the
        newest message in it, for records that the system gives no time. A record whose text is the same has not
        changed, whatever its time is now: an answer that rests on it names it as it was written."""
        entries: dict[str, Entry] = {}
        changes: list[Change] = []
        added = 0
        for native, record in held.items():
            known = self._entries.get(native)
            if known is not None and known.text == record.text:
                entries[native] = known
                continue
            at_us = newest_us if record.event_time_us is None else record.event_time_us
            if known is None:
                entry = Entry(f"{origin}/m{added}", record.text, at_us)
                added += 1
            else:
                entry = Entry(known.id, record.text, at_us)
            entries[native] = entry
            changes.append(Change(entry, "add" if known is None else "update"))
        gone = (known for native, known in self._entries.items() if native not in held)
        changes.extend(Change(Entry(known.id, known.text, newest_us), "delete") for known in gone)
        self._entries = entries
        return changes

    def entry(self, native: str) -> Entry:
        """The record of a native id. Raises KeyError."""
        return self._entries[native]

    def copy(self) -> Ledger:
        """A ledger of the same records, for a fork."""
        return Ledger(self._entries)
