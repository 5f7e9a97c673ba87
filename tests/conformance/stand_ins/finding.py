"""Memory systems that break a demand on what they keep and find."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from adapters.memory import Answer, Delta, LaneContext, Request, Segment
from simulator.events import MemoryRecord, ObservationEvent, RetrievedRecord
from tests.conformance.stand_ins.whole import Whole


class NewestFirst(Whole):
    """Finds what is new, whatever is asked."""

    def score(self, record: MemoryRecord, asked: set[str]) -> float:
        return 0.0


class AddsTwice(Whole):
    """Names its newest record again with each segment."""

    async def ingest(self, segment: Segment) -> Delta:
        last = self.kept[-1:]
        delta = await super().ingest(segment)
        return replace(delta, records=last + delta.records)


class UpdatesUnknown(Whole):
    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        return Delta(records=tuple(replace(r, op="update") for r in delta.records))


class Secretive(Whole):
    """Leaves the last record of a segment out of its delta."""

    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        return replace(delta, records=delta.records[:-1]) if len(delta.records) > 1 else delta


class Rewrites(Whole):
    """Finds other texts than it said it keeps."""

    def search(self, text: str) -> list[RetrievedRecord]:
        return [replace(r, text=f"{r.text} ") for r in super().search(text)]


class Boastful(Whole):
    """Claims a record that it doesn't keep."""

    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        claimed = replace(delta.records[0], id=f"s{segment.segment}/all", text=segment.text)
        return replace(delta, records=(*delta.records, claimed))


class Generous(Whole):
    """Rests answers on all that it has."""

    async def answer(self, request: Request) -> Answer:
        best = self.search(request.text)
        return Answer(text="\n".join(r.text for r in best), retrieved=tuple(best))


class AsciiOnly(Whole):
    def record_of(self, o: ObservationEvent) -> MemoryRecord:
        return replace(super().record_of(o), text=o.text.encode("ascii", "replace").decode())


class WantsTwo(Whole):
    """A lone observation has no context, it thinks."""

    async def ingest(self, segment: Segment) -> Delta:
        return await super().ingest(segment) if len(segment.observations) > 1 else Delta()


class Cuts(Whole):
    """Reads the first hundred observations of a segment."""

    async def ingest(self, segment: Segment) -> Delta:
        return await super().ingest(replace(segment, observations=segment.observations[:100]))


class NeedsOne(Whole):
    def search(self, text: str) -> list[RetrievedRecord]:
        found = super().search(text)
        assert found[0]
        return found


class Mixes(Whole):
    """All memories that are open see what each of them ingests, but for forks."""

    open: ClassVar[list[Mixes]] = []

    def __init__(self, context: LaneContext) -> None:
        super().__init__(context)
        self.open.append(self)

    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        for other in self.open:
            if other is not self and self in self.open:
                other.keep(*delta.records)
        return delta

    async def aclose(self) -> None:
        if self in self.open:
            self.open.remove(self)
