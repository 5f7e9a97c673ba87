"""What models were asked in a run, what it cost and how long it took: a fold over its events.

Tokens, calls and money are those of the answers, whether they were paid for in this run or came from the cache: equal
runs give equal numbers. `cached` says how many came from there. Seconds are wall time of operations that waited for
models; one with an answer from the cache is left out, since it says nothing about how long the model takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final, Literal, NamedTuple

import msgspec

from adapters.metering import MODEL_CACHED, MODEL_US
from consumers.amounts import Amount, amount
from simulator.events import (
    CommittedEvent,
    DeltaEvent,
    Event,
    ModelUse,
    ResponseEvent,
    RunStartedEvent,
    Usage,
    VerdictEvent,
    Vote,
)
from simulator.log.protocol import Headers

Role = Literal["ingest", "answer", "commit", "judge"]
ROLES: Final[tuple[Role, ...]] = ("ingest", "answer", "commit", "judge")
_NANO: Final = 1_000_000_000


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What one system's operations of one role took of models. `model`: as configured, empty where that is not known;
    `per`: what the means are over, all segments ingested or trajectories begun. `cached`: calls from the cache; None
    for one of several judges, of whom that is only known together. `uncounted`: operations of which the server did not
    say how many tokens they took. `money`: by the prices configured when the run began, None for a model that the run
    does not know. `seconds`: per operation, waits for our own limits included; of several judges, until the last.
    `model_seconds`: of the same operations, how long the answers took by themselves, those at one time added up."""

    system: str
    role: Role
    model: str
    per: Literal["segment", "trajectory"]
    operations: int
    calls: int
    cached: int | None
    uncounted: int
    prompt_tokens: int
    completion_tokens: int
    tokens: Amount
    money: Amount | None
    seconds: Amount | None
    model_seconds: Amount | None


Unit = tuple[str, int] | str
"""What an operation is of: a lane and its segment, or a trajectory."""


class _Operation(NamedTuple):
    """What is kept of one: what it is of, its usage, calls from the cache (None where they are not known apart), and
    how long it and its models' answers took, None where a cached one makes that meaningless."""

    unit: Unit
    usage: Usage
    cached: int | None
    took_us: int | None
    model_us: int | None


