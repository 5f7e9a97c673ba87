"""Cases: processes that die, models that are gone, and what is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable
from contextlib import suppress
from itertools import pairwise
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from adapters.conformance.bench import Bench, Line, NotApplicableError
from adapters.conformance.case import case
from adapters.conformance.ledger import BrokenError, differing, says, unlike
from adapters.conformance.resources import Holding, descendants
from adapters.conformance.world import FACTS, STREAM, TALK, segments
from adapters.memory import Answer, Delta, Segment
from consumers.calls import CallError
from simulator.errors import MemorySystemError

T = TypeVar("T")

_MOST_CALLS: Final = 8
"""Calls of one ingest before each of which an outage is tried."""
_MOST_SEGMENTS: Final = 30
"""After so many, a memory that has asked no model does not ask one as it ingests."""
_ROUNDS: Final = 3
_GRACE_S: Final = 5.0
"""How long what was closed may take to be gone."""


@case(
    "kill",
    "After a kill of its process, a memory is what it was or fails, and never answers from less: a process that dies "
    "makes results unjudged, not wrong.",
)
async def kill(bench: Bench) -> str:
    """The processes that opening and using a memory has started."""
    seen, lane = segments(3), f"conformance/k@{STREAM}"
    await bench.deltas(seen[:1], lane=lane)  # what all memories share is there after this
    expected = await bench.deltas(seen, lane=lane)
    reproducible = await bench.is_reproducible(seen)
    shared = await anyio.to_thread.run_sync(descendants)
    async with bench.line(seen, lane=lane) as line:
        for s in seen[:2]:
            await line.ingest(s, keep=s is seen[1])
        branch = await line.branch_or_main(1)
        await line.commit(branch)
        questions = [(FACTS[0].question, line.memory), (FACTS[1].question, branch), (TALK.question, branch)]
        before = [await line.ask(*question) for question in questions]
        own = await anyio.to_thread.run_sync(descendants) - shared
        if not own:
            raise NotApplicableError("a memory starts no process of its own here")
        for process in own:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        answers = [await _or_none(line.ask(*question)) for question in questions]
        for known, answer in zip(before, answers, strict=True):
            if answer is not None and (said := unlike(known, answer)) is not None:
                raise BrokenError(f"asked again after a kill of its process, it {said}")
        delta = await _or_none(line.ingest(seen[2])) if line.branches else expected[2]
        if delta is not None and reproducible and (said := differing(expected[2], delta)) is not None:
            raise BrokenError(f"after a kill of its process, segment 2 has another delta: {said}")
    again = await bench.deltas(seen, lane=lane)
    for s, one, other in zip(seen, expected, again, strict=True):
        if reproducible and (said := differing(one, other)) is not None:
            raise BrokenError(f"rebuilt after a kill, segment {s.segment} has another delta: {said}")
    went_on = delta is not None and None not in answers
    return f"{len(own)} process{'es' if len(own) > 1 else ''} killed: " + (
        "it went on as it was" if went_on else "it said so, and a new memory is what it was"
    )


@case(
    "outage",
    "An ingest, a commit or an answer that misses its model fails, and leaves the memory as it was: swallowed, it "
    "would be judged as a memory that forgot.",
)
async def outage(bench: Bench) -> str:
    """The model goes before each call of an ingest, before a commit, and before an answer."""
    if not bench.declared.asks:
        raise NotApplicableError("it declares no model")
    switch, lane = bench.switch, f"conformance/o@{STREAM}"
    reproducible = await bench.is_reproducible(segments(3))
    seen = segments(_MOST_SEGMENTS)
    expected, calls = await _first_to_ask(bench, seen, lane)
    earlier, last = seen[: len(expected) - 1], seen[len(expected) - 1]
    async with bench.line(seen, lane=lane) as line:
        for s in earlier:
            await line.ingest(s, keep=s is earlier[-1])
        before = [await line.ask(fact.question) for fact in FACTS[:2]]
        with switch.outage():
            await _must_equal(line, before, "while its model is gone, it", may_fail=True)
        for after in range(min(calls, _MOST_CALLS)):
            with switch.outage(after):
                delta = await _or_none(line.ingest(last))
            if delta is not None:
                raise BrokenError(
                    f"its model failed from call {after + 1} of an ingest on, and the ingest gave a delta of "
                    f"{len(delta.records)} records instead of an error"
                )
            await _must_equal(line, before, "after an ingest that failed, it")
        await _check_commit(bench, line, earlier[-1].segment)
        delta = await line.ingest(last)
        if reproducible and (said := differing(expected[-1], delta)) is not None:
            raise BrokenError(
                f"after failed tries, segment {last.segment} has another delta than without: {said}"
            )
        return f"failed before each of {min(calls, _MOST_CALLS)} calls of an ingest, and went on as if it had not"


async def _first_to_ask(bench: Bench, seen: list[Segment], lane: str) -> tuple[list[Delta], int]:
    """The deltas of a new memory up to the first segment after the very first at which it asks its model, and how often
    it asks there. Of a system that asks for the very first alone, those of two segments. Raises NotApplicableError."""
    deltas: list[Delta] = []
    calls: list[int] = []
    async with bench.line(seen, lane=lane) as line:
        for s in seen:
            began = bench.switch.calls
            deltas.append(await line.ingest(s))
            calls.append(bench.switch.calls - began)
            if any(calls[1:]):
                return deltas, calls[-1]
    if not any(calls):
        raise NotApplicableError(f"it declares a model, and asked none for {len(seen)} segments")
    return deltas[:2], 0


@case(
    "close",
    "`aclose` ends processes, threads and tasks, and closes files and sockets: a run opens thousands of memories.",
)
async def close(bench: Bench) -> str:
    """What is there grows with no memory that is opened, used and closed."""
    holdings: list[Holding] = []
    for _ in range(1 + _ROUNDS):  # what all memories share is there after the first
        await _use(bench)
        holdings.append(Holding.now())
    growth = [later.beyond(before) for before, later in pairwise(holdings)]
    leaked = set(growth[0]).intersection(*growth[1:])
    if leaked and not await _gone(leaked, holdings[0]):
        counts = ", ".join(f"{growth[-1][name]} {name}" for name in sorted(leaked))
        raise BrokenError(f"a memory that is opened, used and closed leaves {counts} behind")
    held = holdings[-1]
    return (
        f"{_ROUNDS} memories left nothing behind: {held.files} files, {held.threads} threads and {held.processes} "
        "processes, as before"
    )


async def _use(bench: Bench) -> None:
    seen = segments(2)
    async with bench.line(seen) as line:
        for s in seen:
            await line.ingest(s, keep=s is seen[-1])
        branch = await line.branch_or_main(1)
        await line.ask(FACTS[0].question, branch)
        await line.commit(branch)
        await line.ask(TALK.question, branch, phase="R2")


async def _gone(leaked: set[str], before: Holding) -> bool:
    """After a while at most, there is no more of these than before."""
    with anyio.move_on_after(_GRACE_S):
        while leaked & Holding.now().beyond(before).keys():  # noqa: ASYNC110  # nothing says when they are gone
            await anyio.sleep(0.05)
        return True
    return False


async def _check_commit(bench: Bench, line: Line, segment: int) -> None:
    branch = await line.branch_or_main(segment)
    calls = bench.switch.calls
    with bench.switch.outage():
        delta = await _or_none(line.commit(branch))
    if bench.switch.calls == calls:  # commits of this system ask nobody
        return
    if delta is not None:
        raise BrokenError("its model failed during a commit, and the commit gave a delta instead of an error")
    if says(await line.ask(TALK.question, branch, phase="R2"), TALK.word):
        raise BrokenError("a conversation whose commit failed is found all the same")


async def _must_equal(line: Line, before: list[Answer], who: str, *, may_fail: bool = False) -> None:
    """The memory answers as before, or where it may, not at all."""
    for fact, known in zip(FACTS[:2], before, strict=True):
        asking = line.ask(fact.question)
        answer = await (_or_none(asking) if may_fail else asking)
        if answer is not None and (said := unlike(known, answer)) is not None:
            raise BrokenError(f"{who} {said}")


async def _or_none(awaited: Awaitable[T]) -> T | None:
    """What is awaited; None where it fails."""
    try:
        return await awaited
    except (CallError, MemorySystemError):
        return None
