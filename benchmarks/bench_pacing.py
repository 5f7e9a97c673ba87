"""Does a replay keep its time? 10,000 observations into the SQLite log while a consumer burns time on each.

    python benchmarks/bench_pacing.py [--seconds 5] [--burn-us 200]

Prints the ideal and the actual time and their ratio (to be within 1 %), and how late the events were in the
log. A sleep between two observations that does not look at a clock would be late by the sum of all that is
done meanwhile; that sum is printed too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import anyio

from producers.lifelog import DAY1_US, SEGMENT_US, Lifelog, RawObservation, SegmentSpan
from producers.replayer import ReplayStats, replay
from simulator.clock import Clock
from simulator.events import ReplayEndedEvent, decode
from simulator.log.sqlite import SqliteLog
from simulator.topics import Recorder

SEGMENTS, PER_SEGMENT = 50, 200
OBSERVATIONS = SEGMENTS * PER_SEGMENT


def lifelog() -> Lifelog:
    """10,000 observations, one each 1.5 s of event time."""
    step_us = SEGMENT_US // PER_SEGMENT
    return Lifelog(
        "A",
        [
            RawObservation(DAY1_US + i * step_us, "dialog", f"I say something, the {i}th time", "DAY1")
            for i in range(OBSERVATIONS)
        ],
        [
            SegmentSpan(
                "DAY1",
                i,
                DAY1_US + i * SEGMENT_US,
                DAY1_US + (i + 1) * SEGMENT_US,
                i * PER_SEGMENT,
                (i + 1) * PER_SEGMENT - 1,
            )
            for i in range(SEGMENTS)
        ],
    )


async def bench(seconds: float, burn_us: int) -> tuple[ReplayStats, float]:
    """Replay in `seconds`, ideally; gives the statistics and the seconds that the consumer burnt."""
    recorder = Recorder("bench", {"A": 0})
    topics, burnt_s, finished = recorder.topics, 0.0, anyio.Event()

    async def consume(log: SqliteLog) -> None:
        nonlocal burnt_s
        async with log.subscribe((topics.observations, topics.control)) as subscription:
            ended = False
            while not ended:
                for record in await subscription.poll(max_records=50):
                    ended |= isinstance(decode(record.value), ReplayEndedEvent)
                    began_s = time.perf_counter()
                    while time.perf_counter() - began_s < burn_us / 1e6:
                        pass
                    burnt_s += time.perf_counter() - began_s
        finished.set()

    with tempfile.TemporaryDirectory() as folder:
        async with SqliteLog.open(Path(folder) / "log.db") as log:
            await log.create_topics(topics.partitions(1))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consume, log)
                clock = Clock(DAY1_US, SEGMENTS * SEGMENT_US / 1e6 / seconds)
                stats = await replay(log, recorder, [lifelog()], clock)
                with anyio.fail_after(120):
                    await finished.wait()
    return stats, burnt_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Does a replay keep its time?")
    parser.add_argument("--seconds", type=float, default=5.0, help="ideal duration (default 5)")
    parser.add_argument("--burn-us", type=int, default=200, help="work of the consumer for each observation")
    args = parser.parse_args()
    stats, burnt_s = anyio.run(bench, args.seconds, args.burn_us)
    late = stats.lateness
    assert late is not None
    print(f"{stats.observations} observations at {stats.offered_rate:g} x real time")
    print(f"consumer in the same event loop burnt {burnt_s:.3f} s")
    print(f"ideal {args.seconds:.3f} s, actual {stats.wall_s:.3f} s, ratio {stats.wall_s / args.seconds:.4f}")
    print(
        f"lateness ms (n {late.n}): p50 {late.p50_us / 1e3:.1f}  p90 {late.p90_us / 1e3:.1f}  "
        f"p99 {late.p99_us / 1e3:.1f}  max {late.max_us / 1e3:.1f}"
    )


if __name__ == "__main__":
    main()
