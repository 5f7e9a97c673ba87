"""The upper bound: a memory that is handed the evidence."""

from __future__ import annotations

import copy
from typing import Self

from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from adapters.responder import respond
from adapters.store import Store
from adapters.systems.records import retrieved_record, stored_bytes
from simulator.events import AnchorEvent, MemoryRecord, ProbeEvent


class OracleMemory:
    """Is handed each segment's evidence statements and answers with exactly the one that the request is
    about, or where a model answers, from it. That is the one of the first anchor, among those of the segments seen so
    far, one of whose two requests equals it; else nothing. Of probes it is handed which segments hold the evidence and
    what is right by then: it keeps these segments whole, and says that. Privileged: an upper bound and no competitor.
    Commits add nothing to what it was handed."""

    capabilities = Capabilities(
        privileged=True,
        answers="run",
        exempt={"commit": "it is handed the evidence, and conversations add nothing to it"},
    )

    __slots__ = ("_anchors_asked", "_anchors_of", "_context", "_evidence", "_probes_asked", "_store")

    def __init__(self, context: LaneContext) -> None:
        self._context = context
        self._store = Store()
        self._anchors_of: dict[int, list[AnchorEvent]] = {}
        self._anchors_asked: dict[str, set[str]] = {}
        self._probes_asked: dict[tuple[str, int], ProbeEvent] = {}
        self._evidence: set[int] = set()
        for subject in context.anchors:
            if isinstance(subject, ProbeEvent):
                # one question may be asked on two days, and what is right may have changed
                self._probes_asked.setdefault((subject.text, subject.task_time_us), subject)
                self._evidence.update(subject.gold.segments)
                continue
            self._anchors_of.setdefault(subject.segment, []).append(subject)
            for task in (subject.initial_task, subject.followup_task):
                self._anchors_asked.setdefault(task.user_request, set()).add(subject.anchor)

    async def ingest(self, segment: Segment) -> Delta:
        """Store the evidence statements of the segment's anchors, or the segment where a probe's evidence is in it."""
        newest_us = segment.observations[-1].event_time_us
        handed = [(a.anchor, a.evidence_statement) for a in self._anchors_of.get(segment.segment, ())]
        if segment.segment in self._evidence:
            lines = "\n".join(observation.text for observation in segment.observations)
            handed.append((f"s{segment.segment}", lines))
        records = tuple(MemoryRecord(id=name, text=text, event_time_us=newest_us) for name, text in handed)
        self._store.add(records)
        return Delta(records=records, stored_bytes=stored_bytes(records))

    async def answer(self, request: Request) -> Answer:
        """The evidence statement that the request is about; to a probe, what is right."""
        asked = self._anchors_asked.get(request.text, set())
        probe = self._probes_asked.get((request.text, request.event_time_us))
        if probe is not None:
            asked = {f"s{segment}" for segment in probe.gold.segments}
        found = [record for record in self._store if record.id in asked]
        retrieved = tuple(retrieved_record(record, 1.0) for record in (found if probe else found[:1]))
        if self._context.responder is not None:
            return await respond(self._context, request, retrieved)
        if probe is not None:
            return Answer(text=_right_answer(probe), retrieved=retrieved)
        return Answer(text=found[0].text if found else "", retrieved=retrieved)  # no budget, no feedback

    async def commit(self, interaction: Interaction) -> Delta:
        """Nothing to add: the evidence is already there."""
        return Delta()

    def fork(self) -> Self:
        """An isolated copy in O(1)."""
        child = copy.copy(self)
        child._store = self._store.fork()
        return child

    async def aclose(self) -> None:
        """There is nothing to let go of."""


def _right_answer(probe: ProbeEvent) -> str:
    gold = probe.gold
    if gold.decision == "SILENT":
        return gold.decision
    if gold.decision is not None:
        option = f"{gold.option}. " if gold.option else ""
        return f"{gold.decision} {option}{gold.answer}"
    return gold.option or gold.answer
