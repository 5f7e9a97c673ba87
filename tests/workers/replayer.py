"""A replayer as a process of its own, on an SQLite log that gives up a silent member soon: LOG RATE."""

from __future__ import annotations

import sys

import anyio

from producers.datasets import read_dataset
from producers.replayer import replay
from simulator.clock import Clock
from simulator.log import SqliteLog
from simulator.topics import Recorder
from tests.workers.test_two_replayers import DATA, RUN

PATIENCE_S = 1.0


async def main(path: str, rate: float) -> None:
    """Replay to the end, or stand by until somebody else has."""
    dataset = read_dataset(DATA)
    async with SqliteLog.open(path, max_poll_interval_s=PATIENCE_S) as log:
        recorder = Recorder(RUN, dict.fromkeys(dataset.lifelogs, 0))
        await replay(log, recorder, list(dataset.lifelogs.values()), Clock(0, rate))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], float(sys.argv[2]))
