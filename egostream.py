"""egostream's public API: what your own memory system, judge or reader imports.

    from egostream import Delta, MemoryRecord, Segment      # see examples/own_memory.py

Everything else is internal and may change between versions.
"""

from __future__ import annotations

from adapters.conformance import Result as CheckResult
from adapters.conformance import check as check_memory
from adapters.memory import (
    Answer,
    Capabilities,
    Copyable,
    Delta,
    Interaction,
    LaneContext,
    MemorySystem,
    Preparable,
    Request,
    Segment,
)
from adapters.model import Ask, Message, Model, Said
from adapters.responder import respond
from consumers.scores import Scores
from judges.judge import Case, Judge, Judgment
from producers.datasets import read_dataset
from producers.lanes import ReplayOptions
from producers.lifelog import Dataset, Lifelog, RawObservation, Report, SegmentSpan
from producers.replayer import ReplayStats, replay
from simulator.clock import Clock
from simulator.errors import ConfigError, DatasetError, EgostreamError, InputError, InvariantError, LogError
from simulator.events import (
    AnchorEvent,
    AnchorTask,
    FeedbackDraft,
    MemoryRecord,
    Metric,
    ObservationEvent,
    Outcome,
    RetrievedRecord,
    Turn,
    Usage,
    Vote,
    decode,
    encode,
)
from simulator.log import open_log
from simulator.log.protocol import Log, Record, StoredRecord, Subscription, TopicPartition
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import open_run
from simulator.topics import Recorder, Topics

__all__ = [
    "AnchorEvent",
    "AnchorTask",
    "Answer",
    "Ask",
    "Capabilities",
    "Case",
    "CheckResult",
    "Clock",
    "ConfigError",
    "Copyable",
    "Dataset",
    "DatasetError",
    "Delta",
    "EgostreamError",
    "FeedbackDraft",
    "InputError",
    "Interaction",
    "InvariantError",
    "Judge",
    "Judgment",
    "LaneContext",
    "Lifelog",
    "Log",
    "LogError",
    "MemoryRecord",
    "MemorySystem",
    "Message",
    "Metric",
    "Model",
    "ObservationEvent",
    "Outcome",
    "Preparable",
    "RawObservation",
    "Record",
    "Recorder",
    "ReplayOptions",
    "ReplayStats",
    "Report",
    "Request",
    "RetrievedRecord",
    "RunOptions",
    "Said",
    "Scores",
    "Segment",
    "SegmentSpan",
    "StoredRecord",
    "Subscription",
    "TopicPartition",
    "Topics",
    "Turn",
    "Usage",
    "Vote",
    "check_memory",
    "decode",
    "encode",
    "execute",
    "open_log",
    "open_run",
    "plan_run",
    "read_dataset",
    "replay",
    "respond",
]

if __name__ == "__main__":
    from simulator.cli import main

    main()
