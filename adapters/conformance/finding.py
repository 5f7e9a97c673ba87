"""Cases: what was ingested is there, and its deltas say so."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.conformance.bench import Bench, Line, NotApplicableError
from adapters.conformance.case import case
from adapters.conformance.ledger import BrokenError, says
from adapters.conformance.world import CHINESE, FACTS, LARGE, STREAM, UNKNOWN, Fact, segment, segments
from adapters.memory import Answer, Segment

_FEW = 5
"""Fewer records than the memory holds when it is asked: it has to search."""


@case(
    "retrieval",
    "A question about what was ingested finds it, among more records than an answer may use: else it is no memory.",
)
async def retrieval(bench: Bench) -> str:
    """Each fact of several segments is asked for."""
    seen = segments(6)
    async with bench.line(seen, top_k=_FEW) as line:
        for s in seen:
            await line.ingest(s)
        await _find(line, FACTS[: len(seen)])
        return f"{len(seen)} facts of {len(seen)} segments found among {len(line.ledger.held)} records"


@case(
    "delta",
    "A delta names each record that it adds, changes or deletes, by an id unique in its lane, and an answer rests on "
    "records as deltas named them: fidelity is judged, and every run audited, by deltas alone.",
)
async def delta(bench: Bench) -> str:
    """All that is found was named; ids are checked with each delta."""
    seen = _with_change()
    async with bench.line(seen) as line:
        for s in seen:
            await line.ingest(s, keep=s is seen[-1])
        answers = [await line.ask(text) for text in _questions(line)]
        for answer in answers:
            line.ledger.check_found(answer.retrieved)
        branch, ledger = await line.branch_or_main(seen[-1].segment), line.ledger.copy()
        ledger.apply("commit", await line.commit(branch))
        for text in _questions(line):
            ledger.check_found((await line.ask(text, branch, phase="R2")).retrieved)
        found = {record.id for answer in answers for record in answer.retrieved}
        if not found and not line.ledger.held:
            raise NotApplicableError("no delta named a record, and nothing was found")
        return f"{len(line.ledger.held)} records in {len(seen)} deltas; all {len(found)} that were found are among them"


@case(
    "kept",
    "Each record that a delta named is found by its own text: a delta that claims what is not kept would score as "
    "fidelity.",
)
async def kept(bench: Bench) -> str:
    """Each live record is asked for."""
    seen = _with_change()
    async with bench.line(seen) as line:
        for s in seen:
            await line.ingest(s)
        if not line.ledger.held:
            raise NotApplicableError("no delta named a record")
        found = {r.id for text in _questions(line) for r in (await line.ask(text)).retrieved}
        for record in line.ledger.held.values():
            if record.id not in found:
                raise BrokenError(
                    f"record {record.id} ({record.text[:60]!r}) was named by a delta and can't be found"
                )
        return f"each of {len(line.ledger.held)} records"


@case(
    "top_k", "An answer rests on at most `context.top_k` records: else systems are compared on other terms."
)
async def top_k(bench: Bench) -> str:
    """Two records wanted, where there are more."""
    seen = segments(5)
    questions = [fact.question for fact in FACTS[:5]]
    questions.append(" ".join(questions))
    async with bench.line(seen) as line:
        for s in seen:
            await line.ingest(s)
        most = max([len((await line.ask(question)).retrieved) for question in questions])
    if most <= 2:
        raise NotApplicableError(f"it never rests an answer on more than {most} records")
    async with bench.line(seen, top_k=2) as line:
        for s in seen:
            await line.ingest(s)
        for question in questions:
            found = len((await line.ask(question)).retrieved)
            if found > 2:
                raise BrokenError(f"{found} records with top_k = 2")
    return f"at most 2 records with top_k = 2, up to {most} without a limit"


@case("chinese", "Chinese is kept whole and found by a Chinese question: lifelogs are in both languages.")
async def chinese(bench: Bench) -> str:
    """One Chinese fact between English ones."""
    seen = [segment(0, FACTS[0]), segment(1, CHINESE), segment(2, FACTS[2])]
    return await _finds_in(bench, seen, CHINESE)


@case("single", "A segment of one observation is taken in like any other: lifelogs have quiet minutes.")
async def single(bench: Bench) -> str:
    """The first segment, and one in the middle."""
    seen = [segment(0, FACTS[0], observations=1), segment(1, FACTS[1]), segment(2, FACTS[2], observations=1)]
    return await _finds_in(bench, seen, FACTS[0], FACTS[2])


@case("large", f"A segment of {LARGE} observations is taken in to its end: lifelogs have busy minutes.")
async def large(bench: Bench) -> str:
    """Its fact is the last observation but one."""
    seen = [segment(0, FACTS[0]), segment(1, FACTS[1], observations=LARGE)]
    return await _finds_in(bench, seen, FACTS[1])


@case(
    "nothing",
    "An empty memory answers with nothing, and a question about nothing that was seen gets an answer, not an error: "
    "many requests have no evidence yet.",
)
async def nothing(bench: Bench) -> str:
    """Before the first segment, and after it."""
    seen = segments(1)
    async with bench.line(seen) as line:
        answer = await line.ask(FACTS[0].question)
        if answer.retrieved:
            raise BrokenError(f"an empty memory found {answer.retrieved[0].id}")
        await line.ingest(seen[0])
        found = [len((await line.ask(text)).retrieved) for text in (UNKNOWN, "?")]
    return f"nothing in an empty memory; {found[0]} records for words that nobody said"


@case("lanes", "Two lanes never see each other's records: each wearer's memory is that wearer's alone.")
async def lanes(bench: Bench) -> str:
    """Two streams, ingested in turn."""
    a = [segment(n, FACTS[n], stream=f"{STREAM}_A") for n in (0, 1)]
    b = [segment(n, FACTS[n + 2], stream=f"{STREAM}_B") for n in (0, 1)]
    async with bench.line(a, stream=f"{STREAM}_A") as one, bench.line(b, stream=f"{STREAM}_B") as other:
        for of_a, of_b in zip(a, b, strict=True):
            await one.ingest(of_a)
            await other.ingest(of_b)
        for line, own, foreign in ((one, FACTS[:2], FACTS[2:4]), (other, FACTS[2:4], FACTS[:2])):
            for fact in foreign:
                if says(await line.ask(fact.question), fact.word):
                    raise BrokenError(
                        f"{line.context.lane} knows {fact.word!r}, which only the other lane saw"
                    )
            await _control(line, own)
    return "each knows what its own stream said, and nothing of the other's"


def _with_change() -> list[Segment]:
    """Facts, and one that says another thing than a fact before it."""
    moved = Fact(
        "brannock", "I took the spare house key out of the Brannock tin and hung it beside the door.", ""
    )
    return [*segments(3), segment(3, moved)]


def _questions(line: Line) -> list[str]:
    """What finds all that a memory holds, if anything does: each record's own text, and the facts' questions."""
    return [*(r.text for r in line.ledger.held.values()), *(fact.question for fact in FACTS[:3])]


async def _finds_in(bench: Bench, seen: Sequence[Segment], *facts: Fact) -> str:
    async with bench.line(seen) as line:
        for s in seen:
            await line.ingest(s)
        await _find(line, facts)
    return f"found {', '.join(fact.word for fact in facts)}"


async def _find(line: Line, facts: Sequence[Fact]) -> None:
    for fact in facts:
        answer = await line.ask(fact.question)
        if not says(answer, fact.word):
            raise BrokenError(f"{fact.question!r} does not find {fact.word!r}: {_found(answer)}")


async def _control(line: Line, facts: Sequence[Fact]) -> None:
    """What is not seen elsewhere proves something only where it is seen here."""
    for fact in facts:
        if not says(await line.ask(fact.question), fact.word):
            raise NotApplicableError(
                f"it does not find what it ingested itself ({fact.word!r}): see retrieval"
            )


def _found(answer: Answer) -> str:
    texts = [record.text.partition("\n")[0][:40] for record in answer.retrieved[:2]]
    return f"{len(answer.retrieved)} records" + (f", first {texts}" if texts else "")
