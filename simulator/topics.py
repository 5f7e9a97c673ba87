"""The topics of a run: their names, keys and who may read them; and events as log records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from simulator import timebase
from simulator.events import SCHEMA_VERSION, Event, LaneEvent, RunStartedEvent, encode, kind_of
from simulator.log.protocol import Headers, Record, header_of
from simulator.timebase import wall_us as wall_us  # stamps are taken where they are written


class Topics(NamedTuple):
    """Full topic names of one run."""

    observations: str
    deltas: str
    tasks: str
    responses: str
    feedback: str
    commits: str
    verdicts: str
    anchors: str
    control: str
    dead: str

    @classmethod
    def of(cls, run: str) -> Topics:
        """`<run>.observations` and so on."""
        return cls(*(f"{run}.{name}" for name in cls._fields))

    @property
    def for_agents(self) -> tuple[str, ...]:
        """All that an agent may subscribe to: the gold never travels on these."""
        return (self.observations, self.tasks, self.feedback, self.commits, self.control)

    def partitions(self, partitions: int) -> dict[str, int]:
        """Topic → number of partitions: `partitions` for the keyed topics, one for the others."""
        single = {self.anchors, self.control, self.dead}
        return {name: 1 if name in single else partitions for name in self}


TOPIC_OF_KIND: dict[str, str] = {
    "observation": "observations",
    "segment_closed": "observations",
    "stream_ended": "observations",
    "delta": "deltas",
    "committed": "deltas",
    "task": "tasks",
    "response": "responses",
    "feedback": "feedback",
    "commit": "commits",
    "verdict": "verdicts",
    "anchor": "anchors",
    "probe": "anchors",
    "outline": "anchors",
    "run_started": "control",
    "dataset_report": "control",
    "ready": "control",
    "segment_released": "control",
    "trajectory_closed": "control",
    "taken": "control",
    "lane_failed": "control",
    "lane_rebuilt": "control",
    "replay_control": "control",
    "process_sample": "control",
    "replay_ended": "control",
    "run_ended": "control",
    "load_cut_short": "control",
    "dead_letter": "dead",
}

_KIND_HEADERS: dict[str, Headers] = {
    kind: (("kind", kind.encode()), ("v", str(SCHEMA_VERSION).encode())) for kind in TOPIC_OF_KIND
}
_SAY_BOOT = frozenset(("run_started", "ready", "delta", "segment_released", "process_sample"))
"""Kinds whose headers say which boot's clock their stamps are of: one of each role that stamps what is compared with
another's."""


def partition_of(streams: Sequence[str], partitions: int) -> dict[str, int]:
    """Stream → partition: stream i lies in partition i mod `partitions`."""
    return {stream: i % partitions for i, stream in enumerate(streams)}


_new = tuple.__new__


class Recorder:
    """Turns events into log records: topic by kind, key by lane or stream, the stream's partition, the event
    time as stamp, and headers with kind, version and wall times."""

    def __init__(self, run: str, stream_partition: Mapping[str, int]) -> None:
        self.run = run
        self.topics = topics = Topics.of(run)
        self._topic = {kind: getattr(topics, name) for kind, name in TOPIC_OF_KIND.items()}
        self._places = {stream: (stream.encode(), number) for stream, number in stream_partition.items()}
        self._unkeyed = {topics.anchors, topics.control, topics.dead}

    @classmethod
    def for_run(cls, started: RunStartedEvent) -> Recorder:
        """The recorder of a run: stream i lies in partition i mod `partitions`."""
        return cls(started.run, partition_of(started.streams, started.partitions))

    def record(self, event: Event, **stamps: int | str) -> Record:
        """One event as a record. `wall_us` (now) is added unless given; so are others, such as `began_us`."""
        return self.records((event,), **stamps)[0]

    def records(self, events: Iterable[Event], **stamps: int | str) -> list[Record]:
        """Events that share their wall times as records, in order; all of a kind share their headers."""
        wall_headers = _stamped(stamps)
        kinds: dict[type[Event], tuple[str, Headers, bool, bool]] = {}
        records: list[Record] = []
        for cls, group in groupby(events, type):
            alike = list(group)
            if cls not in kinds:
                kinds[cls] = self._of_kind(alike[0], wall_headers)
            topic, headers, keyed, of_lane = kinds[cls]
            if of_lane or len({event.stream for event in alike}) > 1:
                records += [self._one(event, topic, headers, keyed, of_lane) for event in alike]
                continue
            key, partition = self._place(alike[0].stream, keyed)
            # as Record(...), in half the time: a week has 125,000
            records += [
                _new(Record, (topic, key, encode(event), event.event_time_us // 1000, headers, partition))
                for event in alike
            ]
        return records

    def due_records(
        self, events: Iterable[Event], due_us: Iterable[int], **stamps: int | str
    ) -> list[Record]:
        """The same, each with the moment at which it was due."""
        # likewise: each by itself took the replayer nearly three times as long
        return [
            _new(Record, (topic, key, value, at_ms, (*headers, ("due_us", b"%d" % due)), partition))
            for (topic, key, value, at_ms, headers, partition), due in zip(
                self.records(events, **stamps), due_us, strict=True
            )
        ]

    def _one(self, event: Event, topic: str, headers: Headers, keyed: bool, of_lane: bool) -> Record:
        key, partition = self._place(event.stream, keyed)
        if of_lane:
            key = event.lane.encode()  # type: ignore[attr-defined]  # of_lane says so
        return Record(topic, key, encode(event), event.event_time_us // 1000, headers, partition)

    def _place(self, stream: str, keyed: bool) -> tuple[bytes, int]:
        return self._places[stream] if keyed else (stream.encode(), 0)

    def _of_kind(self, event: Event, wall_headers: Headers) -> tuple[str, Headers, bool, bool]:
        """What all events of this kind share: topic, headers, whether it is keyed, and whether by lane."""
        kind = kind_of(event)
        topic = self._topic[kind]
        headers = _KIND_HEADERS[kind] + wall_headers
        if kind in _SAY_BOOT:
            headers += (("boot", timebase.BOOT.encode()),)
        if kind == "run_started":
            headers += (("offset_us", str(timebase.offset_us()).encode()),)
        return (
            topic,
            headers,
            topic not in self._unkeyed,
            isinstance(event, LaneEvent),
        )


_MOST_DIGITS = 18
"""Of a wall time in microseconds: far more than a clock can say, and what every reader can hold in 64 bits."""


def wall_of(headers: Headers, name: str = "wall_us") -> int | None:
    """A wall time in a record's headers; None where there is none, or (of an attached agent) something else."""
    value = header_of(headers, name)
    return int(value) if value.isdigit() and len(value) <= _MOST_DIGITS else None


def boot_of(headers: Headers) -> str:
    """Which boot's clock a record's stamps are of; empty where it does not say."""
    return header_of(headers, "boot").decode(errors="replace")


def adopt_timebase(headers: Headers) -> None:
    """Go over to the clock of a run, by the headers of its `run_started`, if it was set up on this boot. Logs of before
    this was written say nothing."""
    offset_us = wall_of(headers, "offset_us")
    if offset_us is not None:
        timebase.adopt(boot_of(headers), offset_us)


def _stamped(stamps: dict[str, int | str]) -> Headers:
    if "wall_us" not in stamps:
        stamps["wall_us"] = wall_us()
    return tuple((name, str(value).encode()) for name, value in stamps.items())
