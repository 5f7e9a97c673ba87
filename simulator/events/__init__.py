"""The events of a run: what travels on the topics, as tagged and versioned msgspec structs.

Every event has a deterministic `id` (the same run inputs give the same ids), the `run`, a `stream` where it
belongs to one, `event_time_us` (simulated microseconds since 1970-01-01 UTC), `as_of` (index of the last
segment that its author had seen; -1 before the first) and `causes` (ids of the events that led to it).
Values hold nothing that differs between two runs of the same inputs: wall times travel in record headers.

On the wire an event is JSON with its `kind` and the schema version `v`. Fields with default values are left
out; unknown fields are ignored, so that a newer writer doesn't break an older reader. An unknown kind, a
missing field or a wrong type raises DecodeError, and the bytes go whole to the dead-letter topic.
"""

from __future__ import annotations

import hashlib

import msgspec

from simulator.errors import DecodeError
from simulator.events.base import SCHEMA_VERSION, Event, LaneEvent, TrajectoryEvent
from simulator.events.control import (
    DatasetReportEvent,
    DeadLetterEvent,
    LaneFailedEvent,
    LaneRebuiltEvent,
    Limits,
    LoadCutShortEvent,
    ModelUse,
    ProcessSampleEvent,
    Questions,
    ReadyEvent,
    ReplayControlEvent,
    ReplayEndedEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentReleasedEvent,
    TakenEvent,
    TrajectoryClosedEvent,
)
from simulator.events.judging import (
    AnchorEvent,
    AnchorTask,
    Gold,
    OutlineEvent,
    ProbeEvent,
    SessionSpan,
    Subject,
    VerdictEvent,
)
from simulator.events.lane import (
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    FeedbackEvent,
    ResponseEvent,
    TaskEvent,
)
from simulator.events.stream import ObservationEvent, SegmentClosedEvent, StreamEndedEvent
from simulator.events.values import (
    AnchorMetric,
    Arm,
    Benchmark,
    Decision,
    FeedbackDraft,
    FeedbackType,
    Isolation,
    Means,
    MemoryRecord,
    Metric,
    Outcome,
    ProbeMetric,
    Replayed,
    ResponsePhase,
    RetrievedRecord,
    Source,
    TaskPhase,
    Turn,
    Usage,
    Vote,
)

__all__ = [
    "SCHEMA_VERSION",
    "AnchorEvent",
    "AnchorMetric",
    "AnchorTask",
    "AnyEvent",
    "Arm",
    "Benchmark",
    "CommitEvent",
    "CommittedEvent",
    "DatasetReportEvent",
    "DeadLetterEvent",
    "Decision",
    "DeltaEvent",
    "Event",
    "FeedbackDraft",
    "FeedbackEvent",
    "FeedbackType",
    "Gold",
    "Isolation",
    "LaneEvent",
    "LaneFailedEvent",
    "LaneRebuiltEvent",
    "Limits",
    "LoadCutShortEvent",
    "Means",
    "MemoryRecord",
    "Metric",
    "ModelUse",
    "ObservationEvent",
    "Outcome",
    "OutlineEvent",
    "ProbeEvent",
    "ProbeMetric",
    "ProcessSampleEvent",
    "Questions",
    "ReadyEvent",
    "ReplayControlEvent",
    "ReplayEndedEvent",
    "Replayed",
    "ResponseEvent",
    "ResponsePhase",
    "RetrievedRecord",
    "RunEndedEvent",
    "RunStartedEvent",
    "SegmentClosedEvent",
    "SegmentReleasedEvent",
    "SessionSpan",
    "Source",
    "StreamEndedEvent",
    "Subject",
    "TakenEvent",
    "TaskEvent",
    "TaskPhase",
    "TrajectoryClosedEvent",
    "TrajectoryEvent",
    "Turn",
    "Usage",
    "VerdictEvent",
    "Vote",
    "decode",
    "encode",
    "identity_digest",
    "kind_of",
]

AnyEvent = (
    ObservationEvent
    | SegmentClosedEvent
    | StreamEndedEvent
    | DeltaEvent
    | TaskEvent
    | ResponseEvent
    | FeedbackEvent
    | CommitEvent
    | CommittedEvent
    | AnchorEvent
    | ProbeEvent
    | OutlineEvent
    | VerdictEvent
    | RunStartedEvent
    | DatasetReportEvent
    | ReadyEvent
    | SegmentReleasedEvent
    | TakenEvent
    | TrajectoryClosedEvent
    | LaneFailedEvent
    | LaneRebuiltEvent
    | ReplayControlEvent
    | ProcessSampleEvent
    | ReplayEndedEvent
    | RunEndedEvent
    | LoadCutShortEvent
    | DeadLetterEvent
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)

encode = _encoder.encode
"""Event → JSON bytes."""


def decode(value: bytes) -> AnyEvent:
    """JSON bytes → event. Raises DecodeError, naming the field, for anything else."""
    try:
        event = _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(str(error)) from error
    if event.v > SCHEMA_VERSION:
        raise DecodeError(
            f"schema version {event.v} is newer than {SCHEMA_VERSION}, this reader's: upgrade egostream"
        )
    return event


def identity_digest(identity: dict[str, str]) -> str:
    """SHA-256 of what a run is, in hex: its first 12 characters are in the run's id."""
    return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()


def kind_of(event: Event | type[Event]) -> str:
    """The tag that travels as `kind` in the value and in the headers."""
    tag = event.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
