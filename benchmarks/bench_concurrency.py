"""What is gained by running trajectories side by side, when models take their time?

    python benchmarks/bench_concurrency.py [--segments 110] [--speedup 18] [--calls 64] [--part 1]

A memory system and judges whose calls take simulated time, as in the paper's cost table: an ingest 2.5-6.7 s, an answer
3 s; a commit takes 2.5 s and a judgment 3 s. All waits are `anyio.sleep`, drawn from ids, divided by `--speedup`. The
shape is the paper's: six streams, one lane each, 2.42 anchors a segment; half of all R1 fail. The roles, the SQLite log
and the limits are the real ones.

Prints the time of the run beside

- the critical path: the larger of the longest lane's ingest and all calls' time / calls in flight. No order of calls
  can be faster. Goal: within 1.15 of it;
- the same one trajectory and one call at a time, measured on the first `--part` segments of each stream and scaled by
  the time of the calls, and the time of the calls alone, which is the least that such a run takes. Goal: 60 times as
  long.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
from msgspec.structs import replace

from adapters.memory import Answer, Delta, Interaction, Request, Segment
from consumers.agent import agent_role, run_agent
from consumers.calls import CallLimit
from consumers.judging import JUDGE_ROLE, run_judges
from judges.deterministic import official_feedback
from judges.judge import Case, Judgment
from judges.panel import JudgePanel
from producers.conduct import CONDUCTOR_ROLE, conduct
from producers.lanes import ReplayOptions
from producers.lifelog import Dataset
from producers.replayer import replay
from producers.synthetic import parse_synthetic, synthesise
from simulator.clock import Clock
from simulator.events import Limits, MemoryRecord, Metric, RunEndedEvent, RunStartedEvent
from simulator.log import SqliteLog
from simulator.plan import first_segments, metrics_of
from simulator.topics import Recorder, Topics

INGEST_S, ANSWER_S, COMMIT_S, JUDGE_S = (2.5, 6.7), 3.0, 2.5, 3.0
STREAMS, ANCHORS_PER_SEGMENT = 6, 8107 / 3347


def share(*names: object) -> float:
    """A number in [0, 1) drawn from ids."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, names)).encode()).digest()[:8]) / 2**64


class Models:
    """Where all calls take their time, and how much that was."""

    def __init__(self, speedup: float) -> None:
        self.speedup = speedup
        self.calls = 0
        self.total_s = 0.0
        self.ingest_s: dict[str, float] = defaultdict(float)
        self.late_s = 0.0
        self.under_way = self.most = 0

    async def call(self, seconds: float) -> None:
        """Take so many simulated seconds."""
        self.calls += 1
        self.total_s += seconds
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        began_s = time.perf_counter()
        try:
            await anyio.sleep(seconds / self.speedup)
        finally:
            self.under_way -= 1
        self.late_s += time.perf_counter() - began_s - seconds / self.speedup


class SlowMemory:
    """Keeps the newest segment; a fork is a copy."""

    def __init__(self, models: Models, lane: str) -> None:
        self.models, self.lane = models, lane
        self.text = ""

    async def ingest(self, segment: Segment) -> Delta:
        least, most = INGEST_S
        seconds = least + (most - least) * share(self.lane, segment.segment)
        self.models.ingest_s[self.lane] += seconds
        await self.models.call(seconds)
        self.text = segment.text
        record = MemoryRecord(
            id=f"s{segment.segment}", text=segment.text, event_time_us=segment.observations[-1].event_time_us
        )
        return Delta(records=(record,), stored_bytes=len(segment.text.encode()))

    async def answer(self, request: Request) -> Answer:
        await self.models.call(ANSWER_S)
        return Answer(text=self.text)

    async def commit(self, interaction: Interaction) -> Delta:
        await self.models.call(COMMIT_S)
        return Delta()

    def fork(self) -> SlowMemory:
        fork = SlowMemory(self.models, self.lane)
        fork.text = self.text
        return fork

    async def aclose(self) -> None: ...


class SlowJudge:
    """Half of everything passes, drawn from ids."""

    name: str = "slow"
    metrics: frozenset[Metric] = frozenset(metrics_of(ablate_commit=False))

    def __init__(self, models: Models) -> None:
        self.models = models

    async def judge(self, case: Case) -> Judgment:
        await self.models.call(JUDGE_S)
        passed = share(case.anchor.anchor, case.metric) < 0.5
        feedback = official_feedback(passed, case.anchor.evidence_statement)
        return Judgment(
            outcome="pass" if passed else "fail", feedback=feedback if case.metric == "ieu" else None
        )


class Figures(NamedTuple):
    ended: RunEndedEvent
    wall_s: float
    cpu_s: float
    models: Models


