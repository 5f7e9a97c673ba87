"""The memory-system seam: what a memory system is given, gives back, and must be able to do."""

from __future__ import annotations

from typing import Literal, Protocol, Self, runtime_checkable

import msgspec

from simulator.events import AnchorEvent, MemoryRecord, ObservationEvent, RetrievedRecord, Turn, Usage


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One closed segment of a stream: its observations in order."""

    stream: str
    segment: int
    day: str
    segment_id: int
    start_time_us: int
    end_time_us: int
    observations: tuple[ObservationEvent, ...]

    @property
    def text(self) -> str:
        """All observations, one a line."""
        return "\n".join(o.text for o in self.observations)


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What one ingest or commit newly wrote or changed. `stored_bytes`: what it added to what is kept (texts
    in UTF-8 and vectors; indexes are not counted)."""

    records: tuple[MemoryRecord, ...] = ()
    stored_bytes: int = 0
    usage: Usage = Usage()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asks. `history`: the turns of this conversation so far, the feedback last for R_F;
    `event_time_us`: the simulated now."""

    text: str
    phase: Literal["R1", "R_F", "R2"]
    history: tuple[Turn, ...] = ()
    event_time_us: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and the records that it rests on, best first."""

    text: str
    retrieved: tuple[RetrievedRecord, ...] = ()
    usage: Usage = Usage()


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """A finished conversation to take into memory. `id` is unique within the lane."""

    id: str
    turns: tuple[Turn, ...]
    event_time_us: int


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory system declares. `fork`: `cheap` (O(1), isolated) or `none`. `privileged`: it is handed
    the evidence, so it is an upper bound and no competitor."""

    fork: Literal["cheap", "none"] = "cheap"
    privileged: bool = False


class LaneContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane's memory system is built with, beside its own options. The same for every system of a run,
    so that they are compared like for like. `anchors` is filled for privileged systems alone."""

    lane: str
    stream: str
    seed: int = 0
    top_k: int = 10
    word_budget: int = 500
    anchors: tuple[AnchorEvent, ...] = ()


@runtime_checkable
class MemorySystem(Protocol):
    """One per lane. The agent calls `ingest` one segment at a time; `answer` and `commit` run on forks, many
    at once. Anything raised makes that one result unjudged, never wrong."""

    async def ingest(self, segment: Segment) -> Delta:
        """Take in one closed segment; say what was newly written or changed."""

    async def answer(self, request: Request) -> Answer:
        """Answer from what is stored. Must not change what later answers see."""

    async def commit(self, interaction: Interaction) -> Delta:
        """Take a finished conversation into memory; say what was newly written or changed."""

    def fork(self) -> Self:
        """A cheap and isolated copy: later writes on either side stay there."""

    async def aclose(self) -> None:
        """Let go of what is held outside this process's memory."""


@runtime_checkable
class Preparable(Protocol):
    """A memory system that loads something before its first segment. Awaited before the lane says that it is ready,
    so that loading a model does not count as the latency of an ingest."""

    async def prepare(self) -> None:
        """Load what is needed. What it raises is logged; the first ingest will meet it again."""
