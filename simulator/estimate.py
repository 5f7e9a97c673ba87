"""What a run would ask of models, before it asks: calls, tokens and money by system and role. Pure.

Nothing is known yet of what systems will write and answer, so that stands on assumptions, which are part of the result.
Calls are the most there can be; tokens and money are what these calls would take if the assumptions hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from adapters.answering import ANSWER_PROMPT
from adapters.foreign.catalogue import catalogue
from adapters.metering import estimated_tokens
from adapters.prompt import ADAPTER_PROMPTS, Prompt, load_prompt, prompt_language
from adapters.registry import SystemSpec, capabilities
from adapters.systems.rag_ext import EXTRACT_PROMPT
from consumers.spending import Role, money_of
from judges.by_model import FIDELITY_PROMPT, JUDGE_PROMPTS, USER_PROMPT
from judges.probes_by_model import RATED_BY
from judges.rubrics import RUBRICS
from producers.lifelog import Lifelog, SegmentSpan
from simulator.events import AnchorEvent, ModelUse
from simulator.models import OFFICIAL
from simulator.plan import Plan

ANSWER_TOKENS: Final = 200
"""Assumed of an answer by a model."""
TOKENS_PER_WORD: Final = 1.5
"""Assumed of an extracted answer, which fills its word budget."""
VOTE_TOKENS: Final = 120
"""Assumed of a judge's answer."""
FEEDBACK_TOKENS: Final = 40
"""Assumed of feedback, beside the evidence that it states."""
KEPT: Final = 6
"""Assumed: what a model extracts is one in so many tokens of the text."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """One system's operations of one role. `calls`: at most."""

    system: str
    role: Role
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    money: float


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run would ask, and what that stands on. `money` in the currency of the prices."""

    run: str
    rows: tuple[Estimate, ...]
    calls: int
    prompt_tokens: int
    completion_tokens: int
    money: float
    assumptions: tuple[str, ...]


class _Call(msgspec.Struct, frozen=True):
    calls: int
    prompt: int
    completion: int


def estimate(plan: Plan) -> Estimates:
    """Work it out from the plan's dataset."""
    options, uses = plan.options, plan.started.models
    specs = {spec.label: spec for spec in plan.systems}
    rows: list[Estimate] = []
    for label in plan.started.systems:
        spec = specs.get(label)
        if (use := uses.get(f"memory.{label}")) is not None and spec is not None:
            rows.append(_row(label, "ingest", use, _ingests(plan, spec)))
        if (use := uses.get("answers")) is not None and label not in plan.started.answered_apart:
            rows.append(_row(label, "answer", use, _answers(plan)))
        if (use := uses.get(f"memory.{label}")) is not None:
            rows.append(_row(label, "commit", use, _commits(plan, spec)))
        for name in options.judges:
            if name != OFFICIAL:
                extracts = spec is not None and bool(capabilities(spec).model)
                rows.append(_row(label, "judge", uses[f"judge.{name}"], _judgments(plan, extracts=extracts)))
    return Estimates(
        run=plan.started.run,
        rows=tuple(rows),
        calls=sum(row.calls for row in rows),
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        completion_tokens=sum(row.completion_tokens for row in rows),
        money=sum(row.money for row in rows),
        assumptions=_assumptions(plan) if uses else (),
    )


def _row(system: str, role: Role, use: ModelUse, asked: Iterable[_Call]) -> Estimate:
    calls = prompt = completion = 0
    for call in asked:
        calls += call.calls
        prompt += call.calls * call.prompt
        completion += call.calls * call.completion
    return Estimate(
        system=system,
        role=role,
        model=use.model,
        calls=calls,
        prompt_tokens=prompt,
        completion_tokens=completion,
        money=money_of(use, prompt, completion),
    )


