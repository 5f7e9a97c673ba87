"""What a group's member wrote is not written again: by it after another was at work in between, or behind its
successor's back."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CoordinatorLoadInProgressError, KafkaConnectionError, NotCoordinatorError
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3
from anyio.lowlevel import checkpoint

from dev.kafka.brokers import Cluster
from simulator.errors import FencedError
from simulator.events import VerdictEvent
from simulator.log import TopicPartition
from simulator.log.kafka import KafkaLog
from simulator.log.kafka_subscription import KafkaSubscription
from simulator.log.kafka_transactions import Transactor
from simulator.outbox import Outbox
from simulator.ownership import Ownership
from simulator.topics import Recorder, Topics
from tests.kafka.helpers import url
from tests.log.helpers import DEADLINE_S, held, places, record

TOPICS = Topics.of("run")
STREAMS = {"zero": 0, "one": 1}
ZERO = TopicPartition("a", 0)
OUT = TopicPartition("out", 0)


def verdict(stream: str, name: str) -> VerdictEvent:
    return VerdictEvent(
        id=name,
        run="run",
        event_time_us=0,
        stream=stream,
        lane=f"system@{stream}",
        trajectory=name,
        anchor=name,
        metric="fidelity",
        outcome="pass",
    )


async def test_of_many_partitions_the_one_that_was_lost_makes_no_other_be_written_twice(
    kafka_broker: Cluster,
) -> None:
    """A flush is one transaction for each partition number. Another member takes one of them over meanwhile."""
    recorder = Recorder("run", STREAMS)
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics(TOPICS.partitions(2))
        async with (
            log.subscribe([TOPICS.deltas], group="g") as subscription,
            anyio.create_task_group() as tasks,
        ):
            ownership, outbox = Ownership(subscription, [TOPICS.deltas]), Outbox(subscription, recorder)
            gained, _ = ownership.change()
            first = await ownership.take_over(gained)
            assert first is not None
            outbox.offsets.begin_at(first)
            other = Transactor(log.config, log.options, log.admin, "g", STREAMS["one"])
            await other.start()
            outbox.put(verdict("zero", "kept"), owner=STREAMS["zero"])
            outbox.put(verdict("one", "lost"), owner=STREAMS["one"])
            tasks.start_soon(outbox.flush_forever)
            lost: frozenset[int] = frozenset()
            with anyio.fail_after(DEADLINE_S):
                while not lost:  # the group knows no other member: it comes back at once
                    await subscription.poll(timeout_s=0.1)
                    _, lost = ownership.change()
            assert lost == {STREAMS["one"]}
            outbox.rebalanced(lost)
            outbox.put(verdict("zero", "next"), owner=STREAMS["zero"])
            await outbox.flush()
            tasks.cancel_scope.cancel()
            await other.aclose()
        written = await held(log, TOPICS.verdicts)
    assert written == {0: [recorder.record(verdict("zero", name)).value for name in ("kept", "next")]}


@pytest.mark.parametrize("step", ["begin_transaction", "commit_transaction"])
async def test_what_failed_is_not_done_again_when_another_has_written_meanwhile(
    kafka_broker: Cluster, step: str
) -> None:
    """A member hears of no fence, but of a broken connection; until it tries again, another is the owner."""
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1, "out": 1})
        async with log.subscribe(["a"], group="g") as subscription:
            assert isinstance(subscription, KafkaSubscription)
            await subscription.transact([], {ZERO: 0})
            assert subscription._membership is not None
            producer = subscription._membership._transactors[0]._producer
            other = Transactor(log.config, log.options, log.admin, "g", 0)

            async def break_off() -> None:
                await other.start()
                await other.run({OUT: [record("out", b"judged")]}, {ZERO: 0})
                await other.aclose()
                raise KafkaConnectionError("the connection is lost")

            setattr(producer, step, break_off)
            with pytest.raises(FencedError):
                await subscription.transact([record("out", b"judged")], {ZERO: 0})
        assert await held(log, "out") == {0: [b"judged"]}


async def test_a_broker_that_does_not_coordinate_the_group_is_not_believed(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for offsets after the group has moved, or before it is loaded, it names none."""
    place = url(kafka_broker)
    send = AIOKafkaAdminClient._send_request
    refused: list[int] = []

    async def refuse(self: Any, request: Any, *where: Any) -> Any:
        if isinstance(request, OffsetFetchRequest) and len(refused) < 2:
            refused.append((NotCoordinatorError, CoordinatorLoadInProgressError)[len(refused)].errno)
            return OffsetFetchResponse_v3(0, [], refused[-1])
        return await send(self, request, *where)

    async with KafkaLog.open(place) as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"], group="g") as subscription:
            await subscription.transact([], {ZERO: 3})
    monkeypatch.setattr(AIOKafkaAdminClient, "_send_request", refuse)
    async with KafkaLog.open(place) as log:  # one that did not commit it
        assert await log.committed("g", ["a"]) == {ZERO: 3}
    assert len(refused) == 2


async def test_what_went_and_came_back_unseen_is_not_written_for(kafka_broker: Cluster) -> None:
    """A member that has no time to poll misses that another had a partition, judged, and left again. It has the same
    verdict ready, and writes it while it takes the partition over."""
    everything = places(a=2)
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 2, "out": 2})
        async with log.subscribe(["a"], group="g") as first:
            assert isinstance(first, KafkaSubscription)
            assert first.gained() == everything
            async with log.subscribe(["a"], group="g") as second:
                (lost,) = second.assignment
                judged = record("out", b"judged", partition=lost.partition)
                await second.transact([judged], {lost: 0})
            membership = first._membership
            assert membership is not None
            with anyio.fail_after(DEADLINE_S):
                while not membership.settled_with(lost):  # noqa: ASYNC110 - told by aiokafka
                    await anyio.sleep(0.01)
            polled: list[frozenset[TopicPartition]] = []

            async def poll() -> None:
                await first.poll(timeout_s=DEADLINE_S)  # returns although there is no record
                polled.append(first.gained())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poll)
                while not first._changing.locked():
                    await checkpoint()
                with pytest.raises(FencedError):
                    await first.transact([judged], dict.fromkeys(everything, 0))
            assert polled == [{lost}]
            await first.transact([record("out", b"next", partition=lost.partition)], {lost: 0})
        assert await held(log, "out") == {lost.partition: [b"judged", b"next"]}
