"""Does a trajectory cost the same whether a run has 500 or 8,107 of them (the paper's number, over 3,347 segments)?

    python benchmarks/bench_scale.py [--sizes 500,2000,8107] [--system null] [--repeat 1]

Each size is a whole run (`egostream run`'s: set-up, all roles on an SQLite log, scores) in a process of its own, with
the deterministic judges, over six streams with the paper's number of anchors a segment. Prints wall time, processor
time, the process's peak memory, and both per trajectory; the ratio of the largest size's cost per trajectory to the
smallest's is to be about 1. Reading the data is not timed, but is in the peak.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
from msgspec.structs import replace

from producers.lifelog import Dataset, Lifelog
from simulator.plan import Plan, RunOptions, plan_run
from simulator.run import execute

TRAJECTORIES, SEGMENTS, STREAMS = 8107, 3347, 6
DATA = (
    f"synthetic:wearers={STREAMS},days=7,segments_per_day=80,anchors_per_day=216,observations_per_segment=12"
)


def cut(dataset: Dataset, trajectories: int) -> Dataset:
    """The first segments of every stream and as many of their anchors as make so many trajectories: the shape of the
    whole, 8,107 over 3,347, in proportion."""
    segments = round(trajectories * SEGMENTS / TRAJECTORIES)
    lifelogs: dict[str, Lifelog] = {}
    for number, (name, lifelog) in enumerate(dataset.lifelogs.items()):
        kept = lifelog.segments[: segments // STREAMS + (number < segments % STREAMS)]
        observations = lifelog.observations[: kept[-1].last_seq + 1]
        lifelogs[name] = Lifelog(stream=name, observations=observations, segments=kept)
    anchors = [a for a in dataset.anchors if a.segment < len(lifelogs[a.stream].segments)]
    if len(anchors) < trajectories:
        raise SystemExit(f"{DATA} has {len(anchors)} anchors in {segments} segments, not {trajectories}")
    spare = len(anchors) - trajectories  # drop them evenly
    dropped = {i * len(anchors) // spare for i in range(spare)} if spare else set()
    return replace(dataset, lifelogs=lifelogs, anchors=[a for i, a in enumerate(anchors) if i not in dropped])


def plan(folder: Path, trajectories: int, system: str) -> Plan:
    """A run of so many trajectories."""
    planned = plan_run(RunOptions(data=DATA, systems=(system,), out=folder))
    dataset = cut(planned.dataset, trajectories)
    started = replace(
        planned.started,
        segments={name: len(lifelog.segments) for name, lifelog in dataset.lifelogs.items()},
        anchors=len(dataset.anchors),
    )
    return Plan(planned.options, dataset, planned.systems, started, planned.asked_us)


def one(trajectories: int, system: str) -> None:
    """Run one size in this process and print its figures as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        planned = plan(Path(folder) / "run", trajectories, system)
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began_s, cpu_s = time.perf_counter(), time.process_time()
        scores = anyio.run(execute, planned)
        wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (scores.trajectories, scores.unjudged.trajectories) == (trajectories, 0)
        log_bytes = sum(path.stat().st_size for path in Path(folder).rglob("log.db*"))
    print(json.dumps([sum(planned.started.segments.values()), wall_s, cpu_s, before_kb, peak_kb, log_bytes]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Does the cost of a run grow linearly?")
    parser.add_argument(
        "--sizes", default="500,2000,8107", help="trajectories of each run (default 500,2000,8107)"
    )
    parser.add_argument("--system", default="null", help="the memory system (default null)")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.system)
        return
    print(f"{STREAMS} streams, system {args.system}, deterministic judges, {os.cpu_count()} cores")
    per_trajectory: list[tuple[float, float]] = []
    sizes = [int(size) for size in args.sizes.split(",")]
    for size in sizes:
        command = [sys.executable, __file__, "--one", str(size), "--system", args.system]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
        segments, wall_s, cpu_s, before_kb, peak_kb, log_bytes = json.loads(done.stdout.splitlines()[-1])
        per_trajectory.append((wall_s / size, cpu_s / size))
        print(
            f"{size:6,} trajectories, {segments:5,} segments: {wall_s:7.2f} s, processor {cpu_s:7.2f} s, "
            f"{wall_s / size * 1e3:.2f} / {cpu_s / size * 1e3:.2f} ms a trajectory; "
            f"peak {peak_kb / 1024:.0f} MB ({before_kb / 1024:.0f} MB with the data read), "
            f"log {log_bytes / 2**20:.0f} MB",
            flush=True,
        )
    (first_wall, first_cpu), (last_wall, last_cpu) = per_trajectory[0], per_trajectory[-1]
    print(
        f"cost per trajectory at {sizes[-1]:,} / at {sizes[0]:,}: wall {last_wall / first_wall:.2f}, "
        f"processor {last_cpu / first_cpu:.2f} (linear: about 1)"
    )


if __name__ == "__main__":
    main()
