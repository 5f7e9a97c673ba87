"""A log in memory, to be forged: events changed, dropped, doubled or moved, each with its record as it would be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from consumers.audit import Certificate
from simulator.events import AnyEvent, Event, decode, encode
from simulator.log.protocol import StoredRecord
from tests.audit.worlds import World, audit_records

T = TypeVar("T", bound=Event)


class Forgery:
    """Begins as a copy of a world's log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.started = world.started
        self.topics = world.topics
        self.log: dict[tuple[str, int], list[tuple[Any, StoredRecord]]] = {
            place: [(decode(record.value), record) for record in records]
            for place, records in world.records.items()
        }

    def audit(self) -> Certificate:
        records = {
            place: [record._replace(offset=offset) for offset, (_, record) in enumerate(kept)]
            for place, kept in self.log.items()
        }
        return audit_records(self.started, records)

    def all(self, kind: type[T], where: Callable[[T], bool] = lambda _: True) -> list[T]:
        return [e for kept in self.log.values() for e, _ in kept if isinstance(e, kind) and where(e)]

    def one(self, kind: type[T], where: Callable[[T], bool] = lambda _: True) -> T:
        """The first of a kind; the test is wrong if there is none."""
        return self.all(kind, where)[0]

    def place(self, event: AnyEvent) -> tuple[tuple[str, int], int]:
        for place, kept in self.log.items():
            for index, (other, _) in enumerate(kept):
                if other is event:
                    return place, index
        raise LookupError(event.id)

    def record(self, event: AnyEvent) -> StoredRecord:
        place, index = self.place(event)
        return self.log[place][index][1]

    def change(self, event: T, **fields: Any) -> T:
        """The event says something else; its record goes with it (stamp included)."""
        place, index = self.place(event)  # type: ignore[arg-type]  # every event here is of a known kind
        changed = replace(event, **fields)
        record = self.log[place][index][1]
        record = record._replace(value=encode(changed), timestamp_ms=changed.event_time_us // 1000)
        self.log[place][index] = (changed, record)
        return changed

    def change_record(self, event: AnyEvent, **fields: Any) -> None:
        place, index = self.place(event)
        self.log[place][index] = (event, self.log[place][index][1]._replace(**fields))

    def set_wall(self, event: AnyEvent, name: str, value: int) -> None:
        headers = tuple(
            (key, str(value).encode() if key == name else old) for key, old in self.record(event).headers
        )
        self.change_record(event, headers=headers)

    def drop(self, event: AnyEvent) -> None:
        place, index = self.place(event)
        del self.log[place][index]

    def add(self, event: Event, like: AnyEvent, *, before: bool = False) -> None:
        """A new event beside another: its record as that one's."""
        place, index = self.place(like)
        record = self.log[place][index][1]
        record = record._replace(value=encode(event), timestamp_ms=event.event_time_us // 1000)
        self.log[place].insert(index if before else index + 1, (event, record))

    def append(self, event: Event, **walls: int) -> None:
        record = self.world.recorder.record(event, **walls)
        place = (record.topic, record.partition or 0)
        stored = StoredRecord(*record[:1], place[1], 0, *record[1:5])
        self.log.setdefault(place, []).append((event, stored))

    def swap(self, first: AnyEvent, second: AnyEvent) -> None:
        (place, i), (other, j) = self.place(first), self.place(second)
        self.log[place][i], self.log[other][j] = self.log[other][j], self.log[place][i]
