"""TLS, SASL and rights, on a broker set up so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from aiokafka.protocol.admin import CreateAclsRequest, DescribeAclsRequest

from dev.kafka.brokers import Cluster, start
from dev.kafka.settings import ADMIN, GUEST
from simulator.errors import ConfigError, LogError, StallError
from simulator.log import Log, TopicPartition, open_log
from simulator.log.kafka import KafkaLog
from simulator.topics import Recorder, Topics
from simulator.workers import run_on
from tests.kafka.helpers import url
from tests.log.helpers import read, record, values
from tests.roles.test_conductor import started_with

PROMPTLY_S = 60.0
"""On a busy machine; what is not told at once, is told by the wait of ten minutes that is asked for."""


@pytest.fixture(scope="module")
def secured(kafka_data: Path) -> Iterator[Cluster]:
    cluster = start("secured", sasl=True, data=kafka_data)
    yield cluster
    cluster.stop()


def login(monkeypatch: pytest.MonkeyPatch, user: str, password: str) -> None:
    monkeypatch.setenv("EGOSTREAM_KAFKA_USERNAME", user)
    monkeypatch.setenv("EGOSTREAM_KAFKA_PASSWORD", password)


async def test_everything_works_over_tls_and_scram(
    secured: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EGOSTREAM_KAFKA_USERNAME", ADMIN)
    file = tmp_path / "password"
    file.write_text(secured.password(ADMIN) + "\n")
    place = url(secured, "security=sasl_ssl", f"ca_file={secured.ca_file}", f"password_file={file}")
    async with open_log(place) as log:
        assert secured.password(ADMIN) not in repr(log)
        await log.create_topics({"a": 1})
        await log.append([record("a", b"x")])
        async with log.subscribe(["a"], group="g") as subscription:
            assert values(await read(subscription, 1)) == [b"x"]
            await subscription.transact([record("a", b"y")], {TopicPartition("a", 0): 1})
            assert values(await read(subscription, 1)) == [b"y"]


async def goes(place: str) -> None:
    """A topic, a record and a transaction of a group."""
    async with open_log(place) as log:
        await log.create_topics({"a": 1})
        await log.append([record("a", b"x")])
        async with log.subscribe(["a"], group="g") as subscription:
            assert values(await read(subscription, 1)) == [b"x"]
            await subscription.transact([record("a", b"y")], {TopicPartition("a", 0): 1})


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
async def test_other_mechanisms(secured: Cluster, monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    options = ("security=sasl_ssl", f"ca_file={secured.ca_file}", f"sasl_mechanism={mechanism}")
    login(monkeypatch, ADMIN, secured.password(ADMIN))
    await goes(url(secured, *options))
    login(monkeypatch, ADMIN, secured.password(GUEST))
    with pytest.raises(LogError, match=rf"refuses the credentials \({mechanism}\)"):
        await goes(url(secured, *options))


async def test_a_client_certificate(secured: Cluster) -> None:
    """It is who the client is: no user, no password."""
    folder = secured.folder
    place = url(secured, "security=tls", f"ca_file={secured.ca_file}", at=secured.tls_bootstrap)
    own = f"&cert_file={folder.client_cert}&key_file={folder.client_key}"
    await goes(place + own)
    with anyio.fail_after(PROMPTLY_S), pytest.raises(LogError, match=rf"{secured.tls_bootstrap} .*cert_file"):
        await goes(place)
    others = f"&cert_file={secured.ca_file}&key_file={folder.client_key}"
    with pytest.raises(ConfigError, match=r"cert_file.*key_file"):  # a key that does not fit
        await goes(place + others)


async def test_wrong_credentials_are_said_without_showing_them(
    secured: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    login(monkeypatch, ADMIN, "wr0ng-and-secret")
    with pytest.raises(LogError, match=rf"{secured.bootstrap} refuses the credentials") as caught:
        async with open_log(url(secured, "security=sasl_ssl", f"ca_file={secured.ca_file}")):
            pass
    assert "wr0ng" not in str(caught.value)


async def test_a_missing_authority_is_said(secured: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    login(monkeypatch, ADMIN, secured.password(ADMIN))
    with pytest.raises(LogError, match=rf"{secured.bootstrap} .*certificate.*ca_file"):
        async with open_log(url(secured, "security=sasl_ssl")):
            pass


async def test_another_kind_of_listener_is_said(
    secured: Cluster, kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LogError, match=rf"{secured.bootstrap} .*security"):
        async with open_log(url(secured, "connect_timeout_ms=3000")):
            pass
    with pytest.raises(LogError, match=rf"{kafka_broker.bootstrap} .*security"):
        async with open_log(url(kafka_broker, "security=tls", "connect_timeout_ms=3000")):
            pass


async def test_missing_rights_are_said(secured: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("security=sasl_ssl", f"ca_file={secured.ca_file}")
    place = url(secured, *options)
    login(monkeypatch, ADMIN, secured.password(ADMIN))
    async with open_log(place) as log:
        await log.create_topics({"a": 1})
    login(monkeypatch, GUEST, secured.password(GUEST))
    async with open_log(place) as log:
        with pytest.raises(LogError, match=rf"{secured.bootstrap}.*create topic.*no right.*ACL"):
            await log.create_topics({"b": 1})
        assert (
            await log.topics() == {}
        )  # what may not be described is not shown; asked by name, the broker says so
        for attempt in (
            log.append([record("a", b"x")]),
            log.committed("g", ["a"]),
            log.exists("a"),
            log.exists("nobody-knows"),
        ):
            with pytest.raises(
                LogError, match=rf"{secured.bootstrap}.*no right.*ACL.*EGOSTREAM_KAFKA_USERNAME"
            ):
                await attempt


async def test_a_worker_without_rights_is_told_at_once(
    secured: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = url(secured, "security=sasl_ssl", f"ca_file={secured.ca_file}")
    login(monkeypatch, GUEST, secured.password(GUEST))
    with (
        anyio.fail_after(PROMPTLY_S),
        pytest.raises(LogError, match=rf"{secured.bootstrap}.*run-1\.control.*no right"),
    ):
        async with run_on(place, "run-1", wait_s=600):
            pass
    with pytest.raises(StallError, match="may not read is not seen: name it with --run"):
        async with run_on(place, "any", wait_s=0.1):
            pass


DESCRIBE, READ = 8, 3
"""Kafka's numbers of what may be allowed."""


