"""What a group's broker answers while it starts, or the group moves, and what aiokafka makes of it, ends no member and
leaves none behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aiokafka.errors as kafka_errors
import anyio
import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.protocol.group import (
    HeartbeatRequest,
    HeartbeatResponse_v1,
    JoinGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse_v3,
)

from dev.kafka.brokers import Cluster
from simulator.errors import LogError
from simulator.log.kafka import KafkaLog
from simulator.log.kafka_membership import assignor_for
from simulator.log.kafka_subscription import KafkaSubscription
from tests.kafka.helpers import give_up_after, url
from tests.log.helpers import DEADLINE_S, places, read, record, settle, values


@pytest.mark.parametrize("exclusive", [False, True])
def test_partitions_are_shared_although_the_consumers_broker_does_not_know_them(exclusive: bool) -> None:
    assignor = assignor_for({"a": 3, "b": 3}, exclusive, "p.")
    members = {name: assignor.metadata(["p.a", "p.b"]) for name in ("first", "second")}
    shares = assignor.assign(ClusterMetadata(), members)
    both = {name: dict(share.assignment) for name, share in shares.items()}
    if exclusive:
        assert both == {"first": {"p.a": [0, 1, 2], "p.b": [0, 1, 2]}, "second": {}}
    else:
        assert both == {"first": {"p.a": [0, 1], "p.b": [0, 1]}, "second": {"p.a": [2], "p.b": [2]}}
    assert assignor.name == assignor_for({"b": 1, "a": 1}, exclusive).name


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (SyncGroupRequest, SyncGroupResponse_v3(0, kafka_errors.CoordinatorLoadInProgressError.errno, b"")),
        (HeartbeatRequest, HeartbeatResponse_v1(0, kafka_errors.UnknownError.errno)),
    ],
    ids=["sync", "heartbeat"],
)
async def test_a_member_whose_group_answers_what_aiokafka_does_not_know_joins_again(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch, asked: type[Any], answer: Any
) -> None:
    send, answered = GroupCoordinator._send_req, SimpleNamespace(times=0, all=3)

    async def send_req(self: GroupCoordinator, request: Any) -> Any:
        if isinstance(request, asked) and answered.times < answered.all:
            answered.times += 1
            return answer
        return await send(self, request)

    monkeypatch.setattr(GroupCoordinator, "_send_req", send_req)
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 2})
        async with log.subscribe(["a"], group="g") as first:
            await settle([first], places(a=2))
            answered.all += 3
            async with log.subscribe(["a"], group="g") as second:
                with anyio.fail_after(DEADLINE_S):
                    while answered.times < answered.all:
                        await settle([first, second], places(a=2))
                await log.append([record("a", b"%d" % p, partition=p) for p in (0, 1)])
                came: set[bytes] = set()
                with anyio.fail_after(DEADLINE_S):
                    while came < {b"0", b"1"}:
                        came.update(values(await settle([first, second], places(a=2))))


async def test_a_member_that_did_not_poll_for_long_joins_again_when_it_does(kafka_broker: Cluster) -> None:
    async with KafkaLog.open(url(kafka_broker, "max_poll_interval_ms=500")) as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"], group="g") as subscription:
            assert isinstance(subscription, KafkaSubscription)
            membership = subscription._membership
            assert membership is not None
            with anyio.fail_after(DEADLINE_S):
                while not membership.is_sharing:
                    # aiokafka goes on counting a poll that was broken off, as when the group shared in the meantime
                    subscription._consumer._subscription._fetch_count = 0
                    await anyio.sleep(0.01)
            await log.append([record("a", b"x")])
            assert values(await read(subscription, 1)) == [b"x"]


async def test_a_group_that_always_refuses_is_given_up_however_slowly_it_does(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, refuses = GroupCoordinator._send_req, False

    async def send_req(self: GroupCoordinator, request: Any) -> Any:
        if isinstance(request, JoinGroupRequest) and refuses:
            await anyio.sleep(0.6)  # more than a poll, which ends without an error
            return SimpleNamespace(error_code=81)  # GROUP_MAX_SIZE_REACHED, which aiokafka does not know
        return await send(self, request)

    monkeypatch.setattr(GroupCoordinator, "_send_req", send_req)
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"], group="g") as subscription:
            assert isinstance(subscription, KafkaSubscription)
            refuses = True
            give_up_after(log, 1500)
            subscription._consumer._coordinator.request_rejoin()

            async def read_on() -> None:
                while True:
                    await subscription.poll(timeout_s=0.2)

            with anyio.fail_after(DEADLINE_S), pytest.raises(LogError, match=r"can't read a: .*UnknownError"):
                await read_on()
