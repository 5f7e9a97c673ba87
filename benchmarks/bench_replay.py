"""Replay of a week into a null agent whose deltas are in the log, against a plain loop over SQLite.

    python benchmarks/bench_replay.py [DATA] [--rounds 5]

DATA is a dataset path (default: the real week of A1_JAKE in $EGOSTREAM_DATA or ../shared/data, else a
synthetic one of its size). The plain loop encodes ready-made events, inserts them in batches of 1000 in one
table, selects and decodes them again: no pacing, no headers, no agent. Both take turns; 1.0 means as fast as
the plain loop.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sqlite3
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import anyio

from adapters.memory import LaneContext, MemorySystem
from adapters.registry import open_system
from consumers.agent import run_agent
from producers.datasets import read_dataset
from producers.lanes import ReplayOptions
from producers.lifelog import Dataset
from producers.replayer import replay
from producers.timeline import timeline
from simulator.clock import Clock
from simulator.events import RunStartedEvent, decode, encode
from simulator.log import SqliteLog
from simulator.topics import Recorder, Topics
from simulator.waits import agent_role

BATCH = 1000
RUN = "bench"


def default_data() -> str:
    root = Path(os.environ.get("EGOSTREAM_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    real = root / "streammembench" / "streammembench_v1_en"
    if real.is_dir():
        return str(real)
    return "synthetic:seed=1,wearers=1,days=7,segments_per_day=93,observations_per_segment=191"


def plain(path: Path, dataset: Dataset) -> float:
    """Seconds of the plain loop."""
    events = list(timeline(list(dataset.lifelogs.values()), RUN))
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = NORMAL")
    conn.execute(
        "CREATE TABLE records (offset INTEGER PRIMARY KEY, key BLOB, value BLOB, timestamp_ms INTEGER)"
    )
    began_s = time.perf_counter()
    for first in range(0, len(events), BATCH):
        rows = [
            (e.stream.encode(), encode(e), e.event_time_us // 1000) for e in events[first : first + BATCH]
        ]
        conn.execute("BEGIN IMMEDIATE")
        conn.executemany("INSERT INTO records (key, value, timestamp_ms) VALUES (?, ?, ?)", rows)
        conn.execute("COMMIT")
    count = 0
    for first in range(0, len(events), BATCH):
        found = conn.execute(
            "SELECT offset, key, value, timestamp_ms FROM records WHERE offset > ? AND offset <= ?",
            (first, first + BATCH),
        )
        count += len([decode(value) for _, _, value, _ in found.fetchall()])
    spent_s = time.perf_counter() - began_s
    assert count == len(events)
    conn.close()
    return spent_s


async def ours(path: Path, dataset: Dataset) -> float:
    """Seconds from the start of the replay until every delta is in the log."""
    streams = tuple(dataset.lifelogs)
    segments = {name: len(lifelog.segments) for name, lifelog in dataset.lifelogs.items()}
    started = RunStartedEvent(
        id="run/started",
        run=RUN,
        event_time_us=0,
        identity={},
        streams=streams,
        segments=segments,
        systems=("null",),
        privileged=(),
        anchors=0,
        partitions=1,
        isolation="branch",
        required=(agent_role("null"),),
    )

    def open_memory(lane: str, stream: str) -> MemorySystem:
        return open_system("null", LaneContext(lane=lane, stream=stream))

    async with SqliteLog.open(path) as log:
        topics = Topics.of(RUN)
        await log.create_topics(topics.partitions(1))
        recorder = Recorder.for_run(started)
        options = ReplayOptions(required=started.required, lanes={s: [f"null@{s}"] for s in streams})
        began_s = time.perf_counter()
        async with anyio.create_task_group() as roles, log.subscribe([topics.deltas]) as deltas:
            roles.start_soon(run_agent, log, started, "null", open_memory)
            clock = Clock(0, math.inf)
            roles.start_soon(partial(replay, log, recorder, list(dataset.lifelogs.values()), clock, options))
            missing = sum(segments.values())
            while missing:
                missing -= len(await deltas.poll())
            spent_s = time.perf_counter() - began_s
            roles.cancel_scope.cancel()
    return spent_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", default=default_data())
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    dataset = read_dataset(arguments.data)
    observations = sum(len(lifelog.observations) for lifelog in dataset.lifelogs.values())
    segments = sum(len(lifelog.segments) for lifelog in dataset.lifelogs.values())
    gc.collect()
    gc.freeze()  # the dataset is no part of what is measured: neither side pays for scanning it
    pairs = []
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            plain_s = plain(Path(folder) / "plain.db", dataset)
            pairs.append((plain_s, anyio.run(ours, Path(folder) / "log.db", dataset)))
    ratios = [plain_s / ours_s for plain_s, ours_s in pairs]
    ours_s = statistics.median(pair[1] for pair in pairs)
    print(f"{arguments.data}: {observations:,} observations, {segments:,} deltas in the log")
    print(f"replay into a null agent: {ours_s:.2f} s, {observations / ours_s:,.0f} observations/s")
    print(f"plain loop:               {statistics.median(pair[0] for pair in pairs):.2f} s")
    print(
        f"speed against the plain loop: {statistics.median(ratios):.2f} "
        f"(min {min(ratios):.2f}, max {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main()
