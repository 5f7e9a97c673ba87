"""While brokers come, go and hand over to each other, they answer what is not so a moment later, and aiokafka takes
some of that for the end. Nobody's work ends with it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import aiokafka.errors as kafka_errors
import anyio
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import BrokerMetadata

from dev.kafka.brokers import Cluster
from simulator.log import TopicPartition, kafka_fence, open_log
from simulator.log.kafka import KafkaLog
from simulator.log.kafka_client import may_pass
from simulator.log.kafka_producer import BATCH_BYTES
from simulator.log.kafka_subscription import KafkaSubscription
from tests.kafka.helpers import give_up_after, url
from tests.log.helpers import DEADLINE_S, held, record

ZERO = TopicPartition("a", 0)
ELSEWHERE = BrokerMetadata(99, "127.0.0.1", 1, None)
"""A broker that is gone, or has not come yet."""


def failing(times: int, error: Callable[[], Exception], go_on: Callable[..., Awaitable[Any]]) -> Any:
    """In the place of an operation: it fails so many times, and goes on. Tells in `left` how many are left."""

    async def attempt(*given: Any, **options: Any) -> Any:
        if attempt.left > 0:  # type: ignore[attr-defined]
            attempt.left -= 1  # type: ignore[attr-defined]
            raise error()
        return await go_on(*given, **options)

    attempt.left = times  # type: ignore[attr-defined]
    return attempt


# --- connections ------------------------------------------------------------------------------------------


async def test_a_first_connection_that_breaks_is_made_again(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = url(kafka_broker)
    bootstrap = failing(2, lambda: kafka_errors.KafkaConnectionError("broken"), AIOKafkaClient.bootstrap)
    monkeypatch.setattr(AIOKafkaClient, "bootstrap", bootstrap)
    async with open_log(place) as log:
        assert await log.topics() == {}
    assert bootstrap.left == 0


async def test_who_coordinates_is_asked_again_where_the_connection_breaks(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka makes a nameless error of it, in the start of a producer as in the middle of a transaction."""
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1, "out": 1})
        found = AIOKafkaClient.coordinator_lookup

        def break_off(times: int) -> Any:
            lookup = failing(times, lambda: kafka_errors.KafkaConnectionError("broken"), found)
            monkeypatch.setattr(AIOKafkaClient, "coordinator_lookup", lookup)
            return lookup

        lookups = [break_off(3)]
        async with log.subscribe(["a"], group="g", exclusive=True) as subscription:
            assert isinstance(subscription, KafkaSubscription)
            assert subscription._membership is not None
            lookups.append(break_off(1))
            subscription._membership._transactors[0]._producer._sender._coordinators.clear()
            await subscription.transact([record("out", b"1")], {ZERO: 0})
            lookups.append(break_off(3))
            await subscription.guard(["out"])
            await subscription.append([record("out", b"2")])
        assert [lookup.left for lookup in lookups] == [0, 0, 0]
        assert await held(log, "out") == {0: [b"1", b"2"]}


