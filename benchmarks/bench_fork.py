"""Time and memory of a fork at 1k, 10k and 100k records: both must be flat, under 20 us and 1 KiB.

python benchmarks/bench_fork.py
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import timeit
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from adapters.memory import LaneContext, Segment
from adapters.registry import open_system
from adapters.store import Store
from simulator.events import AnchorEvent, AnchorTask, MemoryRecord, ObservationEvent

SIZES = (1_000, 10_000, 100_000)
FORKS = 1_000
LIMIT_US = 20.0
LIMIT_BYTES = 1_024
SYSTEMS = ("null", "oracle", "full_context", "rag_raw:retrieval=bm25,chunk_observations=1")


def segment_of(records: int) -> Segment:
    observations = tuple(
        ObservationEvent(
            id=str(i), run="b", event_time_us=i, seq=i, source="dialog", text=f"word{i % 999} tea"
        )
        for i in range(records)
    )
    return Segment(
        stream="S",
        segment=0,
        day="DAY1",
        segment_id=0,
        start_time_us=0,
        end_time_us=records,
        observations=observations,
    )


def anchors_of(records: int) -> tuple[AnchorEvent, ...]:
    task = AnchorTask(user_request="?", expected_behavior="!")
    return tuple(
        AnchorEvent(
            id=str(i),
            run="b",
            event_time_us=i,
            anchor=f"S/s0/e{i}",
            segment=0,
            evidence_id=str(i),
            evidence_statement="word",
            evidence_type="stated",
            subject="S",
            initial_task=task,
            followup_task=task,
        )
        for i in range(records)
    )


def filled_store(records: int) -> Store:
    store = Store(dimensions=512, lexical=True)
    for start in range(0, records, 1_000):
        batch = [
            MemoryRecord(id=str(i), text=f"word{i % 999}", event_time_us=i)
            for i in range(start, start + 1_000)
        ]
        store.add(batch, np.zeros((len(batch), 512), np.float32))
    return store


def filled_system(name: str, records: int) -> Any:
    anchors = anchors_of(records) if name == "oracle" else ()
    system = open_system(name, LaneContext(lane="S@x", stream="S", anchors=anchors))
    asyncio.run(system.ingest(segment_of(records)))
    return system


def fork_time_us(fork: Callable[[], Any]) -> float:
    timer = timeit.Timer(fork)
    return statistics.median(timer.repeat(repeat=200, number=50)) / 50 * 1e6


def fork_bytes(fork: Callable[[], Any]) -> float:
    gc.collect()
    forks: list[Any] = [None] * FORKS
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(FORKS):
        forks[i] = fork()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / FORKS


def main() -> int:
    table = Table(title=f"fork: median time and bytes (limits {LIMIT_US:.0f} us, {LIMIT_BYTES} bytes)")
    table.add_column("system")
    for size in SIZES:
        table.add_column(f"{size:,} records", justify="right")
    table.add_column("time 100k / 1k", justify="right")
    good = True
    fill: dict[str, Callable[[int], Any]] = {"Store 512-d + BM25 (rag_raw's)": filled_store}
    fill |= {name: lambda records, name=name: filled_system(name, records) for name in SYSTEMS}
    for name, filled in fill.items():
        cells, times = [], []
        for size in SIZES:
            system = filled(size)
            times.append(fork_time_us(system.fork))
            used = fork_bytes(system.fork)
            cells.append(f"{times[-1]:.2f} us {used:4.0f} B")
            good &= times[-1] < LIMIT_US and used < LIMIT_BYTES
        table.add_row(name, *cells, f"{times[-1] / times[0]:.2f}")
    Console(width=130).print(table)
    print("within the limits" if good else "OVER THE LIMITS")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
