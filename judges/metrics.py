"""The measures that judges decide on. Pure functions over tokens."""

from __future__ import annotations

import re
from typing import Final

from simulator.text import tokens

CJK: Final = re.compile(r"[\u4e00-\u9fff]")
_QUOTED_WORDS: Final = 4
"""So many words in a row that stand in another text as well quote it; of CJK characters, twice as many."""


def overlap(query: str, text: str) -> float:
    """Share of the query's distinct tokens that occur in the text, in [0, 1]; 0 for a query without tokens.

    Source: StreamMemBench's official deterministic path (docs/metrics.md).
    """
    return overlap_with(query, frozenset(tokens(text)))


def overlap_with(query: str, text_tokens: frozenset[str]) -> float:
    """As `overlap`, for a text that several queries are held against: its tokens are found once."""
    query_tokens = frozenset(tokens(query))
    return len(query_tokens & text_tokens) / len(query_tokens) if query_tokens else 0.0


def quotes(said: str, text: str, known: str = "") -> bool:
    """Whether what is said has a run of the text's tokens that is long enough to quote it, and is not known anyway."""
    length = _QUOTED_WORDS * (2 if CJK.search(text) else 1)
    return bool((_runs(said, length) & _runs(text, length)) - _runs(known, length))


def _runs(text: str, length: int) -> set[tuple[str, ...]]:
    found = tokens(text)
    return {tuple(found[i : i + length]) for i in range(len(found) - length + 1)}
