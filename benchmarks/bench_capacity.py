"""Does a sweep find the capacity that a system is known to have? Real processes, real time.

    python benchmarks/bench_capacity.py [--seconds 6]

The system is as a model on one device: an ingest takes 20 ms, and a process does one at a time, whatever lane it is of.
So one process does 50 segments a second on one lane and on four, and four processes, a lane each, do 200. Prints what
the sweep found, and its ratio to that: between the highest rate that kept up and the lowest that did not (5 % apart).
In virtual time, where it does not hang on the machine: tests/load/test_sweep.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

from adapters.memory import Answer, Delta, Interaction, LaneContext, Request, Segment

SERVICE_S = 0.02
DATA = "synthetic:wearers=1,segments_per_day=24,observations_per_segment=1,anchors_per_day=0"
CASES = ((1, None, 1), (1, 1, 1), (4, 1, 1), (4, 4, 4))
"""Lanes, worker processes for the agents (None: all roles in one), and how many times 50/s they do."""


class OneDevice:
    """Keeps nothing, and takes 20 ms for it, one ingest after the other."""

    _device = anyio.Lock()

    def __init__(self, context: LaneContext) -> None:
        pass

    async def ingest(self, segment: Segment) -> Delta:
        async with self._device:
            await anyio.sleep(SERVICE_S)
        return Delta()

    async def answer(self, request: Request) -> Answer:
        return Answer(text="")

    async def commit(self, interaction: Interaction) -> Delta:
        return Delta()

    def fork(self) -> OneDevice:
        return self

    async def aclose(self) -> None: ...


def sweep(out: Path, lanes: int, agents: int | None, first: float, seconds: float) -> tuple[float, float]:
    """The highest rate that kept up, and the lowest that did not, in segments a second."""
    asked = ["--observations-per-second", first, "--duration", seconds, "--sweep", "rate", "--again", 0]
    apart = [] if agents is None else ["--agents", agents]
    command = ["load", "bench_capacity:OneDevice", "--data", DATA, "--wearers", lanes, *asked, *apart]
    ended = subprocess.run(
        [sys.executable, "-m", "egostream", *map(str, command), "--out", str(out), "--json", "-q"],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent,
        check=False,
    )
    if not ended.stdout:
        raise SystemExit(f"the sweep ended with {ended.returncode}")
    found = json.loads(ended.stdout)
    low, high = ((found[end] or {"value": 0.0})["value"] for end in ("highest_kept", "lowest_broken"))
    return low, high


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=6.0)
    seconds = parser.parse_args().seconds
    for lanes, agents, times in CASES:
        known = times / SERVICE_S
        with tempfile.TemporaryDirectory() as folder:
            low, high = sweep(Path(folder) / "sweep", lanes, agents, known * 0.9, seconds)
        where = "all roles in one process" if agents is None else f"{agents} agent process(es)"
        print(
            f"{lanes} lane(s), {where}: known {known:.0f}/s, found {low:.1f} to {high:.1f}/s: "
            f"{low / known:.3f} to {high / known:.3f} of it",
            flush=True,
        )


if __name__ == "__main__":
    main()
