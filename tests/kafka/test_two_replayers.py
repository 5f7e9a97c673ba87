"""Two replayers of one run on a broker, and what it refuses of one that was superseded."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest
from aiokafka import TopicPartition as KafkaPartition

from dev.kafka.brokers import Cluster
from simulator.errors import FencedError, LogError
from simulator.log import TopicPartition, open_log
from simulator.log.kafka import KafkaLog
from simulator.log.kafka_fence import FencedAppender, take_identity
from simulator.log.kafka_producer import place_records
from simulator.runfolder import NOTE_NAME
from tests.kafka.helpers import url
from tests.log.helpers import DEADLINE_S, held, record
from tests.workers.fleet import environment
from tests.workers.test_two_replayers import TRIALS, replay_command


@TRIALS
def test_on_a_broker(kafka_broker: Cluster, tmp_path: Path, trial: Callable[..., None]) -> None:
    log = url(kafka_broker)
    once = tmp_path / "once"
    run = _run_id(log, once)
    trial(tmp_path, log, run, lambda i: replay_command(log, tmp_path / f"out{i}", 200))


def _run_id(log: str, out: Path) -> str:
    """The id that the replay will have: that of the same replay on a log of its own."""
    command = replay_command(str(out / "log.db"), out, float("inf"))
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=60)
    run: str = msgspec.json.decode((out / NOTE_NAME).read_bytes())["run"]
    return run


async def test_a_broker_refuses_plain_batches_of_a_superseded_owner(kafka_broker: Cluster) -> None:
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 2})
        places = [KafkaPartition(f"{log.config.prefix}a", p) for p in range(2)]
        name = f"{log.config.prefix}fence-{secrets.token_hex(4)}"

        async def owner() -> FencedAppender:
            identity = await take_identity(log.config, log.options, name, places)
            return FencedAppender(log.config, log.options, log.ends, identity, nothing_to_prove)

        async def append(appender: FencedAppender, *values: bytes) -> None:
            for partition in range(2):
                records = [record("a", value, partition=partition) for value in values]
                await appender.append(await place_records(log.admin, records))

        first = await owner()
        await append(first, b"1", b"2")
        await append(first, b"3")
        second = await owner()
        with pytest.raises(FencedError):
            await append(first, b"late")
        with pytest.raises(LogError, match="after an append that failed"):
            await append(first, b"later")
        await append(second, b"4")
        late = await owner()  # had no part of either partition yet
        with pytest.raises(FencedError):
            await append(second, b"late too")
        for appender in (first, second, late):
            await appender.aclose()
        assert await held(log, "a") == {p: [b"1", b"2", b"3", b"4"] for p in range(2)}


async def test_only_the_one_at_work_appends(kafka_broker: Cluster) -> None:
    place = url(kafka_broker)
    async with open_log(place) as log, open_log(place) as other:
        await log.create_topics({"a": 1, "control": 1})
        async with log.subscribe(["control"], group="g", exclusive=True) as first:
            await first.guard(["a"])
            await first.append([record("a", b"1")])
            with pytest.raises(LogError, match="only guarded topics"):
                await first.append([record("control", b"no")])
            async with other.subscribe(["control"], group="g", exclusive=True) as second:
                with pytest.raises(FencedError):
                    await second.guard(["a"])
                await first.append([record("a", b"2")])
        async with other.subscribe(["control"], group="g", exclusive=True) as second:
            with anyio.fail_after(DEADLINE_S):
                while TopicPartition("control", 0) not in second.assignment:
                    await second.poll()
            await second.guard(["a"])
            await second.append([record("a", b"3")])
        assert await held(log, "a") == {0: [b"1", b"2", b"3"]}


async def nothing_to_prove() -> None:
    pass
