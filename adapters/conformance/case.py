"""What a demand is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from adapters.conformance.bench import Bench


class Case(NamedTuple):
    """A demand on memory systems. `demand`: what is asked, and why, in one sentence. `run`: drives memories; it gives
    what was seen, or raises BrokenError or NotApplicableError with the reason, or what calls raise."""

    name: str
    demand: str
    run: Callable[[Bench], Awaitable[str]]


def case(name: str, demand: str) -> Callable[[Callable[[Bench], Awaitable[str]]], Case]:
    """Make a function the run of a case."""
    return lambda run: Case(name, demand, run)