async def test_a_mark_that_fails_is_written_again(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The empty transaction by which the replayer shuts out who was before it."""
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1, "out": 1})
        async with log.subscribe(["a"], group="g", exclusive=True) as subscription:
            marks = failing(
                2,
                lambda: kafka_errors.KafkaError("Unexpected error during batch delivery"),
                AIOKafkaProducer.begin_transaction,
            )
            take = kafka_fence.take_identity

            async def take_identity(
                *given: Any,
            ) -> Any:  # the transactions before and after it are another's matter
                with monkeypatch.context() as only_here:
                    only_here.setattr(AIOKafkaProducer, "begin_transaction", marks)
                    return await take(*given)

            monkeypatch.setattr("simulator.log.kafka_subscription.take_identity", take_identity)
            await subscription.guard(["out"])
            await subscription.append([record("out", b"x")])
        assert marks.left == 0
        assert await held(log, "out") == {0: [b"x"]}


@pytest.mark.parametrize(
    "error",
    [
        kafka_errors.KafkaError("Unexpected error during batch delivery"),
        kafka_errors.OutOfOrderSequenceNumber(),
        kafka_errors.UnknownProducerId(),
        kafka_errors.UnknownError(),
        AssertionError("Invalid state transition"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("step", ["begin_transaction", "commit_transaction"])
async def test_a_transaction_whose_producer_failed_is_done_with_another(
    kafka_broker: Cluster, step: str, error: Exception
) -> None:
    async def fail() -> None:
        raise error

    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1, "out": 1})
        async with log.subscribe(["a"], group="g") as subscription:
            assert isinstance(subscription, KafkaSubscription)
            assert subscription._membership is not None
            setattr(subscription._membership._transactors[0]._producer, step, fail)
            await subscription.transact([record("out", b"x")], {ZERO: 1})
        assert await held(log, "out") == {0: [b"x"]}
        assert await log.committed("g", ["a"]) == {ZERO: 1}


def test_what_may_pass_is_told_by_what_it_is_made_of() -> None:
    def made_of(cause: Exception | None) -> Exception:
        error = kafka_errors.KafkaError("unforeseen")
        error.__cause__ = cause
        return error

    broken, forbidden = kafka_errors.KafkaConnectionError(), kafka_errors.GroupAuthorizationFailedError()
    passes = [broken, made_of(broken), made_of(made_of(broken)), made_of(KeyError()), made_of(None)]
    assert all(may_pass(error) for error in [*passes, TimeoutError(), ConnectionResetError()])
    stays = [forbidden, made_of(forbidden), made_of(made_of(forbidden)), kafka_errors.ProducerFenced()]
    assert not any(may_pass(error) for error in [*stays, ValueError()])
    assert may_pass(made_of(kafka_errors.UnknownProducerId()), kafka_errors.UnknownProducerId)


async def test_a_batch_waits_for_its_partitions_leader_longer_than_for_an_answer(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1})
        await log.append([record("a", b"x")])
        leader_of, asked, passed_s = ClusterMetadata.leader_for_partition, 0, 0.0
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s)
        monkeypatch.setattr("aiokafka.producer.message_accumulator.time", clock)

        def leader_for_partition(self: ClusterMetadata, place: Any) -> Any:
            nonlocal asked, passed_s
            asked += 1
            passed_s = 45.0 if asked > 3 else 0.0  # aiokafka waits 40 s for an answer, and the log 60 s
            return leader_of(self, place) if asked > 10 else -1

        monkeypatch.setattr(ClusterMetadata, "leader_for_partition", leader_for_partition)
        await log.append([record("a", bytes([i]) * BATCH_BYTES) for i in range(3)])
        assert [value[0] for value in (await held(log, "a"))[0]] == [ord("x"), 0, 1, 2]


# --- topics -----------------------------------------------------------------------------------------------


async def test_topics_are_made_although_the_broker_that_made_them_is_gone(kafka_broker: Cluster) -> None:
    async with KafkaLog.open(url(kafka_broker)) as log:
        client = log.admin._client._client
        await log.topics()
        client.cluster.controller = ELSEWHERE
        give_up_after(log, 30_000)  # before aiokafka itself stops waiting for it
        await log.create_topics({"a": 1})
        assert await log.topics() == {"a": 1}


async def test_topics_are_made_once_enough_brokers_have_come(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with KafkaLog.open(url(kafka_broker)) as log:
        create, asked = log.admin._client.create_topics, 0

        async def for_too_few(topics: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            for topic in topics:  # the broker's own words for copies that it has no brokers for
                topic.replication_factor = 3 if asked < 4 else -1
                topic.replica_assignments = {}
            return await create(topics, **options)

        monkeypatch.setattr(log.admin._client, "create_topics", for_too_few)
        monkeypatch.setattr("simulator.log.kafka_client.UNKNOWN_FOR_S", DEADLINE_S)
        await log.create_topics({"a": 1})
        assert asked == 4
        assert await log.topics() == {"a": 1}


async def test_a_topic_is_there_where_one_broker_knows_it(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1})
        client, behind = log.admin._client, True
        send = AIOKafkaAdminClient._send_request
        client._client.cluster._brokers[ELSEWHERE.nodeId] = ELSEWHERE

        async def send_request(request: Any, node_id: int | None = None) -> Any:
            if node_id in (ELSEWHERE.nodeId, None) and isinstance(request, MetadataRequest) and behind:
                request, node_id = MetadataRequest([f"not-yet-{request._topics[0]}"]), 1
            return await send(client, request, node_id)

        monkeypatch.setattr(client, "_send_request", send_request)
        assert await log.exists("a")
        assert not await log.exists("b")
        behind = False  # it does not answer at all
        client._client.cluster._brokers[ELSEWHERE.nodeId] = ELSEWHERE
        assert await log.exists("a")
        assert not await log.exists("b")


async def test_a_slow_answer_that_shows_no_topic_is_not_the_last(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = url(kafka_broker)
    monkeypatch.setattr("simulator.log.kafka_admin.UNKNOWN_FOR_S", 0.3)
    async with KafkaLog.open(place) as log, KafkaLog.open(place) as other:
        await log.create_topics({"a": 1})
        describe, asked = other.admin._client.describe_topics, 0

        async def behind() -> list[Any]:
            nonlocal asked
            asked += 1
            if asked == 1:
                await anyio.sleep(0.4)
                return []
            return list(await describe())

        monkeypatch.setattr(other.admin._client, "describe_topics", behind)
        assert await other.end_offsets(["a"]) == {ZERO: 0}
        assert asked > 1
