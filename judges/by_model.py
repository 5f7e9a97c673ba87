"""StreamMemBench's judges by a language model: A_eval audits what was written, A_user plays the person and scores what
was answered. The criteria stand in `judges/prompts/`; docs/judges.md says what differs from the paper.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from adapters.model import Model
from adapters.prompt import Prompt, PromptLanguage, load_prompt
from judges.deterministic import EVIDENCE_OVERLAP, official_feedback
from judges.judge import Case, Judge, Judgment
from judges.metrics import overlap, quotes
from judges.votes import JUDGE_TEMPERATURE, poll
from simulator.events import AnchorEvent, FeedbackDraft, Metric, Outcome

JUDGE_PROMPTS: Final = Path(__file__).with_name("prompts")
FIDELITY_PROMPT: Final = "fidelity_v1"
USER_PROMPT: Final = "user_v1"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What A_eval says of one statement."""

    index: int
    knowledge_statement: str
    present: bool
    reason: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What A_eval answers. The paper's array stands in an object: servers that keep a schema take no other root."""

    findings: Annotated[list[Finding], msgspec.Meta(min_length=1, max_length=1)]


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Where A_user found evidence in an answer."""

    evidence_statement: str
    quote_hints: list[str] = []


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """What A_user says of one answer, and to the assistant."""

    type: Literal["affirm", "revise"]
    reason: str
    feedback: str = ""
    evidence: list[Reference] = []


class ModelFidelityAuditor:
    """A_eval. One statement a call: a verdict hangs on nothing but its own anchor, also after a restart. Scores:
    `agreement`."""

    metrics: frozenset[Metric] = frozenset({"fidelity"})

    def __init__(self, model: Model, label: str, *, votes: int, language: PromptLanguage) -> None:
        self._model = model
        self._label = label
        self._votes = votes
        self._prompt = load_prompt(JUDGE_PROMPTS, FIDELITY_PROMPT, language)
        self.name: str = _name("A_eval", label, model, self._prompt, votes)

    async def judge(self, case: Case) -> Judgment:
        """Judge one memory delta."""
        messages = self._prompt.messages(written=case.text, statements=f"1. {case.anchor.evidence_statement}")

        asked = await poll(self._model, self._label, case, messages, self._votes, Findings, _found)
        return asked.judgment


class ModelUserSimulator:
    """A_user. R1 (`ieu`) and R_F (`fi`) are held against the initial task, R2 (`fur`, `fur_uncommitted`) against the
    follow-up task. R1 is also answered with feedback. Scores: `agreement`, and with `revise` `own_words`: 1 where the
    feedback is the model's, 0 where what it wrote could not be said and the official sentence stands instead."""

    metrics: frozenset[Metric] = frozenset({"ieu", "fi", "fur", "fur_uncommitted"})

    def __init__(self, model: Model, label: str, *, votes: int, language: PromptLanguage) -> None:
        self._model = model
        self._label = label
        self._votes = votes
        self._prompt = load_prompt(JUDGE_PROMPTS, USER_PROMPT, language)
        self.name: str = _name("A_user", label, model, self._prompt, votes)

    async def judge(self, case: Case) -> Judgment:
        """Judge one response."""
        anchor = case.anchor
        task = anchor.initial_task if case.metric in ("ieu", "fi") else anchor.followup_task
        messages = self._prompt.messages(
            request=task.user_request,
            evidence=anchor.evidence_statement,
            behaviour=task.expected_behavior,
            answer=case.text,
        )
        asked = await poll(self._model, self._label, case, messages, self._votes, Reaction, _reacted)
        judgment = asked.judgment
        if case.metric != "ieu" or judgment.outcome == "unjudged":
            return judgment
        if judgment.outcome == "pass":
            return replace(judgment, feedback=official_feedback(True, anchor.evidence_statement))
        # the first vote of the majority's side: which is asked first must not hang on which answers first
        said = next(answer for answer in asked.answers if answer is not None and answer.type == "revise")
        feedback = revision(said.feedback, anchor, case.text)
        own = feedback is not None
        draft = feedback or official_feedback(False, anchor.evidence_statement)
        return replace(judgment, feedback=draft, scores={**judgment.scores, "own_words": float(own)})


def revision(said: str, anchor: AnchorEvent, response: str) -> FeedbackDraft | None:
    """What a model says to R1, with the evidence added where it does not state it; None where it must not be said,
    since it quotes what it was not to tell: the gold behaviour, or the answer, which may hold others' evidence."""
    said = said.strip()
    known = f"{anchor.evidence_statement}\n{anchor.initial_task.user_request}"
    behaviours = (anchor.initial_task.expected_behavior, anchor.followup_task.expected_behavior)
    if not said or any(quotes(said, text, known) for text in (response, *behaviours)):
        return None
    if overlap(anchor.evidence_statement, said) < EVIDENCE_OVERLAP:
        said = f"{said} {anchor.evidence_statement}"
    return FeedbackDraft(type="revise", text=said)


def model_judges(
    model: Model, label: str, *, votes: int = 3, language: PromptLanguage = "en"
) -> tuple[Judge[Case], Judge[Case]]:
    """All metrics of StreamMemBench by one model. `label`: the name by which it is configured."""
    return (
        ModelFidelityAuditor(model, label, votes=votes, language=language),
        ModelUserSimulator(model, label, votes=votes, language=language),
    )


def _found(said: Findings) -> tuple[Outcome, str]:
    (finding,) = said.findings
    return ("pass" if finding.present else "fail"), finding.reason


def _reacted(reaction: Reaction) -> tuple[Outcome, str]:
    return ("pass" if reaction.type == "affirm" else "fail"), reaction.reason


def _name(role: str, label: str, model: Model, prompt: Prompt, votes: int) -> str:
    return f"{role} by {label} ({model.name}; {prompt}; votes={votes}, temperature={JUDGE_TEMPERATURE})"
