"""How far two annotators agree: shares and Cohen's kappa. Pure.

Source: J. Cohen, A coefficient of agreement for nominal scales, 1960: kappa = (p_o - p_e) / (1 - p_e), with p_o the
share of items on which both say the same, and p_e that to be expected if each answered by their own frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from producers.anchors.criteria import CRITERIA, Criterion

Answers = Mapping[Criterion, bool | None]
"""One annotator's answers on one item; None where none was given."""


class Agreement(msgspec.Struct, frozen=True):
    """Two annotators on one question. `n`: items that both answered; `unanswered`: those that one of them didn't.
    `agreement` and `kappa` are None where they have no value, and `undefined` says why."""

    n: int
    both_yes: int
    both_no: int
    only_a: int
    """The first says yes, the second no."""
    only_b: int
    unanswered: int
    agreement: float | None
    kappa: float | None
    undefined: str = ""


class Compared(msgspec.Struct, frozen=True):
    """Two sheets of one sample. `all_criteria`: whether an anchor passes all nine. `only_in_a`, `only_in_b`: items
    whose row the other sheet lacks; nothing is computed from them."""

    items: int
    only_in_a: Sequence[int]
    only_in_b: Sequence[int]
    criteria: Mapping[Criterion, Agreement]
    all_criteria: Agreement


def compare(a: Mapping[int, Answers], b: Mapping[int, Answers]) -> Compared:
    """Hold two sheets (item → answers) against each other, item by item."""
    items = sorted(a.keys() & b.keys())
    return Compared(
        items=len(items),
        only_in_a=sorted(a.keys() - b.keys()),
        only_in_b=sorted(b.keys() - a.keys()),
        criteria={c: agreement([(a[i].get(c), b[i].get(c)) for i in items]) for c in CRITERIA},
        all_criteria=agreement([(_passes(a[i]), _passes(b[i])) for i in items]),
    )


def _passes(answers: Answers) -> bool | None:
    """All nine; None where that can't be said: something is unanswered, and nothing is answered no."""
    values = [answers.get(criterion) for criterion in CRITERIA]
    if False in values:
        return False
    return None if None in values else True


def agreement(pairs: Sequence[tuple[bool | None, bool | None]]) -> Agreement:
    """Agreement over pairs of answers, one pair an item."""
    answered = [(one, other) for one, other in pairs if one is not None and other is not None]
    n = len(answered)
    both_yes, both_no = answered.count((True, True)), answered.count((False, False))
    only_a, only_b = answered.count((True, False)), answered.count((False, True))
    observed = kappa = None
    undefined = "" if n else "no item was answered by both"
    if n:
        observed = (both_yes + both_no) / n
        yes_a, yes_b = both_yes + only_a, both_yes + only_b
        # whole numbers until the last division: whether chance explains everything must not hang on rounding
        by_chance = yes_a * yes_b + (n - yes_a) * (n - yes_b)
        if by_chance == n * n:
            undefined = "both gave one and the same answer throughout, so chance alone explains it"
        else:
            kappa = (n * (both_yes + both_no) - by_chance) / (n * n - by_chance)
    return Agreement(
        n=n,
        both_yes=both_yes,
        both_no=both_no,
        only_a=only_a,
        only_b=only_b,
        unanswered=len(pairs) - n,
        agreement=observed,
        kappa=kappa,
        undefined=undefined,
    )
