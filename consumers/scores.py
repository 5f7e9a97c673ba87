"""What a run scored: the struct that is printed, written and compared. Definitions: docs/metrics.md, and of probes the
page of their benchmark."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from consumers.agreement import Agreement
from consumers.amounts import Amount
from consumers.rebuild import LaneRebuilds
from consumers.spending import Spending
from simulator.events import Benchmark, Isolation, Means, Metric, Outcome, Vote

MAIN_METRICS: Final[tuple[Metric, ...]] = ("fidelity", "ieu", "fi", "fur")
Third = Literal["early", "middle", "late"]
THIRDS: Final[tuple[Third, ...]] = ("early", "middle", "late")

Label = Literal[
    "formation failure",
    "initial evidence use failure",
    "feedback incorporation failure",
    "correction consolidation failure",
    "evidence-use persistence failure",
]
LABELS: Final[tuple[Label, ...]] = (
    "formation failure",
    "initial evidence use failure",
    "feedback incorporation failure",
    "correction consolidation failure",
    "evidence-use persistence failure",
)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How one metric of one trajectory came out, and the verdict that says so (empty: there is none)."""

    outcome: Outcome
    reason: str = ""
    scores: dict[str, float] = {}
    judge: str = ""
    verdict: str = ""
    votes: tuple[Vote, ...] = ()
    value: float | None = None
    """In [0, 1], of a metric that is a mean."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory, with all that is needed to trace it. `marks` has the metrics that it is expected to
    have (`fi` only where R1 failed); `events`, `texts`, `retrieved` and `errors` go by the event's name in
    the trajectory (`T1`, `R1`, `F`, `R_F`, `commit`, `committed`, `T2`, `R2`, `R2-uncommitted`)."""

    system: str
    lane: str
    stream: str
    segment: int
    third: Third
    day: str
    """The segment's date in the lifelog (UTC)."""
    time: str
    """When the segment ended, `HH:MM:SS` (UTC)."""
    anchor: str
    trajectory: str
    evidence_id: str = ""
    """Of a probe, the data set's own name of it."""
    evidence_type: str = ""
    subject: str = ""
    evidence: str = ""
    """Of a probe, the question."""
    marks: dict[Metric, Mark]
    label: Label | None = None
    """The failure label; None where nothing failed, or where `unlabelled` says what is missing for one."""
    unlabelled: str = ""
    events: dict[str, str]
    texts: dict[str, str]
    retrieved: dict[str, int]
    errors: dict[str, str]
    closed: bool
    closed_reason: str
    missed: int = 0
    """Segments that its memory lacks, since their ingest failed before."""
    attempt: int = 1
    """Above 1 where it was run again (`egostream retry`)."""
    groups: dict[str, str] = {}
    """Of a probe: what results are reported by → its group."""
    newer: bool = False
    """Of a probe: R1 rests on a record that is newer than the moment at which it was due."""


class MetricRate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric of one system, over all of its trajectories or over a group of them (a third, an evidence type, a
    subject). `rate` = passed / judged in [0, 1]; None when nothing was judged."""

    system: str
    group: str = ""
    """Empty, and not written: over all."""
    metric: Metric
    passed: int
    judged: int
    unjudged: int
    rate: float | None
    privileged: bool | msgspec.UnsetType = msgspec.UNSET
    """Written over all alone."""


class ChoiceRate(MetricRate, frozen=True, kw_only=True):
    """A rate of right choices. `invalid`: replies that name no option, or several; among the judged ones."""

    invalid: int


class MetricMean(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one system that is a mean: `value` in [0, 1] over `n` judged ones; None when there was none."""

    system: str
    metric: Metric
    value: float | None
    n: int
    unjudged: int
    privileged: bool = False


