"""BM25 that scores as if the future did not exist.

Postings are append-only and sorted by record, so that a prefix is a cut by bisection. Document frequencies,
the number of records and their average length are those of the visible prefixes alone: the result equals
BM25 built from these records only.

    score = sum over the query's tokens of  idf * tf / (tf + k1 * (1 - b + b * length / average length))
    idf   = ln(1 + (N - df + 0.5) / (df + 0.5))

That is Lucene's form (since version 8, without the constant factor k1 + 1), with its defaults k1 = 1.2 and
b = 0.75. A token that the query repeats counts as often as it stands there, unless `distinct` is asked for.
Tokens are those of `simulator.text`, or what the postings' `terms` makes of a text.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.ranking import Hit, best
from simulator.text import tokens

K1 = 1.2
B = 0.75


class Postings:
    """Which records hold which token how often. Append-only.

    Prefixes may be read from other threads while it grows: a reader takes slices, which the interpreter
    copies in one step, and looks only below its length. `terms` splits texts, queries too.
    """

    __slots__ = ("_ends", "_terms", "terms")

    def __init__(self, terms: Callable[[str], list[str]] = tokens) -> None:
        self.terms = terms
        self._terms: dict[str, tuple[array[int], array[int]]] = {}
        self._ends = array("Q", [0])  # _ends[n]: tokens in the first n records

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, text: str) -> None:
        """Index one more record."""
        row = len(self)
        found = self.terms(text)
        for term, count in Counter(found).items():
            rows, counts = self._terms.setdefault(term, (array("I"), array("I")))
            counts.append(count)  # before the row: whoever sees a row finds its count
            rows.append(row)
        self._ends.append(self._ends[row] + len(found))

    def total_tokens(self, length: int) -> int:
        """Tokens in the first `length` records."""
        return self._ends[length]

    def token_counts(self, length: int) -> NDArray[np.float64]:
        """Tokens in each of the first `length` records."""
        return np.diff(np.frombuffer(self._ends[: length + 1], np.uint64)).astype(np.float64)

    def cut(self, term: str, length: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The records below `length` that hold the term, in order, and how often each does."""
        rows, counts = self._terms.get(term, _NOTHING)
        end = bisect_left(rows, length)
        return np.frombuffer(rows[:end], np.uint32), np.frombuffer(counts[:end], np.uint32)


_NOTHING: tuple[array[int], array[int]] = (array("I"), array("I"))


def search(
    parts: Sequence[tuple[Postings, int]],
    query: str,
    k: int,
    *,
    k1: float = K1,
    b: float = B,
    distinct: bool = False,
) -> list[Hit]:
    """The k best records over all parts' prefixes; records without any of the query's tokens are not
    found. `distinct`: a token that the query repeats counts once. All parts must split texts alike."""
    records = sum(length for _, length in parts)
    all_tokens = sum(postings.total_tokens(length) for postings, length in parts)
    if not all_tokens:
        return []
    average = all_tokens / records
    norms = [k1 * (1 - b + b * postings.token_counts(length) / average) for postings, length in parts]
    scores = np.zeros(records)
    for term, repeats in Counter(parts[0][0].terms(query)).items():
        cuts = [postings.cut(term, length) for postings, length in parts]
        frequency = sum(len(rows) for rows, _ in cuts)
        if not frequency:
            continue
        times = 1 if distinct else repeats
        weight = times * math.log(1 + (records - frequency + 0.5) / (frequency + 0.5))
        start = 0
        for (_, length), (rows, counts), norm in zip(parts, cuts, norms, strict=True):
            scores[start : start + length][rows] += weight * (counts / (counts + norm[rows]))
            start += length
    return best(scores, k, above=0.0)
