"""What events carry: the words that fields may be, and the values that several kinds of events hold."""

from __future__ import annotations

from typing import Literal

import msgspec

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
