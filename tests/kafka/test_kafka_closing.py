"""Closing while sends are under way, the broker up or killed: nothing is left that asyncio would complain of."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import anyio
import anyio.lowlevel

from dev.kafka.brokers import Cluster
from simulator.errors import LogError
from simulator.log.kafka import KafkaLog
from simulator.log.kafka_client import discard_producer, start_producer
from simulator.log.kafka_producer import build_batches, place_records, send_batches
from tests.kafka.helpers import give_up_after, url
from tests.log.helpers import record

ROUNDS = 25


class Complaints:
    """What asyncio would print: exceptions that nobody has looked at."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        asyncio.get_running_loop().set_exception_handler(self._hear)

    def _hear(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.heard.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def check(self) -> None:
        await anyio.sleep(0.05)
        gc.collect()  # asyncio complains when such a future goes
        await anyio.sleep(0.05)
        assert self.heard == []


async def send_and_discard(log: KafkaLog, rounds: int, *, after_s: float) -> None:
    """Many batches for one partition, one on its way and the others behind it; then give the producer up."""
    options = {**log.options, "acks": "all", "enable_idempotence": True}
    records = [record("a", b"x" * 900, partition=0) for _ in range(3000)]
    placed = await place_records(log.admin, records)
    for number in range(rounds):
        producer = await start_producer(log.config, "start to append", options)
        batches = await build_batches(producer, placed)
        assert len(batches) > 20
        with anyio.move_on_after(after_s * number):
            await send_batches(producer, log.config.prefix, batches)
        await discard_producer(producer)


async def test_a_producer_is_given_up_while_it_sends(kafka_broker: Cluster) -> None:
    complaints = Complaints()
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1})
        await send_and_discard(log, ROUNDS, after_s=0.002)
        await complaints.check()


async def test_a_log_is_closed_while_it_appends_and_its_broker_is_killed(own_broker: Cluster) -> None:
    complaints = Complaints()
    records = [record("a", b"x" * 900, partition=p) for p in range(2) for _ in range(4000)]
    async with KafkaLog.open(url(own_broker)) as log:
        await log.create_topics({"a": 2, "control": 1})
        async with (
            log.subscribe(["control"], group="g", exclusive=True) as subscription,
            anyio.create_task_group() as tasks,
        ):

            async def append(by: Any) -> None:
                try:
                    while True:
                        await by.append(records)
                except LogError:
                    pass  # its broker is away: what is asked here is how that ends

            await subscription.guard(["a"])
            give_up_after(log, 3000)
            for by in (log, log, subscription):
                tasks.start_soon(append, by)
            await anyio.sleep(0.3)
            await anyio.to_thread.run_sync(own_broker.kill, 1)
            await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
    await complaints.check()


async def test_a_producer_is_given_up_while_a_batch_waits_to_be_sent_again(own_broker: Cluster) -> None:
    complaints = Complaints()
    async with KafkaLog.open(url(own_broker)) as log, anyio.create_task_group() as tasks:
        await log.create_topics({"a": 1})
        placed = await place_records(log.admin, [record("a", b"x" * 900, partition=0) for _ in range(300)])
        options = {**log.options, "acks": "all", "enable_idempotence": True}
        producer = await start_producer(log.config, "start to append", options)
        batches = await build_batches(producer, placed)
        await anyio.to_thread.run_sync(own_broker.kill, 1)
        give_up_after(log, 3000)
        tasks.start_soon(send_batches, producer, log.config.prefix, batches)
        queues = producer._message_accumulator._batches
        with anyio.fail_after(60):
            while not any(batch.retry_count for queue in queues.values() for batch in queue):
                await anyio.lowlevel.checkpoint()  # it stays there for a turn of the loop
        tasks.cancel_scope.cancel()
        await discard_producer(producer)
    await complaints.check()
