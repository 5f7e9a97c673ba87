"""Topics anchors and verdicts, which agents never read: what trajectories are about, and how they were judged."""

from __future__ import annotations

import msgspec

from simulator.events.base import Event, LaneEvent
from simulator.events.values import Decision, FeedbackDraft, Metric, Outcome, ProbeMetric, Vote


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
    groups: dict[str, str] = msgspec.field(default_factory=dict)
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
    scores: dict[str, float] = msgspec.field(default_factory=dict)
    """What the outcome was decided on, for example overlaps in [0, 1]."""
    votes: tuple[Vote, ...] = ()
    feedback: FeedbackDraft | None = None
    value: float | None = None
    """In [0, 1], of a metric that is a mean and no rate; it passes where this is 1."""