class SpendingFold:
    """Keeps the operations that asked models, each once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Role, str], dict[str, _Operation]] = defaultdict(dict)
        """(System, role, judge) → event → operation."""

    def feed(self, event: Event, headers: Headers) -> None:
        """Take one event with its record's headers."""
        match event:
            case DeltaEvent():
                self._keep(event, "ingest", "", event.usage, headers)
            case ResponseEvent():
                self._keep(event, "answer", "", event.usage, headers)
            case CommittedEvent():
                self._keep(event, "commit", "", event.usage, headers)
            case VerdictEvent():
                by_judge: dict[str, list[Usage]] = defaultdict(list)
                for vote in cast_votes(event.votes):
                    by_judge[vote.judge].append(vote.usage)
                for judge, usages in by_judge.items():
                    self._keep(event, "judge", judge, _sum(usages), headers, alone=len(by_judge) == 1)
            case _:
                pass

    def spendings(
        self, started: RunStartedEvent, segments: Mapping[str, int], trajectories: Mapping[str, int]
    ) -> tuple[Spending, ...]:
        """System by system. `segments`, `trajectories`: how many each ingested and began."""
        return tuple(
            self._spending(started, system, role, judge, segments if role == "ingest" else trajectories)
            for system in started.systems
            for role in ROLES
            for judge in sorted(judge for s, r, judge in self._kept if (s, r) == (system, role))
        )

    def take(self, later: SpendingFold, redone: Set[Unit]) -> None:
        """Let what a later run did again stand for what was done here. An operation that took the same again stands as
        it was: the second time, its answers came from the cache."""
        for key in {*self._kept, *later._kept}:
            here = self._kept.pop(key, {})
            again = {name: one for name, one in later._kept.get(key, {}).items() if one.unit in redone}
            same = {name for name, one in again.items() if name in here and here[name].usage == one.usage}
            kept = {name: one for name, one in here.items() if one.unit not in redone or name in same}
            kept |= {name: one for name, one in again.items() if name not in same}
            if kept:
                self._kept[key] = kept

    def _keep(
        self,
        event: DeltaEvent | ResponseEvent | CommittedEvent | VerdictEvent,
        role: Role,
        judge: str,
        usage: Usage,
        headers: Headers,
        *,
        alone: bool = True,
    ) -> None:
        if usage == Usage():
            return
        numbers = {name: int(value) for name, value in headers if value.isdigit()}
        cached = numbers.get(MODEL_CACHED, 0)
        took_us = model_us = None
        if not cached and "began_us" in numbers and "ended_us" in numbers:
            took_us = max(0, numbers["ended_us"] - numbers["began_us"])
            model_us = numbers.get(MODEL_US)
        unit: Unit = (event.lane, event.segment) if isinstance(event, DeltaEvent) else event.trajectory
        operation = _Operation(unit, usage, cached if alone else None, took_us, model_us)
        self._kept[event.lane.partition("@")[0], role, judge].setdefault(event.id, operation)

    def _spending(
        self, started: RunStartedEvent, system: str, role: Role, judge: str, of: Mapping[str, int]
    ) -> Spending:
        kept = self._kept[system, role, judge].values()
        apart = role == "answer" and system in started.answered_apart
        use = None if apart else started.models.get(_use(system, role, judge))
        prompt = sum(operation.usage.prompt_tokens for operation in kept)
        completion = sum(operation.usage.completion_tokens for operation in kept)
        cached = [operation.cached for operation in kept]
        n = max(of.get(system, 0), 1)
        return Spending(
            system=system,
            role=role,
            model=use.model if use is not None else judge,
            per="segment" if role == "ingest" else "trajectory",
            operations=len(kept),
            calls=sum(operation.usage.calls for operation in kept),
            cached=None if None in cached else sum(filter(None, cached)),
            uncounted=sum(not operation.usage.prompt_tokens for operation in kept),
            prompt_tokens=prompt,
            completion_tokens=completion,
            tokens=_spread(prompt + completion, n),
            money=_spread(_nano(use, prompt, completion), n, _NANO) if use is not None else None,
            seconds=amount((o.took_us for o in kept if o.took_us is not None), 1_000_000),
            model_seconds=amount((o.model_us for o in kept if o.model_us is not None), 1_000_000),
        )


def money_of(use: ModelUse, prompt_tokens: int, completion_tokens: int) -> float:
    """What so many tokens cost by a model's prices."""
    return _nano(use, prompt_tokens, completion_tokens) / _NANO


def _nano(use: ModelUse, prompt_tokens: int, completion_tokens: int) -> int:
    """In billionths, whole, so that no order of adding changes the sum."""
    return round((prompt_tokens * use.prompt_price + completion_tokens * use.completion_price) * 1000)


def _use(system: str, role: Role, judge: str) -> str:
    match role:
        case "ingest" | "commit":
            return f"memory.{system}"
        case "answer":
            return "answers"
        case "judge":
            return f"judge.{judge}"


def _spread(total: int, n: int, unit: int = 1) -> Amount:
    return Amount(n=n, mean=total / n / unit, total=total / unit)


def cast_votes(votes: Iterable[Vote]) -> Iterator[Vote]:
    """The votes that models cast: a panel's judges have theirs behind them."""
    for vote in votes:
        if vote.votes:
            yield from cast_votes(vote.votes)
        else:
            yield vote


def _sum(usages: Iterable[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total = Usage(
            prompt_tokens=total.prompt_tokens + usage.prompt_tokens,
            completion_tokens=total.completion_tokens + usage.completion_tokens,
            calls=total.calls + usage.calls,
        )
    return total
