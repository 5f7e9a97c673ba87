"""Real brokers: what a client can do with them, and that they start, fail, come back and leave nothing."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError, for_code
from anyio import to_thread

from dev.kafka.cluster import ADMIN, GUEST, Cluster, ClusterError, main, named, start
from dev.kafka.processes import port_is_free
from dev.kafka.wire import metadata

YEARS_AGO_MS = 1_712_900_000_000  # April 2024: the days that EgoLife recorded


@pytest.fixture(scope="module")
def secured(kafka_data: Path) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EGOSTREAM_KAFKA_GUEST_PASSWORD", "a-guest-by-the-environment")
        cluster = start("secured", sasl=True, data=kafka_data)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def three(kafka_data: Path) -> Iterator[Cluster]:
    cluster = start("three", brokers=3, data=kafka_data)
    yield cluster
    cluster.stop()


def login(cluster: Cluster, user: str, password: str | None = None) -> dict[str, Any]:
    """Options for aiokafka's clients of a secured cluster."""
    return {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": password or cluster.password(user),
        "ssl_context": ssl.create_default_context(cafile=str(cluster.ca_file)),
    }


async def create(topic: str, partitions: int = 1, copies: int = 1, **options: Any) -> None:
    async with AsyncExitStack() as stack:
        admin = AIOKafkaAdminClient(**options)
        await admin.start()
        stack.push_async_callback(admin.close)
        answer = await admin.create_topics([NewTopic(topic, partitions, copies)])
        for _, code, message in answer.topic_errors:
            if code:
                raise for_code(code)(message)


async def send(topic: str, values: list[bytes], **options: Any) -> None:
    """Send values in order to partition 0, each acknowledged before the next."""
    producer = AIOKafkaProducer(acks="all", **options)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(producer.stop)
        await producer.start()
        for number, value in enumerate(values):
            await producer.send_and_wait(
                topic,
                value,
                partition=0,
                key=b"A1_JAKE",
                timestamp_ms=YEARS_AGO_MS + number,
                headers=[("kind", b"observation"), ("kind", b"again"), ("empty", b"")],
            )


async def read(topic: str, count: int, **options: Any) -> list[Any]:
    consumer = AIOKafkaConsumer(auto_offset_reset="earliest", **options)
    consumer.assign([TopicPartition(topic, 0)])
    async with AsyncExitStack() as stack:
        stack.push_async_callback(consumer.stop)
        await consumer.start()
        with anyio.fail_after(60):
            return [await consumer.getone() for _ in range(count)]


async def test_records_come_back_with_headers_key_and_years_old_stamps(kafka_broker: Cluster) -> None:
    to = {"bootstrap_servers": kafka_broker.bootstrap}
    await create("cluster-records", **to)
    await send("cluster-records", [b"one", b"two"], **to)
    got = await read("cluster-records", 2, **to)
    assert [(r.key, r.value, r.timestamp - YEARS_AGO_MS) for r in got] == [
        (b"A1_JAKE", b"one", 0),
        (b"A1_JAKE", b"two", 1),
    ]
    assert got[0].headers == (("kind", b"observation"), ("kind", b"again"), ("empty", b""))


async def test_topics_keep_old_records_and_ask_for_two_copies_of_three(three: Cluster) -> None:
    options = {"bootstrap_servers": three.bootstrap}
    await create("settings", copies=3, **options)
    admin = AIOKafkaAdminClient(**options)
    await admin.start()
    try:
        settings: dict[str, str] = {}
        with anyio.fail_after(30):
            while not settings:  # whichever broker is asked may not have heard of the topic yet
                (answer,) = await admin.describe_configs(
                    [ConfigResource(ConfigResourceType.TOPIC, "settings")]
                )
                settings = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    finally:
        await admin.close()
    assert settings["retention.ms"] == "-1"
    assert settings["min.insync.replicas"] == "2"


