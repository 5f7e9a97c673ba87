"""What it takes to follow a load: processor time for each observation, and so the share of a core at 5,000 a second.

    python benchmarks/bench_follow.py [--seconds 10] [--rounds 3]

A load of 5,000 observations a second into a null agent leaves its log; that is read again as `consumers.follow` reads
it (all that half a second brings at once): read only, counted by headers as it is done, and with every observation
decoded. They take turns, and ratios are to reading only. Then what a state, a refresh of the view and a scrape take.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console
from rich.live import Live

from consumers.exposition import StateCollector
from consumers.follow import feed
from consumers.gauges import Gauges
from producers.arrivals import Load
from simulator.cli.live import LiveView
from simulator.events import RunStartedEvent
from simulator.intake import decode_records
from simulator.load.single import LoadOptions, execute_load, plan_load
from simulator.log import StoredRecord, open_log
from simulator.runfolder import log_path
from simulator.topics import Topics, wall_us

PER_S = 5000
Take = Callable[[Sequence[StoredRecord]], None]


async def took_s(out: Path, started: RunStartedEvent, take: Take) -> float:
    """Processor seconds, of all threads, to read the log in batches of half a second's."""
    topics = [topic for topic in Topics.of(started.run) if topic != Topics.of(started.run).anchors]
    async with open_log(str(log_path(out))) as log:
        ends = await log.end_offsets(topics)
        began_s = time.process_time()
        async with log.subscribe(topics) as subscription:
            while [tp for tp, end in ends.items() if await subscription.position(tp) < end]:
                take(await subscription.poll(max_records=PER_S // 2))
        return time.process_time() - began_s


def decoded(gauges: Gauges, run: str, records: Sequence[StoredRecord]) -> None:
    for event, record in decode_records(run, records)[0]:
        gauges.feed(event, record.headers)


def each_ms(function: Callable[[], object], times: int = 50) -> float:
    began_s = time.process_time()
    for _ in range(times):
        function()
    return (time.process_time() - began_s) / times * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        load = Load(wearers=6, duration_s=arguments.seconds, observations_per_second=PER_S)
        plan = plan_load(LoadOptions(data="synthetic:wearers=6", system="null", out=out, load=load))
        report = anyio.run(execute_load, plan)
        started, observations = plan.plan.started, report.observations
        print(f"{observations:,} observations, {report.segments:,} segments on {report.lanes} lanes")
        ways: dict[str, Callable[[Gauges], Take]] = {
            "read only": lambda gauges: lambda records: None,
            "counted by headers": lambda gauges: partial(feed, gauges, started.run),
            "all decoded": lambda gauges: partial(decoded, gauges, started.run),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, way in ways.items():
                found[name].append(anyio.run(took_s, out, started, way(Gauges(started))))
        plain_s = statistics.median(found["read only"])
        for name, seconds in found.items():
            each_us = statistics.median(seconds) / observations * 1e6
            print(
                f"{name:<20} {each_us:6.2f} µs an observation, {each_us * PER_S / 1e4:5.1f}% of a core at {PER_S:,}/s, "
                f"ratio {statistics.median(seconds) / plain_s:.2f}"
            )
        gauges, view, collector = Gauges(started), LiveView("loading", 60, 60), StateCollector()
        view.show(gauges.state(wall_us()))
        anyio.run(took_s, out, started, partial(feed, gauges, started.run))
        state = gauges.state(wall_us())
        collector.state = state
        registry = CollectorRegistry()
        registry.register(collector)
        console = Console(file=io.StringIO(), force_terminal=True, width=110, height=40)
        live = Live(view, console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        with live:
            costs = {
                "a state (2/s)": each_ms(lambda: gauges.state(wall_us())),
                "the view's text (2/s)": each_ms(lambda: view.show(state)),
                "the view's refresh (2/s, in a thread)": each_ms(live.refresh),
                "a scrape (in a thread)": each_ms(lambda: generate_latest(registry)),
            }
        for name, each in costs.items():
            print(f"{name:<38} {each:6.2f} ms")


if __name__ == "__main__":
    main()
