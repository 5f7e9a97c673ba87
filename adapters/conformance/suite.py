"""The run of the suite over one memory system."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Literal

import msgspec

from adapters.conformance import failing, finding, isolating, repeating
from adapters.conformance.bench import Bench, NotApplicableError
from adapters.conformance.case import Case
from adapters.conformance.ledger import BrokenError
from adapters.conformance.models import Switch
from adapters.memory import Capabilities, LaneContext, MemorySystem
from consumers.calls import CallError
from simulator.errors import ConfigError, MemorySystemError

Outcome = Literal["pass", "fail", "not applicable"]

CASES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        finding.retrieval,
        finding.delta,
        finding.kept,
        finding.top_k,
        finding.chinese,
        finding.single,
        finding.large,
        finding.nothing,
        finding.lanes,
        isolating.fork,
        isolating.commit,
        repeating.times,
        repeating.answers,
        repeating.rebuild,
        failing.kill,
        failing.outage,
        failing.close,
        isolating.capabilities,  # tells of all calls before it
    )
}
"""By name, in the order in which they run."""

CALL_TIMEOUT_S: Final = 120.0
"""How long one call into a memory may take, unless said otherwise."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one case came to. `said`: what was seen, how the demand is broken, or why it means nothing here."""

    case: str
    demand: str
    outcome: Outcome
    said: str
    seconds: float


async def check(
    factory: Callable[[LaneContext], MemorySystem],
    declared: Capabilities,
    *,
    folder: Path,
    make_context: Callable[[LaneContext], LaneContext] = lambda context: context,
    switch: Switch | None = None,
    only: Collection[str] = (),
    timeout_s: float = CALL_TIMEOUT_S,
    on_case: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> list[Result]:
    """Whether a memory system keeps the demands that runs rely on, case by case.

    `factory`: makes a memory of a lane's context. `make_context`: adds to the context that the suite makes what else
    the system needs. `folder`: where memories' folders may lie. `switch`: the models that it may ask, which the suite
    switches off; by default they answer by rule. `only`: names of cases, all unless given. `timeout_s`: for one call.
    `on_case`: called before each with how many are done, of how many, and its name. Raises ConfigError for an unknown
    case, in `only` or declared, and InputError where the system refuses its options.
    """
    for named, where in ((only, ""), (declared.exempt, "Capabilities.exempt: ")):
        if unknown := sorted(set(named) - CASES.keys()):
            raise ConfigError(f"{where}there is no case {', '.join(unknown)}: there are {', '.join(CASES)}")
    bench = Bench(factory, declared, make_context, folder, switch or Switch(), timeout_s)
    cases = [case for name, case in CASES.items() if not only or name in only]
    results = []
    for done, case in enumerate(cases):
        on_case(done, len(cases), case.name)
        results.append(await _run(case, bench))
    return results


def passed(results: Collection[Result]) -> bool:
    """No demand is broken."""
    return all(result.outcome != "fail" for result in results)


async def _run(case: Case, bench: Bench) -> Result:
    began_s = time.monotonic()
    outcome: Outcome = "fail"
    exempt = bench.declared.exempt.get(case.name)
    if exempt is not None:
        outcome, said = "not applicable", f"declared: {exempt}"
    else:
        try:
            said = await case.run(bench)
            outcome = "pass"
        except NotApplicableError as reason:
            outcome, said = "not applicable", str(reason)
        except (BrokenError, CallError, MemorySystemError) as reason:
            said = str(reason)
    seconds = time.monotonic() - began_s
    return Result(case=case.name, demand=case.demand, outcome=outcome, said=said, seconds=seconds)
