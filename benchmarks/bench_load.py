"""What `egostream load` can show on this machine: each role a process, in real time, on SQLite and on Kafka.

    python benchmarks/bench_load.py pacing [--seconds 60] [--log kafka://host:port]
    python benchmarks/bench_load.py rates [--seconds 6] [--wearers 1 2 6] [--log kafka://host:port]

pacing: 5,000 observations a second into the null agent: how late they were handed to the log and read by the agent, how
many came, and what each process took; then the same with --real-time, where that is permitted. rates: a sweep for the
most observations a second at which no lane falls ever further behind, and what each process took there.

Without --log everything is on SQLite, and again on a Kafka broker of its own (Java and Maven are needed).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dev.kafka.brokers import start
from simulator.load.machine import may_run_in_real_time

DATA = "synthetic:wearers=6"
PACE = 5000
WARM_S = 120
"""A broker's virtual machine that has just begun compiles for minutes, beside what is measured."""


def load(*arguments: object) -> dict[str, Any]:
    """`egostream load`'s JSON."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["load", *arguments, "--out", Path(folder) / "run", "--json", "-q"]
        ended = subprocess.run(
            [sys.executable, "-m", "egostream", *map(str, command)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            check=False,
        )
    if not ended.stdout:
        raise SystemExit(f"the load ended with {ended.returncode}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@contextmanager
def logs(given: str | None) -> Iterator[list[tuple[str, list[str]]]]:
    """Name → options of each log."""
    if given is not None:
        yield [(given.partition("://")[0], ["--log", given])]
        return
    with tempfile.TemporaryDirectory() as folder:
        cluster = start("bench", data=Path(folder)) if shutil.which("mvn") else None
        try:
            kafka = [] if cluster is None else [("kafka", ["--log", f"kafka://{cluster.bootstrap}"])]
            yield [("sqlite", []), *kafka]
        finally:
            if cluster is not None:
                cluster.stop()


def shares(report: dict[str, Any]) -> str:
    """What each process took of a core."""
    return ", ".join(f"{use['process']} {use['cpu']:.0%}" for use in report["processes"])


def pacing(seconds: float, log: str | None) -> None:
    with logs(log) as known:
        for name, options in known:
            asked = ["--data", DATA, "--wearers", 1, "--observations-per-second", PACE, "--agents", 1]
            if options:
                load("null", *asked, "--duration", WARM_S, *options)
            for real_time in [[], ["--real-time"]] if may_run_in_real_time() else [[]]:
                report = load("null", *asked, "--duration", seconds, *options, *real_time)
                late, read = report["pacing"], report["stages"]["read"]
                print(
                    f"{' '.join([name, *real_time])}: {late['n']:,} of {report['observations']:,} observations, "
                    f"{report['unfinished']} segments unfinished; late by p50 {late['p50_us'] / 1e3:.1f} ms, "
                    f"p90 {late['p90_us'] / 1e3:.1f}, p99 {late['p99_us'] / 1e3:.1f} "
                    f"({late['p99_us'] / 5e3:.2f} of 5 ms), max {late['max_us'] / 1e3:.1f}; segments read: "
                    f"p50 {read['p50_us'] / 1e3:.1f}, p99 {read['p99_us'] / 1e3:.1f}; {shares(report)} of a core",
                    flush=True,
                )


def rates(seconds: float, wearers: list[int], log: str | None) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{cores} cores")
    with logs(log) as known:
        for name, options in known:
            for count in wearers:
                asked = ["--data", DATA, "--wearers", count, "--observations-per-second", 2 * PACE]
                swept = ["--duration", seconds, "--sweep", "rate", "--tolerance", 0.1, "--again", 1]
                found = load("null", *asked, *swept, "--agents", 1, *options)
                kept = found["highest_kept"]
                if kept is None:
                    print(f"{name}, {count} wearers: nothing kept", flush=True)
                    continue
                report = next(
                    p["report"] for p in found["points"] if p["kept"] and p["value"] == kept["value"]
                )
                print(
                    f"{name}, {count} wearers: {kept['value']:,.0f} observations/s "
                    f"(kept in {kept['kept_times']} of {kept['of']}); {shares(report)} of a core",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["pacing", "rates"])
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--wearers", type=int, nargs="+", default=[1, 2, 6])
    parser.add_argument("--log")
    args = parser.parse_args()
    if args.what in (None, "pacing"):
        pacing(args.seconds or 60.0, args.log)
    if args.what in (None, "rates"):
        rates(args.seconds or 6.0, args.wearers, args.log)


if __name__ == "__main__":
    main()
