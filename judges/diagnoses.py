"""What asking online and offline shows: contamination and overwriting. Pure functions over paired answers;
definitions: docs/lifedialbench.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec


class Auroc(msgspec.Struct, frozen=True, kw_only=True):
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting half. None where
    either is missing: there is nothing to tell apart."""

    value: float | None
    positives: int
    negatives: int


def auroc(scores: Sequence[float], positive: Sequence[bool]) -> Auroc:
    """The exact area, from ranks (Mann and Whitney), in O(n log n). Raises ValueError for sequences that don't pair up
    or a score that is no number."""
    pairs = sorted(zip(scores, positive, strict=True), key=lambda pair: pair[0])
    if any(score != score for score, _ in pairs):
        raise ValueError("a score that is no number can't be ranked")
    positives = sum(is_positive for _, is_positive in pairs)
    negatives = len(pairs) - positives
    halves = below = place = 0  # halves: twice the number of pairs won
    while place < len(pairs):
        end = place
        tied_positives = tied_negatives = 0
        while end < len(pairs) and pairs[end][0] == pairs[place][0]:
            tied_positives += pairs[end][1]
            tied_negatives += not pairs[end][1]
            end += 1
        halves += tied_positives * (2 * below + tied_negatives)
        below += tied_negatives
        place = end
    value = float(Fraction(halves, 2 * positives * negatives)) if positives and negatives else None
    return Auroc(value=value, positives=positives, negatives=negatives)


def contamination(answers: Iterable[tuple[bool, bool]]) -> Auroc:
    """How well having retrieved a record newer than the question tells right answers from wrong ones: (whether any of
    its records is newer, right) of each question asked at the end of the stream. 0.5: nothing of a right answer hangs
    on the future. Well above: right answers come with records that nobody could have had when the question was due, so
    that offline results look better than the memory is."""
    kept = list(answers)
    return auroc([float(newer) for newer, _ in kept], [right for _, right in kept])


class Overwriting(msgspec.Struct, frozen=True, kw_only=True):
    """Questions that were asked online and offline, by how they came out. `overwritten` ones were known once and lost:
    right online, wrong offline. `share` = overwritten / right online; None where none was right online."""

    pairs: int
    unpaired: int
    right_both: int
    overwritten: int
    gained: int
    wrong_both: int
    share: float | None


def overwriting(pairs: Iterable[tuple[bool | None, bool | None]]) -> Overwriting:
    """Counts over (right online, right offline); None: not judged there, which leaves the pair out."""
    kept = list(pairs)
    both = [(online, offline) for online, offline in kept if online is not None and offline is not None]
    right_both, overwritten = both.count((True, True)), both.count((True, False))
    online = right_both + overwritten
    return Overwriting(
        pairs=len(both),
        unpaired=len(kept) - len(both),
        right_both=right_both,
        overwritten=overwritten,
        gained=both.count((False, True)),
        wrong_both=both.count((False, False)),
        share=overwritten / online if online else None,
    )
