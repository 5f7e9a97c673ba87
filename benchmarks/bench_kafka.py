"""Replay of a week over Kafka against plain aiokafka loops, on one broker in one run.

    python benchmarks/bench_kafka.py [DATA] [--rounds 5] [--log kafka://host:port]

DATA is a dataset path (default: as `bench_replay.py`). Without --log a broker of its own is started (Java and
Maven are needed). Four plain loops are measured, in turns with ours, all idempotent with acks=all, into fresh
topics of one partition; they have the records' bytes ready (encoded once, before), ours encodes:

- batches: `create_batch`/`send_batch`, 1000 records each, waiting for each (as aiokafka's documentation does);
- batches ahead: the same, without waiting for one before the next is made;
- send: awaits `send()` for every record, and all deliveries at the end;
- batches and back: as `batches ahead`, while a consumer reads the same bytes back.

`append` is the replay into the log: reading the lifelog, encoding, headers, stamps, batches; `log alone` is
`KafkaLog.append` of the ready records, without the replay and the encoding. `end to end` is the replay into a null
agent until all its deltas are in the log, each exactly once. 1.0 means as fast as the plain loop.

No side pays for its start: producers are connected, consumers have their partitions, and the agent has said that
it is ready, before time begins; `append` is what the replay itself says that it took (`ReplayStats.wall_s`). Since
other processes of the machine make wall time noisy, CPU seconds of this process are given too.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import aiokafka
import anyio
from anyio import to_thread

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from adapters.memory import LaneContext, MemorySystem
from adapters.registry import open_system
from benchmarks.bench_replay import default_data
from consumers.agent import run_agent
from dev.kafka.brokers import start
from producers.datasets import read_dataset
from producers.lanes import ReplayOptions
from producers.lifelog import Dataset
from producers.replayer import replay
from producers.timeline import timeline
from simulator.clock import Clock
from simulator.events import DeltaEvent, ReadyEvent, RunStartedEvent, decode
from simulator.intake import read_to_end
from simulator.log import Log, Record, open_log
from simulator.log.kafka_config import parse_kafka_url
from simulator.topics import Recorder, Topics
from simulator.waits import agent_role

BATCH = 1000
RATIOS = (
    "append / batches",
    "append / batches ahead",
    "append / send",
    "log alone / batches",
    "end to end / batches and back",
)


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float


def new_run() -> str:
    return f"bench{secrets.token_hex(4)}"


def run_of(dataset: Dataset, run: str) -> RunStartedEvent:
    return RunStartedEvent(
        id="run/started",
        run=run,
        event_time_us=0,
        identity={},
        streams=tuple(dataset.lifelogs),
        segments={name: len(lifelog.segments) for name, lifelog in dataset.lifelogs.items()},
        systems=("null",),
        privileged=(),
        anchors=0,
        partitions=1,
        isolation="branch",
        required=(agent_role("null"),),
    )


def encoded(dataset: Dataset) -> list[Record]:
    """The week's records, ready to send."""
    recorder = Recorder.for_run(run_of(dataset, "bench"))
    events = list(timeline(list(dataset.lifelogs.values()), "bench"))
    return recorder.records(events)


@asynccontextmanager
async def plain_producer(url: str) -> AsyncIterator[tuple[aiokafka.AIOKafkaProducer, str]]:
    """A producer and a fresh topic."""
    topic = f"{new_run()}.plain"
    async with open_log(url) as log:
        await log.create_topics({topic: 1})
    options = parse_kafka_url(url).client_options()
    producer = aiokafka.AIOKafkaProducer(
        **options, acks="all", enable_idempotence=True, max_batch_size=1_000_000
    )
    await producer.start()
    try:
        await producer.partitions_for(topic)
        yield producer, topic
    finally:
        await producer.stop()


async def send_batches(
    producer: aiokafka.AIOKafkaProducer,
    topic: str,
    records: Sequence[tuple[int, bytes, bytes, list]],
    ahead: bool,
) -> None:
    delivered = []
    for first in range(0, len(records), BATCH):
        batch = producer.create_batch()
        for stamp_ms, key, value, headers in records[first : first + BATCH]:
            batch.append(timestamp=stamp_ms, key=key, value=value, headers=headers)
        delivered.append(await producer.send_batch(batch, topic, partition=0))
        if not ahead:
            await delivered.pop()
    for future in delivered:
        await future


def plain_records(records: Sequence[Record]) -> list[tuple[int, bytes, bytes, list]]:
    return [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in records]


async def batches(url: str, records: Sequence[Record], ahead: bool) -> float:
    ready = plain_records(records)
    async with plain_producer(url) as (producer, topic):
        began_s = time.perf_counter()
        await send_batches(producer, topic, ready, ahead)
        return time.perf_counter() - began_s


async def send(url: str, records: Sequence[Record]) -> float:
    ready = plain_records(records)
    async with plain_producer(url) as (producer, topic):
        began_s = time.perf_counter()
        delivered = [
            await producer.send(topic, value, key, 0, stamp_ms, headers)
            for stamp_ms, key, value, headers in ready
        ]
        for future in delivered:
            await future
        return time.perf_counter() - began_s


async def batches_and_back(url: str, records: Sequence[Record]) -> float:
    ready = plain_records(records)
    async with plain_producer(url) as (producer, topic):
        consumer = aiokafka.AIOKafkaConsumer(**parse_kafka_url(url).client_options())
        place = aiokafka.TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.start()
        consumer.seek(place, 0)
        try:
            began_s = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send_batches, producer, topic, ready, True)
                missing = len(ready)
                while missing:
                    for got in (await consumer.getmany(timeout_ms=1000)).values():
                        missing -= len([record.value for record in got])
            return time.perf_counter() - began_s
        finally:
            await consumer.stop()