def _ingests(plan: Plan, spec: SystemSpec) -> Iterator[_Call]:
    calls, own = _each_ingest(plan, spec)
    size = _observations_per_call(spec)
    for lifelog in plan.dataset.lifelogs.values():
        for segment in lifelog.segments:
            observations = segment.last_seq - segment.first_seq + 1
            parts = -(-observations // size) if size else 1
            text = _tokens_of(lifelog, segment) // parts
            yield _Call(calls * parts, own + text, text // KEPT)


def _observations_per_call(spec: SystemSpec) -> int:
    """0: a call has all of a segment."""
    if spec.options.get("unit") == "observation":
        return 1
    known = catalogue().get(spec.name)
    if known is None or known.turns_per_call is None or known.whole_with.items() & spec.options.items():
        return int(spec.options.get("observations", 0))
    return known.turns_per_call


def _answers(plan: Plan) -> Iterator[_Call]:
    options = plan.options
    own = _own(load_prompt(ADAPTER_PROMPTS, ANSWER_PROMPT, prompt_language(options.language)))
    for anchor in plan.dataset.anchors:
        first, second = _asked(anchor)
        found = own + options.answer_tokens
        yield _Call(1, found + first, ANSWER_TOKENS)  # R1
        yield _Call(1, found + first + ANSWER_TOKENS + _feedback(anchor), ANSWER_TOKENS)  # R_F
        yield _Call(1 + options.ablate_commit, found + second, ANSWER_TOKENS)  # R2
    for probe in plan.dataset.probes:
        yield _Call(1, own + options.answer_tokens + estimated_tokens(probe.text), ANSWER_TOKENS)


def _each_ingest(plan: Plan, spec: SystemSpec | None) -> tuple[int, int]:
    """Calls of an ingest, and the tokens of each one's own prompt: as measured of a foreign system, else of one
    extraction."""
    if spec is not None and (known := catalogue().get(spec.name)) is not None:
        return known.model_calls, known.own_tokens
    return 1, _extraction(plan, spec)


def _commits(plan: Plan, spec: SystemSpec | None) -> Iterator[_Call]:
    calls, own = _each_ingest(plan, spec)
    answer = _answer_tokens(plan)
    for anchor in plan.dataset.anchors:
        said = _asked(anchor)[0] + 2 * answer + _feedback(anchor)
        yield _Call(calls, own + said, said // KEPT)


def _judgments(plan: Plan, *, extracts: bool) -> Iterator[_Call]:
    options = plan.options
    language = prompt_language(options.language)
    fidelity = _own(load_prompt(JUDGE_PROMPTS, FIDELITY_PROMPT, language))
    user = _own(load_prompt(JUDGE_PROMPTS, USER_PROMPT, language))
    answer = _answer_tokens(plan)
    written: Mapping[tuple[str, int], int] = {
        (name, number): _tokens_of(lifelog, segment) // (KEPT if extracts else 1)
        for name, lifelog in plan.dataset.lifelogs.items()
        for number, segment in enumerate(lifelog.segments)
    }
    for anchor in plan.dataset.anchors:
        evidence = estimated_tokens(anchor.evidence_statement)
        first, second = _asked(anchor)
        on_first = user + evidence + first + estimated_tokens(anchor.initial_task.expected_behavior) + answer
        on_second = (
            user + evidence + second + estimated_tokens(anchor.followup_task.expected_behavior) + answer
        )
        delta = fidelity + evidence + written.get((anchor.stream, anchor.segment), 0)
        yield _Call(options.votes, delta, VOTE_TOKENS)  # fidelity
        yield _Call(2 * options.votes, on_first, VOTE_TOKENS)  # ieu, fi
        yield _Call((1 + options.ablate_commit) * options.votes, on_second, VOTE_TOKENS)  # fur
    for probe in plan.dataset.probes:
        for metric in probe.metrics:
            if (rated := RATED_BY.get(metric)) is not None and probe.gold.decision != "SILENT":  # left alone
                own = _own(load_prompt(JUDGE_PROMPTS, RUBRICS[rated].prompt, language))
                gold = sum(map(estimated_tokens, (probe.gold.answer, *probe.gold.memories)))
                looked_at = answer if RUBRICS[rated].looks_at == "answer" else options.answer_tokens
                asked = own + gold + estimated_tokens(probe.text) + looked_at
                yield _Call(options.votes, asked, VOTE_TOKENS)


def _extraction(plan: Plan, spec: SystemSpec | None) -> int:
    """The tokens of a system's first prompt, which is the one that it extracts with."""
    prompts = capabilities(spec).prompts if spec is not None else ()
    name = prompts[0] if prompts else EXTRACT_PROMPT
    return _own(load_prompt(ADAPTER_PROMPTS, name, prompt_language(plan.options.language)))


def _own(prompt: Prompt) -> int:
    return estimated_tokens(prompt.system) + estimated_tokens(prompt.user)


def _asked(anchor: AnchorEvent) -> tuple[int, int]:
    return (
        estimated_tokens(anchor.initial_task.user_request),
        estimated_tokens(anchor.followup_task.user_request),
    )


def _feedback(anchor: AnchorEvent) -> int:
    return estimated_tokens(anchor.evidence_statement) + FEEDBACK_TOKENS


def _answer_tokens(plan: Plan) -> int:
    extracted = round(plan.options.word_budget * TOKENS_PER_WORD)
    return extracted if plan.options.answers is None else ANSWER_TOKENS


def _tokens_of(lifelog: Lifelog, segment: SegmentSpan) -> int:
    seen = lifelog.observations[segment.first_seq : segment.last_seq + 1]
    return sum(estimated_tokens(observation.text + "\n") for observation in seen)


def _assumptions(plan: Plan) -> tuple[str, ...]:
    options = plan.options
    said = [
        "a token is four bytes of UTF-8; the server counts in its own way",
        *(
            [
                "every first answer fails, so that every trajectory has a second one (R_F): what passes costs less"
            ]
            if plan.dataset.anchors
            else []
        ),
        "no call is asked again, and nothing is in the cache: what is there costs nothing",
    ]
    if options.answers is not None:
        said.append(
            f"records fill the {options.answer_tokens} tokens of --answer-tokens; an answer has {ANSWER_TOKENS}"
        )
    else:
        said.append(f"an answer fills its {options.word_budget} words, of {TOKENS_PER_WORD} tokens each")
    extract = any(name.startswith("memory.") for name in plan.started.models)
    if extract:
        said.append(f"a model extracts a token of {KEPT}; branches made by replay would repeat ingests")
        said.append(
            "foreign systems make as many calls an ingest as they were seen to, each over all of its text or, where "
            "they read it in pieces, one piece; others one"
        )
    if any(name.startswith("embedder.") for name in plan.started.models):
        said.append("vectors by an embeddings model are not counted")
    if any("memory_recall" in probe.metrics for probe in plan.dataset.probes):
        said.append(
            f"what was retrieved is shown whole to the judges of memory_recall and helpful; here it counts as "
            f"{options.answer_tokens} tokens, and whole sessions can be twenty times that"
        )
    if any(name != OFFICIAL for name in options.judges):
        said.append(f"a judge's vote has {VOTE_TOKENS} tokens")
        said.append(
            "what a system writes for a segment is as long as the segment, unless a model extracts it"
        )
    return tuple(said)
