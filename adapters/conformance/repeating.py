"""Cases: simulated time, and the same again."""

from __future__ import annotations

from collections.abc import Iterable

from adapters.conformance.bench import Bench, NotApplicableError
from adapters.conformance.case import case
from adapters.conformance.ledger import BrokenError, WallClock, differing, unlike
from adapters.conformance.world import BEGIN_US, FACTS, STREAM, TALK, segments
from adapters.memory import Delta
from simulator.events import MemoryRecord, RetrievedRecord


@case(
    "times",
    "Every record's event time is no later than the newest observation that was ingested, and no text or prompt has "
    "today's date: a memory that looks at the clock, or stamps the segment's end, lives in another time than the "
    "stream.",
)
async def times(bench: Bench) -> str:
    """Times and texts of deltas, answers and prompts."""
    seen, clock, checked = segments(4), WallClock(), 0
    first_prompt = len(bench.switch.prompts)

    def check(what: str, records: Iterable[MemoryRecord | RetrievedRecord], until_us: int) -> None:
        nonlocal checked
        for record in records:
            checked += 1
            if not BEGIN_US <= record.event_time_us <= until_us:
                raise BrokenError(
                    f"{what}: record {record.id} has event time {record.event_time_us}, and what was ingested lies in "
                    f"{BEGIN_US}..{until_us}"
                )
            if (found := clock.in_record(record.text)) is not None:
                raise BrokenError(f"{what}: record {record.id} says {found}, as the clock on the wall does")

    async with bench.line(seen) as line:
        for s in seen:
            delta = await line.ingest(s, keep=s is seen[-1])
            newest_us = max(observation.event_time_us for observation in s.observations)
            check(f"ingest of segment {s.segment}", delta.records, newest_us)
        branch = await line.branch_or_main(seen[-1].segment)
        check("commit", (await line.commit(branch)).records, line.now_us)
        for question in (*(fact.question for fact in FACTS[:4]), TALK.question):
            answer = await line.ask(question, branch, phase="R2")
            check("answer", answer.retrieved, line.now_us)
            if (year := clock.in_record(answer.text)) is not None:
                raise BrokenError(f"an answer says {year}, as the clock on the wall does")
    prompts = bench.switch.prompts[first_prompt:]
    for prompt in prompts:
        if (date := clock.in_prompt(prompt)) is not None:
            raise BrokenError(f"a prompt says {date}, which is today's date")
    if not checked:
        raise NotApplicableError("it wrote no record, and found none")
    return f"{checked} records" + (f" and {len(prompts)} prompts" if prompts else "")


@case(
    "answers",
    "An answer changes nothing: asked twice, the memory says the same, and deltas are the same with or without "
    "questions between; which questions are asked must not matter to the others.",
)
async def answers(bench: Bench) -> str:
    """Two memories of one lane, one of them asked between its segments."""
    seen, lane = segments(3), f"conformance/q@{STREAM}"
    reproducible = await bench.is_reproducible(seen)
    quiet = await bench.deltas(seen, lane=lane)
    asked: list[Delta] = []
    async with bench.line(seen, lane=lane) as line:
        for s in seen:
            asked.append(await line.ingest(s))
            for fact in FACTS[:3]:
                first, again = await line.ask(fact.question), await line.ask(fact.question)
                if (said := unlike(first, again)) is not None:
                    raise BrokenError(f"asked twice after segment {s.segment}, it {said}")
    if not reproducible:
        return "each question twice with the same answer; deltas differ anyhow: see rebuild"
    for s, one, other in zip(seen, quiet, asked, strict=True):
        if (said := differing(one, other)) is not None:
            raise BrokenError(f"segment {s.segment} has another delta with questions before it: {said}")
    return "each question twice with the same answer; deltas are the same without questions"


@case(
    "rebuild",
    "A new memory that ingests the same gives the same deltas, ids included: a lane whose process died is rebuilt so, "
    "and its log has the deltas already.",
)
async def rebuild(bench: Bench) -> str:
    """Two memories of one lane, one after the other."""
    seen, lane = segments(4), f"conformance/b@{STREAM}"
    given: list[list[Delta]] = []
    for _ in range(2):
        async with bench.line(seen, lane=lane) as line:
            deltas = [await line.ingest(s, keep=s is seen[-1]) for s in seen]
            branch = await line.branch_or_main(seen[-1].segment)
            given.append([*deltas, await line.commit(branch)])
    names = [*(f"segment {s.segment}" for s in seen), "the commit"]
    for name, first, again in zip(names, *given, strict=True):
        if (said := differing(first, again)) is not None:
            raise BrokenError(f"{name} has another delta the second time: {said}")
    return f"{len(seen)} deltas and that of a commit, twice the same"
