"""Topics control and dead: what steers a run and tells how it stands, and what could not be used."""

from __future__ import annotations

from typing import Literal

import msgspec

from simulator.events.base import Event, LaneEvent
from simulator.events.values import Benchmark, Isolation, Means, Metric


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may have under way at once, so that it waits instead of growing. They change when things happen, and
    neither ids nor verdicts."""

    open_trajectories: int = 1024
    """Trajectories of the run that have begun and not ended: each is a branch of a memory. The next begins when one
    ends."""
    calls_in_flight: int = 64
    """Ingests, answers, commits and judgments that one process has under way."""
    unreleased_segments: int = 256
    """Closed segments of a lane that it holds a snapshot of, or has yet to ingest. In isolation `shared` it is 1: time
    waits for the trajectories of each segment."""
    segments_ahead: int = 128
    """Segments that the replayer may be ahead of a lane's newest delta."""


class ModelUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A configured model that a run asks, and its prices per million tokens; no part of the run's identity."""

    model: str
    prompt_price: float = 0.0
    completion_price: float = 0.0


class Questions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The questions of a load: each is a T1 that is answered, and nothing follows."""

    loaded: int = 0
    """How many are asked while segments are offered; they have the first numbers."""
    idle: int = 0
    """How many are asked after, once all of that is remembered and answered."""

    @property
    def total(self) -> int:
        """How many there are."""
        return self.loaded + self.idle


class RunStartedEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """What a run is: enough to know what to wait for and to tell two runs apart."""

    identity: dict[str, str]
    streams: tuple[str, ...]
    """Stream i lies in partition i mod `partitions` of every keyed topic."""
    segments: dict[str, int]
    """Stream → number of segments that will be replayed."""
    systems: tuple[str, ...]
    privileged: tuple[str, ...]
    """Labels of the systems that are handed the evidence."""
    anchors: int
    partitions: int
    isolation: Isolation
    means: dict[str, Means] = msgspec.field(default_factory=dict)
    """Isolation `branch`: label → how branches are made, of the systems that can't fork and are not attached."""
    ablate_commit: bool = False
    attached: tuple[str, ...] = ()
    """Labels of the systems whose agents are not ours: what they write is checked, and they must keep
    deadlines."""
    answer_timeout_s: float = 600.0
    """How long an attached agent may take for an answer, a commit or a delta."""
    limits: Limits = Limits()
    required: tuple[str, ...] = ()
    """Roles that must say `ready` before the first observation is published."""
    protocol: Benchmark = "streammembench"
    only: tuple[str, ...] = ()
    """The trajectories that are run, where those are not all: a retry's."""
    models: dict[str, ModelUse] = msgspec.field(default_factory=dict)
    """What is asked of models → the model: `answers`, `memory.<label>` for ingests and commits, `judge.<name>`."""
    answered_apart: tuple[str, ...] = ()
    """Where a model answers: labels of the systems that answer by themselves all the same."""
    questions: Questions | None = None
    """A load's, where it has any: then all of the run's tasks are these."""


class DatasetReportEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="dataset_report"):
    """What the reader counted, oddities included."""

    counts: dict[str, int]
    oddities: dict[str, int]


class ReadyEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="ready"):
    """A role subscribed and will see everything that is published from now on."""

    role: str
    means: Means | None = None
    """Agents, in isolation `branch`: how the branches of their lanes are made. In a load with questions: `fork`, where
    these are answered on forks of the newest snapshot."""


class SegmentReleasedEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="segment_released"):
    """No trajectory will start any more on this lane's snapshots up to and including `segment`. In isolation
    `shared` their trajectories have also ended, so that the replayer may go on."""

    segment: int


class TrajectoryClosedEvent(
    LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="trajectory_closed"
):
    """A trajectory has ended. With a `reason` it ended early, and the metrics in `unjudged` can't be judged:
    what they would be judged on never came. `fi` among them is asked only if R1 is judged to have failed."""

    trajectory: str
    anchor: str
    reason: str = ""
    unjudged: tuple[Metric, ...] = ()


class TakenEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="taken"):
    """What an attached agent wrote, a delta or a response, was in place when the conductor came to it: only then is it
    judged. `causes` names it, and the rest its record, since such an agent may write several under one id."""

    topic: str
    partition: int
    offset: int


class LaneFailedEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="lane_failed"):
    """A lane was silent for too long. Nothing waits for it any more, and what it still owes is unjudged."""

    reason: str


class LaneRebuiltEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="lane_rebuilt"):
    """A lane's memory was built again from the log, and what came of it held against the deltas and commits that are
    there. Said when the last delta is the same, and of the first that differs, after which nothing is compared any
    more: `causes` names the event in the log, and `as_of` its segment."""

    rebuild: int
    """1 for the lane's first."""
    segments: int
    """How many segments' deltas were compared by then."""
    difference: str = ""
    """In what it differs, without a word of what is stored, since agents of other lanes read this topic; empty: in
    nothing."""


class ReplayControlEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="replay_control"):
    """What a person tells a running replay. `rate` (simulated seconds per real second; None means as fast as
    the log allows) goes with `set_rate`."""

    action: Literal["pause", "resume", "set_rate"]
    rate: float | None = None


class ProcessSampleEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="process_sample"):
    """What a process used while a load was offered, once a second. What was measured is in the headers: no two runs
    have the same."""

    process: str
    sample: int


class ReplayEndedEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="replay_ended"):
    """Every stream has been replayed."""

    observations: int


class RunEndedEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run_ended"):
    """Every lane has ingested every segment and every trajectory has its verdicts."""

    trajectories: int
    verdicts: int
    unjudged: int


class LoadCutShortEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="load_cut_short"):
    """A load waits no longer for what is still owed: nothing follows."""


class DeadLetterEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="dead_letter"):
    """A record that could not be decoded or used, whole (`value` is base64 in JSON), with the reason."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes
    key: bytes = b""