class GroupScore(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one system over the probes of one group. `value`: the rate or the mean over `n` judged ones."""

    system: str
    by: str
    group: str
    metric: Metric
    value: float | None
    n: int
    unjudged: int


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from several metrics, or from asking in two ways. `value` is None where it is undefined; `n`: what
    it stands on; `counts`: what it was worked out from (docs, the benchmark's page)."""

    system: str
    name: str
    value: float | None
    n: int
    counts: dict[str, float] = {}


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """Why trajectories failed. Failure-free, labelled and unlabelled ones add up to all. `unlabelled`:
    whether they failed, or why, hangs on something unjudged: reason → number."""

    system: str
    no_failure: int
    labels: dict[Label, int]
    unlabelled: dict[str, int]


class Ablation(msgspec.Struct, frozen=True, kw_only=True):
    """Follow-up reuse with and without the interaction committed, over the trajectories judged in both arms.
    `difference` = (passed committed - passed uncommitted) / pairs; None without pairs."""

    system: str
    pairs: int
    unpaired: int
    passed_committed: int
    passed_uncommitted: int
    only_committed: int
    only_uncommitted: int
    difference: float | None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a system cost; None where nothing was measured. Failed operations are left out of bytes and
    seconds, but what they cost in tokens was paid."""

    system: str
    stored_bytes: Amount | None
    """Per segment ingested."""
    ingest_seconds: Amount | None
    """Per segment ingested."""
    answer_seconds: Amount | None
    """Per T1 answered."""
    ingest_tokens: Amount | None
    """Prompt and completion tokens, per segment."""
    trajectory_tokens: Amount | None
    """Prompt and completion tokens of all answers and commits, per trajectory begun."""
    branch_seconds: Amount | None = None
    """Getting the memory that a trajectory runs on, per T1 answered."""
    replayed_tokens: Amount | None = None
    """Prompt and completion tokens of the ingests that were repeated for branches, per trajectory begun; None for a
    system that is not replayed."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What a system kept, and how fast, per hour of stream; gaps between sessions are no stream. None: not known."""

    system: str
    peak_bytes_per_hour: float | None
    """The most that was kept at the end of any completed session, the highest of its streams."""
    replay_real_time_factor: float | None
    """Time that ingests and answers took ÷ duration of the sessions: below 1 it keeps up."""
    first_token_seconds: Amount | None
    """From the question to the answer's first token, where the system streams and says so."""


class Unjudged(msgspec.Struct, frozen=True, kw_only=True):
    """Trajectories that lack a judged metric. `reasons`: reason of the first such metric → trajectories;
    `systems`: system → trajectories."""

    trajectories: int = 0
    share: float = 0.0
    reasons: dict[str, int] = {}
    systems: dict[str, int] = {}


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run scored, in the run's order of systems."""

    run: str
    ended: bool
    systems: tuple[str, ...]
    privileged: tuple[str, ...]
    isolation: Isolation
    means: dict[str, Means]
    """Isolation `branch`: system → how its branches were made, where that is known."""
    announced_anchors: int
    """Anchors or probes."""
    anchors: int
    failed_ingests: dict[str, dict[str, int]]
    """System → reason → segments."""
    dead_letters: dict[str, int]
    """Reason → records."""
    strays: tuple[str, ...]
    """Trajectories in the log that no anchor and system of the run has."""
    protocol: Benchmark = "streammembench"
    trajectories: int = 0
    unjudged: Unjudged = Unjudged()
    scores: tuple[MetricRate | MetricMean, ...] = ()
    ablation: tuple[Ablation, ...] = ()
    labels: tuple[Labels, ...] = ()
    thirds: tuple[MetricRate, ...] = ()
    by_evidence_type: tuple[MetricRate, ...] = ()
    by_subject: tuple[MetricRate, ...] = ()
    costs: tuple[Cost, ...] = ()
    """Each segment and trajectory once: of one that was retried, what it cost then. So are `spending` and `pace`."""
    spending: tuple[Spending, ...] = ()
    """What models took, by system and role; empty where none was asked."""
    agreement: tuple[Agreement, ...] = ()
    """How far the votes of judges agreed; empty where nobody voted."""
    answered_by: str = ""
    """The model that answers for memory systems; empty: they answer by extraction."""
    embedded_by: tuple[str, ...] = ()
    """Models that make vectors: what these took is in no event, so `spending` lacks it."""
    answered_apart: tuple[str, ...] = ()
    """Where a model answers: systems that answer by themselves all the same."""
    groups: tuple[GroupScore, ...] = ()
    """Of probes."""
    findings: tuple[Finding, ...] = ()
    """Of probes."""
    pace: tuple[Pace, ...] = ()
    """Of streams with sessions."""
    rebuilds: tuple[LaneRebuilds, ...] = ()
    """The lanes whose memory was built again, after a restart or by a new owner; those of retries too."""
    oddities: dict[str, int] = {}
    """What the reader found odd in the source, the commonest first: name → how often."""
    rows: tuple[Row, ...] = ()

    @property
    def retried(self) -> int:
        """How many trajectories stand as a retry left them."""
        return sum(row.attempt > 1 for row in self.rows)

    @property
    def gapped(self) -> int:
        """How many trajectories ran on a memory that lacks a segment: what they came to may be the gap's doing."""
        return sum(row.missed > 0 for row in self.rows)

    @property
    def complete(self) -> bool:
        """Every metric of every announced trajectory was judged, on a memory that lacks no segment, and no record was
        lost to a dead letter."""
        return not (
            self.unjudged.trajectories
            or self.gapped
            or self.dead_letters
            or self.strays
            or self.anchors != self.announced_anchors
        )
