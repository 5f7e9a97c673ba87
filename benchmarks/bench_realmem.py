"""Rankings of whole sessions on RealMem's own data, by the published measures: recency, BM25, mean of turns, fused.

    python benchmarks/bench_realmem.py [DATA] [--lexical]

DATA is a file or a folder of them (default: realmem in $EGOSTREAM_DATA or ../shared/data). Embedding the turns takes
minutes on one core; `--lexical` leaves out what needs it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from adapters.embedder import Embedder, default_embedder
from adapters.ranking import Hit
from adapters.sessions import SessionIndex
from judges.retrieval import ndcg, recall_all, recall_any
from producers.datasets.realmem import read_realmem
from producers.probes import Probe, ProbeSet

DEPTH = 20
MEASURES: Mapping[str, Callable[[Sequence[int], tuple[int, ...]], float]] = {
    "recall_all@10": lambda ranked, gold: recall_all(ranked, gold, 10),
    "recall_all@20": lambda ranked, gold: recall_all(ranked, gold, 20),
    "recall_any@10": lambda ranked, gold: recall_any(ranked, gold, 10),
    "recall_any@20": lambda ranked, gold: recall_any(ranked, gold, 20),
    "ndcg@10": lambda ranked, gold: ndcg(ranked, gold, 10),
    "ndcg@20": lambda ranked, gold: ndcg(ranked, gold, 20),
}
PUBLISHED = {  # over ten users and 1,415 questions: recall_all@10, recall_all@20, ndcg@10, ndcg@20
    "Graph Memory (paper)": (0.6344, 0.7017, 0.5654, 0.5826),
    "Mem0 (paper)": (0.6055, 0.6515, 0.5251, 0.5398),
    "A-mem (paper)": (0.5760, 0.7235, 0.5211, 0.5560),
}
Ranker = Callable[[Probe], list[Hit]]


def figures(probes: Sequence[Probe], rank: Ranker) -> dict[str, float]:
    """The mean of each measure over the probes that have gold."""
    asked = [probe for probe in probes if probe.gold.segments]
    ranked = [[hit.row for hit in rank(probe)] for probe in asked]
    return {
        name: sum(measure(rows, p.gold.segments) for rows, p in zip(ranked, asked, strict=True)) / len(asked)
        for name, measure in MEASURES.items()
    }


async def indexes(data: ProbeSet, embedder: Embedder | None) -> dict[str, SessionIndex]:
    """Every user's sessions; with an embedder, with their turns' vectors."""
    found = {}
    for user, lifelog in data.dataset.lifelogs.items():
        index = SessionIndex(dimensions=embedder.dimensions if embedder else 0)
        for number, span in enumerate(lifelog.segments):
            turns = [
                o.text.partition(": ")[2] for o in lifelog.observations[span.first_seq : span.last_seq + 1]
            ]
            index.add(turns, await embedder.embed(turns) if embedder else None)
            if number % 20 == 0:
                print(f"{user}: {number} of {len(lifelog.segments)} sessions", file=sys.stderr)
        found[user] = index
    return found


def lexical_rankers(users: Mapping[str, SessionIndex]) -> dict[str, Ranker]:
    return {
        "recency": lambda p: SessionIndex.recency(p.segment + 1, DEPTH),
        "bm25": lambda p: users[p.stream].lexical(p.text, p.segment + 1, DEPTH),
    }


def dense_rankers(
    users: Mapping[str, SessionIndex], vectors: Mapping[str, NDArray[np.float32]]
) -> dict[str, Ranker]:
    return {
        "dense": lambda p: users[p.stream].dense(vectors[p.id], p.segment + 1, DEPTH),
        "hybrid": lambda p: users[p.stream].fused(p.text, vectors[p.id], p.segment + 1, DEPTH),
    }


async def main(data: ProbeSet, *, lexical: bool) -> None:
    embedder = None if lexical else default_embedder()
    users = await indexes(data, embedder)
    rankers = lexical_rankers(users)
    if embedder:
        vectors = {probe.id: (await embedder.embed([probe.text]))[0] for probe in data.probes}
        rankers |= dense_rankers(users, vectors)
    asked = sum(bool(probe.gold.segments) for probe in data.probes)
    table = Table(
        title=f"RealMem: {len(users)} users, {asked} queries with gold; sessions before the query's own"
    )
    table.add_column("ranking")
    for name in MEASURES:
        table.add_column(name, justify="right")
    for name, rank in rankers.items():
        table.add_row(name, *(f"{value:.4f}" for value in figures(data.probes, rank).values()))
    for name, (r10, r20, n10, n20) in PUBLISHED.items():
        table.add_row(name, f"{r10:.4f}", f"{r20:.4f}", "", "", f"{n10:.4f}", f"{n20:.4f}", style="dim")
    Console(width=120).print(table)


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    root = Path(os.environ.get("EGOSTREAM_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    path = Path(given[0]) if given else root / "realmem"
    if path.exists():
        asyncio.run(main(read_realmem(path), lexical="--lexical" in sys.argv))
    else:
        print(f"no RealMem data at {path}: nothing is measured", file=sys.stderr)