async def run(dataset: Dataset, limits: Limits, speedup: float) -> Figures:
    """One run with all its roles on an SQLite log."""
    models = Models(speedup)
    started = RunStartedEvent(
        id="run/started",
        run="run-bench",
        event_time_us=0,
        identity={},
        streams=tuple(dataset.lifelogs),
        segments={name: len(lifelog.segments) for name, lifelog in dataset.lifelogs.items()},
        systems=("slow",),
        privileged=(),
        anchors=len(dataset.anchors),
        partitions=4,
        isolation="branch",
        limits=limits,
        required=(agent_role("slow"), JUDGE_ROLE, CONDUCTOR_ROLE),
    )
    recorder, calls = Recorder.for_run(started), CallLimit(limits.calls_in_flight)
    options = ReplayOptions(
        required=started.required,
        lanes={stream: [f"slow@{stream}"] for stream in started.streams},
        max_ahead=limits.segments_ahead,
        max_unreleased=limits.unreleased_segments,
    )
    panel = JudgePanel([SlowJudge(models)], metrics_of(ablate_commit=False))
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteLog.open(Path(folder) / "log.db") as log:
            await log.create_topics(Topics.of(started.run).partitions(started.partitions))
            anchors = [recorder.record(replace(anchor, run=started.run)) for anchor in dataset.anchors]
            await log.append([recorder.record(started), *anchors])
            began_s, cpu_s = time.perf_counter(), time.process_time()
            async with anyio.create_task_group() as roles:
                roles.start_soon(
                    partial(run_agent, calls=calls),
                    log,
                    started,
                    "slow",
                    lambda lane, _: SlowMemory(models, lane),
                )
                roles.start_soon(partial(run_judges, calls=calls), log, started, panel)
                lifelogs = list(dataset.lifelogs.values())
                roles.start_soon(replay, log, recorder, lifelogs, Clock(0, float("inf")), options)
                ended = await conduct(log, started)
            return Figures(ended, time.perf_counter() - began_s, time.process_time() - cpu_s, models)


def paper_shape(segments: int) -> Dataset:
    """Six streams of so many segments, with the paper's number of anchors a segment."""
    anchors = round(segments * ANCHORS_PER_SEGMENT)
    text = (
        f"wearers={STREAMS},segments_per_day={segments},anchors_per_day={anchors},observations_per_segment=12"
    )
    return synthesise(parse_synthetic("synthetic:" + text))


def main() -> None:
    parser = argparse.ArgumentParser(description="What is gained by running trajectories side by side?")
    parser.add_argument("--segments", type=int, default=110, help="of each of six streams (default 110)")
    parser.add_argument(
        "--speedup", type=float, default=18.0, help="calls take 1/this of their time (default 18)"
    )
    parser.add_argument("--calls", type=int, default=64, help="calls in flight (default 64)")
    parser.add_argument("--open", type=int, default=Limits().open_trajectories, help="open trajectories")
    parser.add_argument("--part", type=int, default=1, help="segments run one at a time (default 1; 0: none)")
    args = parser.parse_args()
    dataset = paper_shape(args.segments)
    side_by_side = Limits(calls_in_flight=args.calls, open_trajectories=args.open)
    print(
        f"{STREAMS} lanes x {args.segments} segments, {len(dataset.anchors)} trajectories; {args.calls} calls in "
        f"flight, {args.open} open trajectories; one simulated second takes {1000 / args.speedup:g} ms; "
        f"{os.cpu_count()} cores"
    )
    figures = anyio.run(run, dataset, side_by_side, args.speedup)
    models, wall_s = figures.models, figures.wall_s
    assert (figures.ended.trajectories, figures.ended.unjudged) == (len(dataset.anchors), 0)
    longest_s, all_s = max(models.ingest_s.values()), models.total_s
    critical_s = max(longest_s, all_s / args.calls) / args.speedup
    print(
        f"{models.calls} calls, {all_s:,.0f} simulated s; longest lane's ingest {longest_s:,.0f} s, "
        f"all calls / {args.calls} = {all_s / args.calls:,.0f} s"
    )
    print(
        f"side by side: {wall_s:.2f} s (process busy {figures.cpu_s / wall_s:.0%}, "
        f"sleeps {models.late_s / models.calls * 1e3:.1f} ms late, at most {models.most} calls at once)"
    )
    print(f"critical path {critical_s:.2f} s: ratio {wall_s / critical_s:.3f} (goal <= 1.15)")
    print(
        f"calls alone, one after the other {all_s / args.speedup:.1f} s: {all_s / args.speedup / wall_s:.1f} times"
    )
    if args.part:
        part = first_segments(dataset, args.part)
        limits = Limits(open_trajectories=1, calls_in_flight=1, unreleased_segments=1, segments_ahead=1)
        alone = anyio.run(run, part, limits, args.speedup)
        scaled_s = alone.wall_s * all_s / alone.models.total_s
        print(
            f"one at a time: {len(part.anchors)} trajectories {alone.wall_s:.2f} s "
            f"({alone.wall_s * args.speedup / alone.models.total_s:.3f} of their calls), "
            f"scaled to all {scaled_s:.1f} s: {scaled_s / wall_s:.1f} times (goal >= 60)"
        )


if __name__ == "__main__":
    main()
