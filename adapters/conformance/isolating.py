"""Cases: forks, commits, and what is declared of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from adapters.conformance.bench import Bench, NotApplicableError, at_once
from adapters.conformance.case import case
from adapters.conformance.ledger import BrokenError, differing, says, unlike
from adapters.conformance.world import FACTS, STREAM, TALK, segment, segments
from adapters.memory import Answer, MemorySystem, Request
from simulator.events import RetrievedRecord

_MARK: Final = "the run's own responder said this"
NO_BRANCHES: Final = "it declares fork=none: one memory, and no branches of it"


@case(
    "fork",
    "A fork and its parent never see each other's writes, also those of an ingest under way: each trajectory is judged "
    "on the memory as it was at its moment.",
)
async def fork(bench: Bench) -> str:
    """Branches of one segment: one used late, one that writes meanwhile, one made meanwhile."""
    if bench.declared.fork == "none":
        raise NotApplicableError(NO_BRANCHES)
    seen, elsewhere = segments(5), segment(5, FACTS[5])
    async with bench.line([*seen, elsewhere]) as line:
        for s in seen[:2]:
            await line.ingest(s, keep=s is seen[1])
        late, writes = await line.branch(1), await line.branch(1)
        made: list[MemorySystem] = []

        async def write() -> None:
            await line.ingest_into(writes, elsewhere)

        async def make() -> None:
            made.append(await line.branch(1))

        async def go_on() -> None:
            for s in seen[2:]:
                await line.ingest(s)

        await at_once(go_on, write, make)
        branches = {
            "a branch made before": late,
            "a branch that wrote": writes,
            "a branch made meanwhile": made[0],
        }
        for name, memory in branches.items():
            for fact in FACTS[2:5]:
                if says(await line.ask(fact.question, memory), fact.word):
                    raise BrokenError(f"{name} knows {fact.word!r}, which its parent ingested later")
        for name, other in {"the parent": line.memory, **branches}.items():
            if other is not writes and says(await line.ask(FACTS[5].question, other), FACTS[5].word):
                raise BrokenError(f"{name} knows {FACTS[5].word!r}, which only another branch ingested")
        for memory, fact in ((line.memory, FACTS[4]), (writes, FACTS[5])):
            if not says(await line.ask(fact.question, memory), fact.word):
                raise NotApplicableError(f"whoever ingested {fact.word!r} does not find it: see retrieval")
    return f"3 branches by {bench.declared.fork!r}, 3 segments ingested meanwhile: none saw the others"


@case(
    "commit",
    "A conversation is found once it is committed, not before, and on that branch alone: follow-up reuse is measured "
    "by it.",
)
async def commit(bench: Bench) -> str:
    """Asked before, after, and elsewhere."""
    seen = segments(3)
    async with bench.line(seen) as line:
        for s in seen[:2]:
            await line.ingest(s, keep=s is seen[1])
        branch = await line.branch_or_main(1)
        others: dict[str, MemorySystem] = {}
        if line.branches:
            others = {"another branch": await line.branch(1), "the parent": line.memory}
            others["the branch without the commit"] = await line.twin(branch, 1)
        if says(await line.ask(TALK.question, branch), TALK.word):
            raise BrokenError("the conversation is known before it is committed")
        delta = await line.commit(branch)
        if not says(await line.ask(TALK.question, branch, phase="R2"), TALK.word):
            wrote = f"its delta has {len(delta.records)} records"
            raise BrokenError(f"the conversation is not found after its commit ({wrote})")
        await line.ingest(seen[2])
        if line.branches:
            others["a branch made after"] = await line.branch(1)
        for name, memory in others.items():
            if says(await line.ask(TALK.question, memory, phase="R2"), TALK.word):
                raise BrokenError(f"{name} knows the conversation, which was committed elsewhere")
        if not says(await line.ask(TALK.question, branch, phase="R2"), TALK.word):
            raise BrokenError("the conversation is lost once the parent ingests the next segment")
    where = f"not on {len(others)} other memories" if others else "there are no branches that might see it"
    return f"{len(delta.records)} records, found after the commit; {where}"


@case(
    "capabilities",
    "What is declared is true: a branch made in the declared way is the whole memory, only declared models are asked, "
    "and `answers` says who answers; runs rely on it.",
)
async def capabilities(bench: Bench) -> str:
    """The last case, since it tells which models were asked."""
    said = [await _check_branch(bench), await _check_responder(bench), _check_models(bench)]
    return "; ".join(part for part in said if part)


async def _check_branch(bench: Bench) -> str:
    """A branch answers and goes on as a memory does that ingested the same, also when its parent is gone."""
    if bench.declared.fork == "none":
        return NO_BRANCHES
    seen, lane = segments(3), f"conformance/c@{STREAM}"
    reproducible = await bench.is_reproducible(seen)
    async with bench.line(seen, lane=lane) as line:
        for s in seen[:2]:
            await line.ingest(s)
        expected = [await line.ask(fact.question) for fact in FACTS[:3]]
        goes_on = await line.ingest(seen[2])
    how = f"a branch by {bench.declared.fork!r}"
    async with bench.line(seen, lane=lane) as line:
        for s in seen[:2]:
            await line.ingest(s, keep=s is seen[1])
        branch = await line.branch(1)
        for fact, known in zip(FACTS[:3], expected, strict=True):
            answer = await line.ask(fact.question, branch)
            if (said := unlike(known, answer, by_text=not reproducible)) is not None:
                raise BrokenError(f"{how} is not the whole memory: {said}")
        delta = await line.ingest_into(branch, seen[2])
        if reproducible and (said := differing(goes_on, delta)) is not None:
            raise BrokenError(f"{how} goes on with another delta: {said}")
        await line.close_main()
        for fact, known in zip(FACTS[:2], expected[:2], strict=True):
            if says(known, fact.word) and not says(await line.ask(fact.question, branch), fact.word):
                raise BrokenError(f"{how} loses its records once its parent is closed")
    return f"{how} is the whole memory"


async def _check_responder(bench: Bench) -> str:
    if bench.declared.answers != "run":
        return ""
    seen = segments(1)
    async with bench.line(seen, responder=_Marking()) as line:
        await line.ingest(seen[0])
        answer = await line.ask(FACTS[0].question)
    if answer.text != _MARK:
        raise BrokenError(
            "it declares answers='run', and does not answer by context.responder (adapters.responder)"
        )
    return "answers by the run's responder"


def _check_models(bench: Bench) -> str:
    switch, declared = bench.switch, bench.declared
    for kind, asked, named in (
        ("model", switch.models, declared.model),
        ("embedder", switch.embedders, declared.embedder),
    ):
        if others := sorted(asked - {named}):
            raise BrokenError(f"it asks the {kind} {', '.join(others)}, and declares {named or 'none'}")
    return f"{switch.calls} calls, of declared models alone" if switch.calls else ""


class _Marking:
    async def respond(self, request: Request, retrieved: Iterable[RetrievedRecord]) -> Answer:
        return Answer(text=_MARK, retrieved=tuple(retrieved))
