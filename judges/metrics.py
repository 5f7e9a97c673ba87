"""The measures that judges decide on. Pure functions over tokens."""

from __future__ import annotations

from simulator.text import tokens


def overlap(query: str, text: str) -> float:
    """Share of the query's distinct tokens that occur in the text, in [0, 1]; 0 for a query without tokens.

    Source: StreamMemBench's official deterministic path (docs/metrics.md).
    """
    return overlap_with(query, frozenset(tokens(text)))


def overlap_with(query: str, text_tokens: frozenset[str]) -> float:
    """As `overlap`, for a text that several queries are held against: its tokens are found once."""
    query_tokens = frozenset(tokens(query))
    return len(query_tokens & text_tokens) / len(query_tokens) if query_tokens else 0.0
