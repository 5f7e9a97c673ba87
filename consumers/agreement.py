"""How far votes agreed: a fold over the marks of a run's trajectories. Pure; definitions: docs/metrics.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

import msgspec

from simulator.events import Metric, Outcome, ProbeMetric, Vote
from simulator.protocols.streammembench import METRICS

if TYPE_CHECKING:
    from consumers.scores import Row


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """One metric's votes. Cases that were never voted on are left out. `judge` is the model that cast them; empty: the
    judges of a panel, one vote each. Votes agree in their outcome or, where they give one, in their mark. `unanimous`,
    `split` (a majority, and others) and `undecided` add up to `cases`; of the undecided, `ties` are those whose two
    commonest are as common. `failed`: votes that gave no outcome. `agreement`: mean share of the commonest among all
    votes of a case. `with_verdict`: of a panel's judge, in which share of the cases that both judged it says what the
    panel says."""

    judge: str
    metric: Metric
    cases: int
    votes: int
    unanimous: int
    split: int
    undecided: int
    ties: int
    failed: int
    agreement: float
    with_verdict: float | None = None


def agreements(rows: Iterable[Row]) -> tuple[Agreement, ...]:
    """The votes of a run, by judge and metric; a panel as a whole comes first."""
    ballots: dict[tuple[str, Metric], list[Sequence[Vote]]] = defaultdict(list)
    with_verdict: dict[tuple[str, Metric], Counter[bool]] = defaultdict(Counter)
    order: dict[str, None] = {}
    for row in rows:
        for metric, mark in row.marks.items():
            panel = _is_panel(mark.votes)
            order |= dict.fromkeys(
                ("", *(v.judge for v in mark.votes)) if panel else (v.judge for v in mark.votes)
            )
            for judge, votes in _polls(mark.votes):
                ballots[judge, metric].append(votes)
            if panel:
                for vote in mark.votes:
                    if "unjudged" not in (vote.outcome, mark.outcome):
                        with_verdict[vote.judge, metric][vote.outcome == mark.outcome] += 1
                    ballots.setdefault((vote.judge, metric), [])
    return tuple(
        _agreement(judge, metric, ballots[judge, metric], with_verdict.get((judge, metric), Counter()))
        for judge in order  # the panel first, then as they were given
        for metric in (*METRICS, *get_args(ProbeMetric))
        if (judge, metric) in ballots
    )


def _is_panel(votes: Sequence[Vote]) -> bool:
    """Whether several judges voted: one's votes all bear its name."""
    return len({vote.judge for vote in votes}) > 1


def _polls(votes: Sequence[Vote]) -> Iterator[tuple[str, Sequence[Vote]]]:
    if not votes:
        return
    if not _is_panel(votes):
        yield votes[0].judge, votes
        return
    yield "", votes
    for vote in votes:
        if vote.votes:
            yield vote.judge, vote.votes


def _agreement(
    judge: str, metric: Metric, cases: Sequence[Sequence[Vote]], verdicts: Mapping[bool, int]
) -> Agreement:
    counted = [Counter(_said(vote) for vote in votes if vote.outcome != "unjudged") for votes in cases]
    sizes = [len(votes) for votes in cases]
    ranked = [[count for _, count in counts.most_common(2)] for counts in counted]
    most = [max(counts, default=0) for counts in ranked]
    unanimous = sum(top == size for top, size in zip(most, sizes, strict=True))
    decided = sum(2 * top > size for top, size in zip(most, sizes, strict=True))
    compared = sum(verdicts.values())
    return Agreement(
        judge=judge,
        metric=metric,
        cases=len(cases),
        votes=sum(sizes),
        unanimous=unanimous,
        split=decided - unanimous,
        undecided=len(cases) - decided,
        ties=sum(len(counts) == 2 and counts[0] == counts[1] for counts in ranked),
        failed=sum(size - counts.total() for size, counts in zip(sizes, counted, strict=True)),
        agreement=sum(top / size for top, size in zip(most, sizes, strict=True)) / len(cases)
        if cases
        else 0.0,
        with_verdict=verdicts[True] / compared if compared else None,
    )


def _said(vote: Vote) -> float | Outcome:
    """What votes agree in: the mark where they give one, else the outcome."""
    return vote.outcome if vote.value is None else vote.value