async def log_alone(url: str, records: Sequence[Record]) -> float:
    """Seconds of appending ready records."""
    run = new_run()
    async with open_log(url) as log:
        await log.create_topics({run: 1})
        ready = [record._replace(topic=run) for record in records]
        await log.append([ready[0]])  # the producer is there, as the plain loops' is
        began_s = time.perf_counter()
        for first in range(0, len(ready), BATCH):
            await log.append(ready[first : first + BATCH])
        return time.perf_counter() - began_s


async def connect_producer(log: Log) -> None:
    """Append to a topic of its own: from then on the log's producer is there, as the plain loops' is."""
    topic = f"{new_run()}.first"
    await log.create_topics({topic: 1})
    await log.append([Record(topic, b"", b"", 0)])


async def wait_ready(log: Log, topics: Topics) -> None:
    """Until the agent has said that it is ready."""
    async with log.subscribe([topics.control]) as control:
        while not any(isinstance(decode(r.value), ReadyEvent) for r in await control.poll()):
            pass


class StartingClock(Clock):
    """Knows when the replay began: then it is set to the first event."""

    began_s = math.nan

    def jump(self, t_us: int) -> None:
        self.began_s = time.perf_counter()
        super().jump(t_us)


async def append(url: str, dataset: Dataset, max_batch: int) -> float:
    """Seconds of the replay into the log, from its first event to its end, nobody else being there."""
    started = run_of(dataset, new_run())
    topics = Topics.of(started.run)
    async with open_log(url) as log:
        await log.create_topics(topics.partitions(1))
        await connect_producer(log)
        stats = await replay(
            log,
            Recorder.for_run(started),
            list(dataset.lifelogs.values()),
            Clock(0, math.inf),
            ReplayOptions(max_batch=max_batch),
        )
        return stats.wall_s


async def end_to_end(url: str, dataset: Dataset, max_batch: int) -> float:
    """Seconds from the first event of the replay, the agent being ready and the replayer at its place, until every
    delta is in the log."""
    started = run_of(dataset, new_run())
    topics = Topics.of(started.run)
    segments = sum(started.segments.values())

    def open_memory(lane: str, stream: str) -> MemorySystem:
        return open_system("null", LaneContext(lane=lane, stream=stream))

    async with open_log(url) as log:
        await log.create_topics(topics.partitions(1))
        lanes = {stream: [f"null@{stream}"] for stream in started.streams}
        options = ReplayOptions(required=started.required, lanes=lanes, max_batch=max_batch)
        lifelogs = list(dataset.lifelogs.values())
        async with anyio.create_task_group() as roles, log.subscribe([topics.deltas]) as deltas:
            roles.start_soon(run_agent, log, started, "null", open_memory)
            await wait_ready(log, topics)
            clock = StartingClock(0, math.inf)
            roles.start_soon(partial(replay, log, Recorder.for_run(started), lifelogs, clock, options))
            missing = segments
            while missing:
                missing -= len(await deltas.poll())
            spent_s = time.perf_counter() - clock.began_s
            roles.cancel_scope.cancel()
        found = [decode(record.value) async for record in read_to_end(log, [topics.deltas])]
    ids = [event.id for event in found if isinstance(event, DeltaEvent)]
    assert len(ids) == len(set(ids)) == segments
    return spent_s


async def measure(url: str, dataset: Dataset, rounds: int, max_batch: int) -> dict[str, list[Spent]]:
    records = await to_thread.run_sync(encoded, dataset)
    gc.collect()
    gc.freeze()  # the dataset is no part of what is measured: no side pays for scanning it
    spent: dict[str, list[Spent]] = {}
    for _ in range(rounds):
        for name, side in (
            ("batches", partial(batches, url, records, False)),
            ("batches ahead", partial(batches, url, records, True)),
            ("log alone", partial(log_alone, url, records)),
            ("append", partial(append, url, dataset, max_batch)),
            ("send", partial(send, url, records)),
            ("batches and back", partial(batches_and_back, url, records)),
            ("end to end", partial(end_to_end, url, dataset, max_batch)),
        ):
            began_cpu_s = time.process_time()
            wall_s = await side()
            spent.setdefault(name, []).append(Spent(wall_s, time.process_time() - began_cpu_s))
    return spent


def report(spent: dict[str, list[Spent]], records: int) -> None:
    for name, times in spent.items():
        rates = sorted(records / s.wall_s for s in times)
        print(
            f"{name:18} {statistics.median(s.wall_s for s in times):6.2f} s  "
            f"{statistics.median(rates):9,.0f} records/s ({rates[0]:,.0f} to {rates[-1]:,.0f}), "
            f"{statistics.median(s.cpu_s for s in times):.2f} s of CPU, start and end included"
        )
    for ratio in RATIOS:
        ours, _, plain = ratio.partition(" / ")
        ratios = [p.wall_s / o.wall_s for o, p in zip(spent[ours], spent[plain], strict=True)]
        print(f"{ratio}: {statistics.median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", default=default_data())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-batch", type=int, default=ReplayOptions().max_batch)
    parser.add_argument("--log", help="a broker to use, instead of one of its own")
    arguments = parser.parse_args()
    dataset = read_dataset(arguments.data)
    records = sum(len(lifelog.observations) + len(lifelog.segments) for lifelog in dataset.lifelogs.values())
    print(f"{arguments.data}: {records:,} records")
    if arguments.log:
        report(anyio.run(measure, arguments.log, dataset, arguments.rounds, arguments.max_batch), records)
        return
    with tempfile.TemporaryDirectory() as folder:
        cluster = start("bench", data=Path(folder))
        try:
            url = f"kafka://{cluster.bootstrap}"
            report(anyio.run(measure, url, dataset, arguments.rounds, arguments.max_batch), records)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
