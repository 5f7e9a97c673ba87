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
from typing import Literal

import msgspec

from simulator.errors import DecodeError

SCHEMA_VERSION = 1

Source = Literal["dialog", "description"]
TaskPhase = Literal["T1", "T2"]
ResponsePhase = Literal["R1", "R_F", "R2"]
Arm = Literal["committed", "uncommitted"]  # the paired commit ablation: T2 with and without the commit
FeedbackType = Literal["affirm", "revise"]
Outcome = Literal["pass", "fail", "unjudged"]
Decision = Literal["INTERVENE", "SILENT"]
ProbeMetric = Literal[
    "recall_any@10",
    "recall_all@10",
    "ndcg@10",
    "recall_any@20",
    "recall_all@20",
    "ndcg@20",
    "qa",
    "memory_recall",
    "helpful",
    "mcq_accuracy",
    "open_accuracy",
    "mcq_accuracy_offline",
    "open_accuracy_offline",
    "decision",
    "gated_score",
]
AnchorMetric = Literal["fidelity", "ieu", "fi", "fur", "fur_uncommitted"]
Metric = AnchorMetric | ProbeMetric
Benchmark = Literal["streammembench", "lifedialbench", "realmem", "apm"]
Isolation = Literal["branch", "shared"]
Means = Literal["fork", "copy", "replay"]  # how a lane's memory gets the branches of isolation `branch`


class MemoryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record that a memory system wrote or changed. `id` is unique within its lane."""

    id: str
    text: str
    event_time_us: int
    """Event time of the newest observation (or of the interaction) that the record rests on."""
    op: Literal["add", "update", "delete"] = "add"


class RetrievedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record that an answer used, best first."""

    id: str
    text: str
    event_time_us: int
    score: float = 0.0


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation between the person and the memory agent."""

    role: Literal["user", "assistant"]
    text: str


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Model tokens that an operation cost; zero for systems without a model. An answer from the cache counts as when
    it was paid for: equal runs have equal usage. `calls`: answers of models that it took, where that is known."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0


class Replayed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What it took, beside the lane's own ingests, to make a branch by replay of the prefix."""

    segments: int = 0
    usage: Usage = Usage()


class FeedbackDraft(msgspec.Struct, frozen=True, kw_only=True):
    """What the user simulator says to R1; the conductor publishes it as feedback F."""

    type: FeedbackType
    text: str


class Vote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the votes behind a verdict. `judge`: the model that cast it, or the judge where several judge each case;
    `votes`: those behind that judge's own. `usage`: of this one vote. `value`: of a rated metric, what the vote gives,
    in [0, 1]; its `outcome` is then `pass` where that is 1."""

    outcome: Outcome
    value: float | None = None
    reason: str = ""
    judge: str = ""
    votes: tuple[Vote, ...] = ()
    usage: Usage = Usage()


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """What every event has. They hold no cycles, so the garbage collector need not look at them."""

    id: str
    run: str
    event_time_us: int
    stream: str = ""
    as_of: int | None = None
    causes: tuple[str, ...] = ()
    v: int = SCHEMA_VERSION


class LaneEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An event of one lane: one memory system configuration on one stream."""

    lane: str


class TrajectoryEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True):
    """An event of one trajectory. `step` orders the events inside it: topics have no order between them."""

    trajectory: str
    step: int


# --- topic observations ----------------------------------------------------------------------------


class ObservationEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="observation"):
    """One caption or utterance. `seq` is gapless from 0 within the stream."""

    seq: int
    source: Source
    text: str
    day: str = ""
    stream_index: int | None = None
    """Position within the day, as the StreamMemBench release counts."""
    end_time_us: int | None = None


class SegmentClosedEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="segment_closed"):
    """A segment is complete: observations `first_seq`..`last_seq` (both inside). Published on observations.

    `segment` counts from 0 over the whole stream; `segment_id` is the dataset's own number within `day`.
    `event_time_us` is the end of the segment.
    """

    segment: int
    day: str
    segment_id: int
    start_time_us: int
    first_seq: int
    last_seq: int


class StreamEndedEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="stream_ended"):
    """Nothing of this stream follows. Published on observations, after the last segment closed."""

    observations: int
    segments: int


# --- topics deltas, tasks, responses, feedback, commits --------------------------------------------


class DeltaEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="delta"):
    """What a lane newly wrote or changed for one segment. `error` set: ingest failed, and says why."""

    segment: int
    records: tuple[MemoryRecord, ...] = ()
    stored_bytes: int = 0
    usage: Usage = Usage()
    error: str | None = None


class TaskEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="task"):
    """T1 or T2: what the person asks, on the memory as it was after `segment`."""

    phase: TaskPhase
    segment: int
    text: str
    arm: Arm = "committed"


class ResponseEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="response"):
    """R1, R_F or R2. `error` set: the memory system gave no answer, and says why; `text` is then empty."""

    phase: ResponsePhase
    text: str = ""
    arm: Arm = "committed"
    retrieved: tuple[RetrievedRecord, ...] = ()
    usage: Usage = Usage()
    error: str | None = None
    replayed: Replayed = Replayed()
    """R1: for the branch that the trajectory runs on."""


class FeedbackEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="feedback"):
    """F: what the person says to R1. `revise` asks for R_F; `affirm` asks for nothing."""

    type: FeedbackType
    text: str


class CommitEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="commit"):
    """Asks the lane to take the interaction into the trajectory's branch of its memory.

    `keep_uncommitted`: also keep the branch as it was before, for T2 with arm `uncommitted`.
    """

    interaction: tuple[Turn, ...]
    keep_uncommitted: bool = False


class CommittedEvent(TrajectoryEvent, frozen=True, kw_only=True, omit_defaults=True, tag="committed"):
    """The lane's answer to a commit: what the branch newly wrote or changed. Published on deltas."""

    records: tuple[MemoryRecord, ...] = ()
    stored_bytes: int = 0
    usage: Usage = Usage()
    error: str | None = None
    replayed: Replayed = Replayed()
    """With `keep_uncommitted`: for the branch without the commit."""


# --- topics anchors and verdicts (never read by agents) --------------------------------------------


class AnchorTask(msgspec.Struct, frozen=True, kw_only=True):
    """One of an anchor's two tasks with its gold behaviour."""

    user_request: str
    expected_behavior: str


class AnchorEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="anchor"):
    """A piece of evidence with its two tasks and gold behaviour. `anchor` is opaque (`A1_JAKE/s9/e0`): it
    goes into trajectory ids, which agents see, while `evidence_id` often says what the evidence is."""

    anchor: str
    segment: int
    evidence_id: str
    evidence_statement: str
    evidence_type: str
    subject: str
    initial_task: AnchorTask
    followup_task: AnchorTask
    supporting_seqs: tuple[int, ...] = ()
    """`seq` of the supporting observations that were found in the stream."""

    @property
    def task_time_us(self) -> int:
        """The event time of all that happens in its trajectories."""
        return self.event_time_us


class Gold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What judges hold an answer to a probe against. A benchmark fills what it has; no agent may see any of it."""

    answer: str = ""
    """The reference answer."""
    option: str = ""
    """Letter of the right option; empty where there is none to choose."""
    decision: Decision | None = None
    """At a heartbeat: whether to speak up."""
    segments: tuple[int, ...] = ()
    """The segments that hold the evidence, as far as the stream has them; sessions in RealMem."""
    memories: tuple[str, ...] = ()
    """Texts of the memory items that a good answer rests on."""


class ProbeEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="probe"):
    """A question that is asked once, in place of an anchor: by the benchmarks that have no feedback (LifeDialBench,
    RealMem, APM-Bench). `event_time_us` is the end of `segment`, after which it is asked; `anchor` is opaque, as an
    anchor's, and `source_id` the data set's own."""

    anchor: str
    segment: int
    source_id: str
    asked_time_us: int
    """When it was due, by the data set: asked offline, long before the end of `segment`."""
    question: str
    options: tuple[str, ...] = ()
    """Texts without letters, A first; empty for an open question."""
    text: str
    """What the agent is asked: the question and, of a choice, the options and how to name one."""
    gold: Gold = Gold()
    groups: dict[str, str] = {}
    """What results are reported by: `category`, `type`, `task` ... → the probe's group."""
    metrics: tuple[ProbeMetric, ...]
    """What it is judged by."""

    @property
    def task_time_us(self) -> int:
        """The event time of its task: when it was due, or the end of the segment where that is later."""
        return max(self.asked_time_us, self.event_time_us)


Subject = AnchorEvent | ProbeEvent
"""What a trajectory is about."""


class SessionSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Segments `first_segment`..`last_segment` (both inside) that belong together, and when they happen."""

    name: str
    first_segment: int
    last_segment: int
    start_time_us: int
    end_time_us: int


class OutlineEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="outline"):
    """Where a stream's segments end, for those who ask which segment a record is of, and its sessions, where these are
    more than segments."""

    segment_ends_us: tuple[int, ...]
    sessions: tuple[SessionSpan, ...] = ()


class VerdictEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="verdict"):
    """One judgment of one metric of one trajectory. `reason` always says why it is unjudged."""

    trajectory: str
    anchor: str
    metric: Metric
    outcome: Outcome
    reason: str = ""
    judge: str = ""
    scores: dict[str, float] = {}
    """What the outcome was decided on, for example overlaps in [0, 1]."""
    votes: tuple[Vote, ...] = ()
    feedback: FeedbackDraft | None = None
    value: float | None = None
    """In [0, 1], of a metric that is a mean and no rate; it passes where this is 1."""


# --- topic control ---------------------------------------------------------------------------------


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
    means: dict[str, Means] = {}
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
    models: dict[str, ModelUse] = {}
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


class LaneFailedEvent(LaneEvent, frozen=True, kw_only=True, omit_defaults=True, tag="lane_failed"):
    """A lane was silent for too long. Nothing waits for it any more, and what it still owes is unjudged."""

    reason: str


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


# --- topic dead ------------------------------------------------------------------------------------


class DeadLetterEvent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="dead_letter"):
    """A record that could not be decoded or used, whole (`value` is base64 in JSON), with the reason."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes
    key: bytes = b""


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
    | TrajectoryClosedEvent
    | LaneFailedEvent
    | ReplayControlEvent
    | ProcessSampleEvent
    | ReplayEndedEvent
    | RunEndedEvent
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
