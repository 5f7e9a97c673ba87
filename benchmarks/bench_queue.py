"""Do latencies in real time come out as the theory of queues has them? Each role a process, SQLite.

    python benchmarks/bench_queue.py [waits] [--seconds 60] [--service-ms 200]
    python benchmarks/bench_queue.py [stall]            (always a minute, and its drain)

waits: a system whose ingest takes a fixed time, on one lane, at utilisation 0.5, 0.8 and 0.9, its segments due
regularly (D/D/1: nobody waits) and at random (M/D/1). Prints the mean wait that `egostream load` measured, from due to
ingest begun, and its ratio to that of Lindley's recursion over the same schedule. Beside it what the formula of M/D/1
says of infinitely many: waits are long correlated, so a few hundred segments have a mean of their own.

stall: 100 segments a second for a minute, 5 ms each, of which one takes 10 s. Prints the percentiles from due against
those worked out by hand, and what a client that waits for each answer before it sends the next would have seen.

What is above the theory is the pipeline's own time: from due to read, and a segment's bookkeeping after its ingest. In
virtual time, where that is nothing, both agree: tests/load/test_theory.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_load import load
from producers.arrivals import Arrivals
from tests.load.queues import ONE_EACH, SEED, arrivals_s, waits_s

UTILISATIONS = (0.5, 0.8, 0.9)
KINDS: tuple[Arrivals, ...] = ("regular", "poisson")
BY_HAND_MS = {"p50_us": 5.0, "p90_us": 7_000.0, "p99_us": 9_700.0, "max_us": 10_000.0}
"""Segment i after the stall is due at 10 i ms and ends at 10 s + 5 i ms, until i = 2000: it took 10 s - 5 i ms."""


def fixed_time(settings: str, arrivals: Arrivals, per_second: float, seconds: float) -> dict[str, Any]:
    """What a load of one lane found, with a system that takes a known time."""
    asked = ["--data", ONE_EACH, "--wearers", 1, "--agents", 1, "--arrivals", arrivals, "--seed", SEED]
    rate = ["--observations-per-second", per_second, "--duration", seconds]
    return load(f"it=tests.load.systems:FixedTime:{settings}", *asked, *rate)


def waits(seconds: float, service_s: float) -> None:
    for arrivals in KINDS:
        for utilisation in UTILISATIONS:
            per_second = utilisation / service_s
            found = fixed_time(f"service_ms={service_s * 1e3:g}", arrivals, per_second, seconds)
            expected_s = mean(
                waits_s(arrivals_s(arrivals, per_second, round(per_second * seconds)), service_s)
            )
            begun, ingest = found["stages"]["begun"], found["stages"]["ingest"]
            wait_s = begun["mean_us"] / 1e6
            took = f"the ingest took {ingest['mean_us'] / 1e3:.2f} ms on average"
            if arrivals == "regular":
                against = f"{wait_s / service_s:.4f} of a service; theory: none"
            else:
                theory_s = utilisation * service_s / (2 * (1 - utilisation))
                against = (
                    f"{wait_s / expected_s:.3f} of the recursion's {expected_s * 1e3:.1f} ms "
                    f"(M/D/1: {theory_s * 1e3:.1f})"
                )
            print(
                f"{arrivals}, utilisation {utilisation}: {begun['n']} segments waited {wait_s * 1e3:.1f} ms on "
                f"average: {against}; {took}",
                flush=True,
            )


def stall() -> None:
    found = fixed_time("service_ms=5,stall_at=2000,stall_ms=10000", "regular", 100, 60)
    stages = found["stages"]
    print(f"a stall of 10 s in 60 s: {stages['remembered']['n']} segments remembered")
    for name, by_hand_ms in BY_HAND_MS.items():
        from_due_ms, ingest_ms = (stages[stage][name] / 1e3 for stage in ("ended", "ingest"))
        print(
            f"  {name.removesuffix('_us')}: from due {from_due_ms:,.1f} ms, {from_due_ms / by_hand_ms:.3f} of "
            f"{by_hand_ms:,.0f} by hand; one after the other it would have said {ingest_ms:,.1f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["waits", "stall"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--service-ms", type=float, default=200.0)
    args = parser.parse_args()
    if args.what in (None, "waits"):
        waits(args.seconds, args.service_ms / 1e3)
    if args.what in (None, "stall"):
        stall()


if __name__ == "__main__":
    main()