async def allow(log: Log, operation: int, prefix: str) -> None:
    """Let the guest do this with all topics whose names begin so, and wait until the broker has heard of it, which is a
    moment after its controller has taken it down."""
    assert isinstance(log, KafkaLog)
    topic, prefixed, allowed = 2, 4, 3
    rule = (topic, prefix, prefixed, f"User:{GUEST}", "*", operation, allowed)
    response = await log.admin._client._send_request(CreateAclsRequest(*rule))
    assert [code for code, _ in response.creation_responses] == [0]
    with anyio.fail_after(PROMPTLY_S):
        while not (await log.admin._client._send_request(DescribeAclsRequest(*rule))).resources:  # noqa: ASYNC110 - told by nobody
            await anyio.sleep(0.05)


async def test_some_rights_are_not_all(secured: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may see that a run is there and not read it is told so at once; who may read it needs nothing more."""
    place = url(secured, "security=sasl_ssl", f"ca_file={secured.ca_file}")
    prefix = place.partition("prefix=")[2].partition("&")[0]
    started = started_with(1, 0)
    login(monkeypatch, ADMIN, secured.password(ADMIN))
    async with open_log(place) as log:
        await log.create_topics(Topics.of(started.run).partitions(1))
        await log.append([Recorder.for_run(started).record(started)])
        await allow(log, DESCRIBE, prefix)
        login(monkeypatch, GUEST, secured.password(GUEST))
        for run in (started.run, "any"):
            with (
                anyio.fail_after(PROMPTLY_S),
                pytest.raises(LogError, match=rf"{secured.bootstrap}.*control.*no right"),
            ):
                async with run_on(place, run, wait_s=600):
                    pass
        await allow(log, READ, prefix)
        async with run_on(place, "any", wait_s=10) as (_, found):
            assert found == started
