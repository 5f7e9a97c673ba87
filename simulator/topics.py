"""The topics of a run: their names, keys and who may read them; and events as log records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from simulator.events import SCHEMA_VERSION, Event, LaneEvent, RunStartedEvent, encode, kind_of
from simulator.log.protocol import Headers, Record


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
    "run_started": "control",
    "dataset_report": "control",
    "ready": "control",
    "segment_released": "control",
    "trajectory_closed": "control",
    "replay_ended": "control",
    "run_ended": "control",
    "dead_letter": "dead",
}

_KIND_HEADERS: dict[str, Headers] = {
    kind: (("kind", kind.encode()), ("v", str(SCHEMA_VERSION).encode())) for kind in TOPIC_OF_KIND
}


def wall_us() -> int:
    """Wall time in microseconds since 1970, for headers."""
    return time.time_ns() // 1000


class Recorder:
    """Turns events into log records: topic by kind, key by lane or stream, the stream's partition, the event
    time as stamp, and headers with kind, version and wall times."""

    def __init__(self, run: str, stream_partition: Mapping[str, int]) -> None:
        self.run = run
        self.topics = topics = Topics.of(run)
        self._topic = {kind: getattr(topics, name) for kind, name in TOPIC_OF_KIND.items()}
        self._partition = dict(stream_partition)
        self._unkeyed = {topics.anchors, topics.control, topics.dead}

    @classmethod
    def for_run(cls, started: RunStartedEvent) -> Recorder:
        """The recorder of a run: stream i lies in partition i mod `partitions`."""
        return cls(started.run, {stream: i % started.partitions for i, stream in enumerate(started.streams)})

    def record(self, event: Event, **wall_times_us: int) -> Record:
        """One event as a record. `wall_us` (now) is added unless given; so are others, such as `began_us`."""
        kind = kind_of(event)
        return self._record(event, kind, _KIND_HEADERS[kind] + _wall_headers(wall_times_us))

    def records(self, events: Iterable[Event], **wall_times_us: int) -> list[Record]:
        """Events that share their wall times as records, in order: as `record`, with one set of headers a
        kind."""
        wall_headers = _wall_headers(wall_times_us)
        headers: dict[str, Headers] = {}
        records = []
        for event in events:
            kind = kind_of(event)
            if kind not in headers:
                headers[kind] = _KIND_HEADERS[kind] + wall_headers
            records.append(self._record(event, kind, headers[kind]))
        return records

    def _record(self, event: Event, kind: str, headers: Headers) -> Record:
        topic = self._topic[kind]
        key = event.lane if isinstance(event, LaneEvent) else event.stream
        partition = 0 if topic in self._unkeyed else self._partition[event.stream]
        return Record(topic, key.encode(), encode(event), event.event_time_us // 1000, headers, partition)


def _wall_headers(wall_times_us: dict[str, int]) -> Headers:
    wall_times_us.setdefault("wall_us", wall_us())
    return tuple((name, str(value).encode()) for name, value in wall_times_us.items())
