"""The log of a run as tests look at it: its events, and what the audit finds in it."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from consumers.audit import Certificate, Finding, audit_log
from simulator.events import AnyEvent, DeadLetterEvent, Event, RunStartedEvent
from simulator.intake import decode_records, read_to_end
from simulator.log.protocol import Log
from simulator.runfolder import find_run
from simulator.topics import Topics

T = TypeVar("T", bound=Event)


class History(NamedTuple):
    """All events of a run, those of each partition in order, but for those that were buried."""

    events: tuple[AnyEvent, ...]
    certificate: Certificate

    @classmethod
    async def read(cls, log: Log, run: str) -> History:
        records = [record async for record in read_to_end(log, Topics.of(run))]
        events = decode_records(run, records)[0]
        buried = {(e.topic, e.partition, e.offset) for e, _ in events if isinstance(e, DeadLetterEvent)}
        started = await find_run(log, run)
        assert started is not None
        return cls(
            tuple(e for e, r in events if (r.topic, r.partition, r.offset) not in buried),
            await audit_log(log, started),
        )

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def started(self) -> RunStartedEvent:
        return self.of(RunStartedEvent)[0]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that is wrong with it; a run that has ended has nothing open."""
        if self.certificate.ended:
            assert self.certificate.open == ()
        return self.certificate.findings
