"""Canaries: marks planted in observations show up only where they can have been seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from consumers.audit.certificate import Book, Invariant, Kept, Place
from simulator.events import ObservationEvent, RunStartedEvent
from simulator.log.protocol import StoredRecord
from simulator.marks import IDENTITY_FIELD, mark_of, marks_in

_NONE: Final = "0"


class Canaries:
    """Keeps where each mark was planted. On a run without canaries it does nothing."""

    def __init__(self, started: RunStartedEvent, book: Book) -> None:
        self._book = book
        self.announced = int(started.identity.get(IDENTITY_FIELD, _NONE))
        self._seed = int(started.identity.get("seed", _NONE))
        self._planted: dict[str, tuple[str, int]] = {}
        """Mark → stream and segment."""

    def observation(self, event: ObservationEvent, record: StoredRecord, segment: int) -> None:
        """Take an observation of a segment that is open."""
        for mark in marks_in(event.text) if self.announced else ():
            if mark == mark_of(self._seed, event.stream, event.seq) and mark not in self._planted:
                self._planted[mark] = (event.stream, segment)
            else:
                self._book.find(
                    "1",
                    "canary_moved",
                    f"{event.id} holds the mark {mark}, which was planted elsewhere",
                    (event.id, Place.of(record)),
                )

    def seen(
        self,
        invariant: Invariant,
        texts: Iterable[str],
        stream: str,
        as_of: int,
        event: Kept | tuple[str, Place],
    ) -> None:
        """Check what an event says whose author had seen the stream up to the segment `as_of`. `invariant`: the one
        that a mark of a later segment breaks."""
        if not self.announced:
            return
        name = event.id if isinstance(event, Kept) else event[0]
        for mark in dict.fromkeys(mark for text in texts for mark in marks_in(text)):
            planted = self._planted.get(mark)
            if planted is None:
                self._book.lacks(
                    invariant,
                    "canary_unknown",
                    f"{name} holds the mark {mark}, which no observation holds",
                    event,
                )
            elif planted[0] != stream:
                self._book.find(
                    "5",
                    "canary_stream",
                    f"{name} holds the mark {mark}, which was planted in {planted[0]}",
                    event,
                )
            elif planted[1] > as_of:
                self._book.find(
                    invariant,
                    "canary_early",
                    f"{name} holds the mark {mark} of segment {planted[1]}, and is as of {as_of}",
                    event,
                )

    def close(self, *, ended: bool) -> None:
        """All that were announced are there, once all is replayed."""
        if ended and len(self._planted) != self.announced:
            self._book.find(
                "1",
                "canary_missing",
                f"{self.announced} canaries were planted, and {len(self._planted)} were published",
            )
