"""Retrieval through the store against plain numpy, usearch and a plain BM25 over the same rows; and how many
texts the default encoder embeds a second.

    python benchmarks/bench_retrieval.py
"""

from __future__ import annotations

import asyncio
import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in a run: the encoder sets BLAS to one thread

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from usearch.index import MetricKind
from usearch.index import search as usearch_search

from adapters.embedder import UniversalSentenceEncoder
from adapters.store import Store
from simulator.events import MemoryRecord
from simulator.text import tokens

SIZES = (1_000, 10_000, 100_000)
DIMENSIONS = 512
K = 10
WORDS_IN_TEXT = 90
"""As in a chunk of 16 observations of the real week."""


def synthetic_texts(count: int, rng: np.random.Generator) -> list[str]:
    """Words by Zipf's law, as in speech."""
    ranks = np.minimum(rng.zipf(1.2, size=(count, WORDS_IN_TEXT)), 20_000)
    return [" ".join(f"w{rank}" for rank in row) for row in ranks]


def median_ms(work: Callable[[], Any], repeat: int) -> float:
    work()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def plain_numpy(matrix: NDArray[np.float32], query: NDArray[np.float32]) -> list[int]:
    scores = matrix @ query
    top = np.argpartition(scores, len(scores) - K)[-K:]
    return [int(row) for row in top[np.argsort(-scores[top], kind="stable")]]


class PlainBM25:
    """Built from scratch for one list of texts: dictionaries and loops, Lucene's formula."""

    def __init__(self, texts: list[str]) -> None:
        split = [tokens(text) for text in texts]
        self.count = len(split)
        self.lengths = [len(words) for words in split]
        self.average = sum(self.lengths) / self.count
        self.postings: dict[str, list[tuple[int, int]]] = {}
        for row, words in enumerate(split):
            for word, count in Counter(words).items():
                self.postings.setdefault(word, []).append((row, count))

    def search(self, query: str) -> list[int]:
        scores: dict[int, float] = {}
        for word in tokens(query):
            found = self.postings.get(word, [])
            idf = math.log(1 + (self.count - len(found) + 0.5) / (len(found) + 0.5))
            for row, tf in found:
                norm = 1.2 * (0.25 + 0.75 * self.lengths[row] / self.average)
                scores[row] = scores.get(row, 0.0) + idf * tf / (tf + norm)
        return sorted(scores, key=lambda row: (-scores[row], row))[:K]


def dense_table(rng: np.random.Generator) -> Table:
    table = Table(title=f"dense top-{K}, {DIMENSIONS} dimensions, one thread: ms a query")
    for column in (
        "rows",
        "store",
        "fork + overlay",
        "numpy",
        "usearch exact",
        "numpy / store",
        "usearch / store",
    ):
        table.add_column(column, justify="right")
    for size in SIZES:
        rows = rng.standard_normal((size, DIMENSIONS), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        query = rows[size // 2].copy()
        store = Store(dimensions=DIMENSIONS)
        store.add([MemoryRecord(id=str(i), text="", event_time_us=i) for i in range(size)], rows)
        fork = store.fork()
        fork.add([MemoryRecord(id="own", text="", event_time_us=size)], rows[:1])
        assert [hit.row for hit in store.search_dense(query, K)] == plain_numpy(rows, query)
        repeat = max(20, 400_000 // size)
        through = median_ms(lambda s=store, q=query: s.search_dense(q, K), repeat)
        forked = median_ms(lambda s=fork, q=query: s.search_dense(q, K), repeat)
        plain = median_ms(lambda r=rows, q=query: plain_numpy(r, q), repeat)
        other = median_ms(
            lambda r=rows, q=query: usearch_search(r, q, K, MetricKind.IP, exact=True, threads=1), repeat
        )
        cells = [f"{ms:.3f}" for ms in (through, forked, plain, other)]
        table.add_row(f"{size:,}", *cells, f"{plain / through:.2f}", f"{other / through:.2f}")
    return table


def lexical_table(rng: np.random.Generator) -> Table:
    table = Table(title=f"BM25 top-{K} over a prefix of half the records: ms a query of 20 words")
    for column in ("visible", "store's fork", "plain", "plain / fork", "plain, built anew", "anew / fork"):
        table.add_column(column, justify="right")
    texts = synthetic_texts(40_000, rng)
    query = " ".join(synthetic_texts(1, rng)[0].split()[:20])
    for size in (500, 5_000, 20_000):
        store = Store(lexical=True)
        store.add([MemoryRecord(id=str(i), text=t, event_time_us=i) for i, t in enumerate(texts[:size])])
        fork = store.fork()
        store.add(
            [MemoryRecord(id=str(i), text=t, event_time_us=i) for i, t in enumerate(texts[size : 2 * size])]
        )
        began = time.perf_counter()
        plain = PlainBM25(texts[:size])
        build = (time.perf_counter() - began) * 1e3
        assert [hit.row for hit in fork.search_lexical(query, K)] == plain.search(query)
        ours = median_ms(lambda f=fork: f.search_lexical(query, K), 20)
        theirs = median_ms(lambda p=plain: p.search(query), 5)
        table.add_row(
            f"{size:,}",
            f"{ours:.3f}",
            f"{theirs:.3f}",
            f"{theirs / ours:.1f}",
            f"{build + theirs:.1f}",
            f"{(build + theirs) / ours:.0f}",
        )
    return table


async def embedding_table(rng: np.random.Generator) -> Table:
    table = Table(title=f"default encoder: texts of {WORDS_IN_TEXT} words")
    for column in ("threads", "texts/s", "against one thread"):
        table.add_column(column, justify="right")
    words = tokens(
        "I make green tea in the kitchen while she talks about the rain and looks for her blue key"
    )
    texts = [" ".join(rng.choice(words, WORDS_IN_TEXT)) for _ in range(160)]
    alone = 0.0
    for workers in (1, 2):
        encoder = UniversalSentenceEncoder(workers=workers)
        await encoder.embed(["loads the weights"])
        wall = time.perf_counter()
        await encoder.embed(texts)
        wall = time.perf_counter() - wall
        alone = alone or wall
        table.add_row(str(workers), f"{len(texts) / wall:.0f}", f"{alone / wall:.2f}")
    return table


def main() -> None:
    rng = np.random.default_rng(0)
    console = Console(width=120)
    console.print(dense_table(rng))
    console.print(lexical_table(rng))
    console.print(asyncio.run(embedding_table(rng)))


if __name__ == "__main__":
    main()
