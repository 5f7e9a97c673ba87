"""What the built-in systems share: how interactions and found records are written."""

from __future__ import annotations

from collections.abc import Iterable

from adapters.memory import Interaction
from simulator.events import MemoryRecord, RetrievedRecord


def interaction_text(interaction: Interaction) -> str:
    """A conversation as text: `user: ...` and `assistant: ...`, one turn after the other."""
    return "\n".join(f"{turn.role}: {turn.text}" for turn in interaction.turns)


def retrieved_record(record: MemoryRecord, score: float = 0.0) -> RetrievedRecord:
    """A stored record as an answer reports it."""
    return RetrievedRecord(id=record.id, text=record.text, event_time_us=record.event_time_us, score=score)


def stored_bytes(records: Iterable[MemoryRecord]) -> int:
    """Bytes of the records' texts in UTF-8."""
    return sum(len(record.text.encode()) for record in records)