def test_status_tells_where_the_broker_is_and_that_it_answers(
    kafka_broker: Cluster, kafka_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--name", "shared", "--data", str(kafka_data)]
    assert main(["status", *where, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["bootstrap"] == kafka_broker.bootstrap
    (broker,) = shown["brokers"]
    assert broker["running"]
    assert broker["sees"] == [1]
    assert psutil.Process(broker["pid"]).is_running()
    assert main(["status", *where]) == 0
    assert kafka_broker.bootstrap in capsys.readouterr().out


def test_a_running_cluster_is_started_once_and_never_as_another_one(
    kafka_broker: Cluster, kafka_data: Path
) -> None:
    before = kafka_broker.status()
    assert start("shared", data=kafka_data).status() == before
    with pytest.raises(ClusterError, match=r"has 1 broker\(s\), without SASL"):
        start("shared", brokers=3, data=kafka_data)


async def test_three_brokers_lose_one_to_kill_9_and_go_on(three: Cluster, kafka_broker: Cluster) -> None:
    for cluster in (three, kafka_broker):  # side by side
        await to_thread.run_sync(cluster.wait_ready)
    to = {"bootstrap_servers": three.bootstrap}
    await create("survives", copies=3, **to)
    values = [str(number).encode() for number in range(30)]
    await send("survives", values[:10], **to)

    await to_thread.run_sync(partial(three.kill, 2))
    assert [broker.running for broker in three.status()] == [True, False, True]
    others = [broker for broker in three.state.brokers if broker.id != 2]
    for broker in others:
        assert set(metadata(broker.port, 10).brokers) >= {1, 3}
    await send("survives", values[10:20], **to)

    await to_thread.run_sync(partial(three.restart, 2))
    assert [broker.running for broker in three.status()] == [True] * 3
    await send("survives", values[20:], **to)
    assert [r.value for r in await read("survives", 30, **to)] == values
    await all_in_sync("survives", {1, 2, 3}, **to)


async def all_in_sync(topic: str, copies: set[int], **options: Any) -> None:
    admin = AIOKafkaAdminClient(**options)
    await admin.start()
    try:
        with anyio.fail_after(60):
            while True:
                (described,) = await admin.describe_topics([topic])
                if set(described["partitions"][0]["isr"]) == copies:
                    return
                await anyio.sleep(0.2)
    finally:
        await admin.close()


async def test_scram_lets_in_who_has_the_password_and_admin_alone_has_rights(secured: Cluster) -> None:
    await create("secret", **login(secured, ADMIN))
    await send("secret", [b"kept"], **login(secured, ADMIN))
    assert [r.value for r in await read("secret", 1, **login(secured, ADMIN))] == [b"kept"]

    with pytest.raises(TopicAuthorizationFailedError):
        await send("secret", [b"refused"], enable_idempotence=False, **login(secured, GUEST))
    with pytest.raises(TopicAuthorizationFailedError):
        await create("of-a-guest", **login(secured, GUEST))


async def test_wrong_passwords_and_plain_connections_are_refused(
    secured: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="aiokafka")  # a log of ours keeps it quiet in this process
    with pytest.raises(KafkaConnectionError):
        await create("wrong", **login(secured, ADMIN, "not-the-password"))
    assert "SaslAuthenticationFailed" in caplog.text  # this, and not the network, was the reason
    caplog.clear()
    stranger = login(secured, ADMIN) | {"ssl_context": ssl.create_default_context()}
    with pytest.raises(KafkaConnectionError):
        await create("stranger", **stranger)
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
    with pytest.raises(KafkaConnectionError):
        await create("plain", bootstrap_servers=secured.bootstrap)


def test_secrets_are_the_owners_alone_and_never_shown(
    secured: Cluster, kafka_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert secured.password(GUEST) == "a-guest-by-the-environment"
    secrets = [secured.password(user) for user in (ADMIN, GUEST, "keystore")]
    for extra in ([], ["--json"]):
        assert main(["status", "--name", "secured", "--data", str(kafka_data), *extra]) == 0
    shown = capsys.readouterr()
    command_line = " ".join(psutil.Process(secured.status()[0].pid).cmdline())
    assert not [secret for secret in secrets if secret in shown.out + shown.err + command_line]
    folder = secured.folder.path
    assert folder.stat().st_mode & 0o777 == 0o700
    holding = [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.stat().st_size < 1_000_000
        and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]
    assert {path.name for path in holding} == {"credentials.json", "server.properties"}
    assert {path.stat().st_mode & 0o777 for path in holding} == {0o600}


async def test_kept_data_are_served_again_on_a_new_port_where_the_old_one_is_taken(
    kafka_data: Path, unused_listener: Any
) -> None:
    cluster = await to_thread.run_sync(partial(start, "kept", data=kafka_data))
    await create("kept", bootstrap_servers=cluster.bootstrap)
    await send("kept", [b"still here"], bootstrap_servers=cluster.bootstrap)
    old = cluster.state.brokers[0]
    await to_thread.run_sync(partial(cluster.stop, keep=True))
    assert not psutil.pid_exists(old.pid)  # nor as one that nobody waited for
    assert [broker.running for broker in cluster.status()] == [False]
    unused_listener(old.port)

    await to_thread.run_sync(partial(start, "kept", data=kafka_data))
    assert cluster.state.brokers[0].port != old.port
    (record,) = await read("kept", 1, bootstrap_servers=cluster.bootstrap)
    assert record.value == b"still here"

    ports, pid = cluster.state.brokers[0].ports, cluster.state.brokers[0].pid
    await to_thread.run_sync(cluster.stop)
    assert not psutil.pid_exists(pid)
    assert not cluster.folder.path.exists()
    assert all(port_is_free(port) for port in ports)


@pytest.fixture
def unused_listener() -> Iterator[Any]:
    """Makes a port taken."""
    sockets = []

    def listen(port: int) -> None:
        sockets.append(socket.create_server(("127.0.0.1", port)))

    yield listen
    for taken in sockets:
        taken.close()


def test_the_script_needs_nothing_but_python(kafka_broker: Cluster, kafka_data: Path) -> None:
    script = Path(named.__code__.co_filename).with_name("cluster.py")
    done = subprocess.run(
        [sys.executable, "-I", str(script), "status", "--name", "shared", "--data", str(kafka_data)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert kafka_broker.bootstrap in done.stdout
