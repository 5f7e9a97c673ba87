"""One trajectory's memory and conversation."""

from __future__ import annotations

import anyio

from adapters.memory import MemorySystem
from consumers.isolation import Spent
from simulator.errors import MemorySystemError
from simulator.events import Turn


class Branch:
    """An isolated branch of a lane's memory at a segment, on which one trajectory runs; with the conversation
    so far and, for the commit ablation, the memory as it was before the commit."""

    __slots__ = (
        "begun",
        "committed",
        "committing",
        "event_time_us",
        "failed",
        "history",
        "memory",
        "opened",
        "segment",
        "spent",
        "uncommitted",
    )

    def __init__(self) -> None:
        self.memory: MemorySystem | None = None
        self.failed: MemorySystemError | None = None
        """Why it has no memory."""
        self.spent = Spent()
        self.segment = -1
        self.event_time_us: int | None = None
        """Where it is not that of its task: a load's question is answered on what the memory is by then."""
        self.history: list[Turn] = []
        self.uncommitted: MemorySystem | None = None
        self.begun = anyio.Event()
        """T1 has come."""
        self.opened = anyio.Event()
        """R1 is there."""
        self.committing = anyio.Event()
        """The commit has come."""
        self.committed = anyio.Event()

    def end(self) -> None:
        """Let whatever waits for something here give up."""
        for event in (self.begun, self.opened, self.committing, self.committed):
            event.set()

    def need(self) -> MemorySystem:
        """Its memory. Raises MemorySystemError where none could be made: that is the result of each call which needs
        it."""
        if self.failed is not None:
            raise self.failed
        assert self.memory is not None  # T1 comes first
        return self.memory
