"""Kafka URLs, credentials, and topic settings: no broker needed."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ConfigError, LogError, TopicError
from simulator.log import open_log
from simulator.log.kafka_admin import SETTINGS, check_settings
from simulator.log.kafka_client import start_producer
from simulator.log.kafka_config import KafkaConfig, parse_kafka_url

SECRET = "s3cr3t-never-shown"
LOGIN = {"EGOSTREAM_KAFKA_USERNAME": "me", "EGOSTREAM_KAFKA_PASSWORD": SECRET}


def test_a_plain_url_has_defaults() -> None:
    assert parse_kafka_url("kafka://one:1,two:2/", {}) == KafkaConfig(servers=("one:1", "two:2"))
    assert parse_kafka_url("kafka://one,[::1]:7", {}).servers == ("one:9092", "[::1]:7")


def test_options_are_read() -> None:
    config = parse_kafka_url(
        "kafka://h:1?security=SASL_SSL&sasl_mechanism=scram-sha-256&replication=3&timeout_ms=5&prefix=x."
        "&compression=lz4",
        LOGIN,
    )
    assert (config.security, config.sasl_mechanism) == ("sasl_ssl", "SCRAM-SHA-256")
    assert (config.replication, config.timeout_ms, config.prefix, config.compression) == (3, 5, "x.", "lz4")
    assert (config.username, config.password) == ("me", SECRET)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("kafka://", "no broker"),
        ("kafka://h:0", "no broker"),
        ("kafka://h:99999", "no broker"),
        ("kafka://h:1?colour=red", "no option 'colour'"),
        ("kafka://h:1?username_x=a", "no option"),
        ("kafka://h:1?security=magic", "choose one of plaintext"),
        ("kafka://h:1?replication=0", "whole number"),
        ("kafka://h:1?timeout_ms=soon", "whole number"),
        ("kafka://h:1?timeout_ms=1&timeout_ms=2", "twice"),
        ("kafka://h:1?prefix=a/b", "only letters"),
        ("kafka://h:1?ca_file=x", "security=tls"),
        ("kafka://h:1?security=tls&key_file=x", "without cert_file"),
        ("kafka://h:1?session_timeout_ms=600", "heartbeat_interval_ms"),
    ],
)
def test_what_can_not_be_used_is_said(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_kafka_url(url, {})


@pytest.mark.parametrize(
    "url",
    [
        f"kafka://me:{SECRET}@h:1",
        f"kafka://h:1?password={SECRET}",
        f"kafka://h:1?sasl_plain_password={SECRET}",
        f"kafka://h:1?USERNAME={SECRET}",
        f"kafka://h:1?key_password={SECRET}",
    ],
)
async def test_secrets_in_the_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="EGOSTREAM_KAFKA_PASSWORD") as caught:
        async with open_log(url):
            pass
    assert SECRET not in str(caught.value)


def test_credentials_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    url = "kafka://h:1?security=sasl_plaintext"
    with pytest.raises(ConfigError, match="USERNAME"):
        parse_kafka_url(url, {})
    with pytest.raises(ConfigError, match="PASSWORD_FILE"):
        parse_kafka_url(url, {"EGOSTREAM_KAFKA_USERNAME": "me"})
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    environ = {"EGOSTREAM_KAFKA_USERNAME": "me"}
    assert parse_kafka_url(f"{url}&password_file={file}", environ).password == SECRET
    environ["EGOSTREAM_KAFKA_PASSWORD_FILE"] = str(file)
    assert parse_kafka_url(url, environ).password == SECRET
    with pytest.raises(ConfigError, match="can't read"):
        parse_kafka_url(f"{url}&password_file={tmp_path / 'none'}", environ)


def test_a_configuration_never_shows_its_secrets() -> None:
    config = parse_kafka_url("kafka://h:1?security=sasl_plaintext", LOGIN)
    assert SECRET not in repr(config) + str(config)
    assert config.client_options()["sasl_plain_password"] == SECRET


@given(st.text())
def test_any_text_gives_a_configuration_or_a_config_error(text: str) -> None:
    try:
        config = parse_kafka_url("kafka://" + text, {})
    except ConfigError:
        return
    assert config.servers


def test_missing_certificate_files_are_named() -> None:
    with pytest.raises(ConfigError, match=r"ca_file /none\.pem"):
        parse_kafka_url("kafka://h:1?security=tls&ca_file=/none.pem", {}).client_options()
    with pytest.raises(ConfigError, match=r"cert_file /none\.pem"):
        parse_kafka_url("kafka://h:1?security=tls&cert_file=/none.pem", {}).client_options()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000"),
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", "3600000"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("max.message.bytes", "100000"),
    ],
)
def test_settings_that_would_lose_or_refuse_a_lifelog_are_named(name: str, value: str) -> None:
    check_settings("t", SETTINGS)
    check_settings("t", {})  # an older broker does not know them
    with pytest.raises(TopicError, match=rf"'t'.*{name}={value}.*needs"):
        check_settings("t", {**SETTINGS, name: value})


async def test_nobody_listens() -> None:
    with pytest.raises(LogError, match=r"127\.0\.0\.1:1 refuses connections.*127\.0\.0\.1:2 refuses"):
        async with open_log("kafka://127.0.0.1:1,127.0.0.1:2"):
            pass


async def test_what_listens_is_no_broker() -> None:
    async def silent(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, silent)
            with pytest.raises(LogError, match=f"127.0.0.1:{port} does not answer as a broker"):
                async with open_log(f"kafka://127.0.0.1:{port}?connect_timeout_ms=300"):
                    pass
            tasks.cancel_scope.cancel()


async def test_a_producer_is_begun_again_while_its_broker_is_away() -> None:
    tries = 0

    async def hang_up(stream: anyio.abc.SocketStream) -> None:
        nonlocal tries
        tries += 1
        await stream.aclose()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        config = parse_kafka_url(f"kafka://127.0.0.1:{port}?timeout_ms=2000")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, hang_up)
            with pytest.raises(LogError, match=f"127.0.0.1:{port}: can't begin: KafkaConnectionError"):
                await start_producer(config, "begin", config.client_options())
            tasks.cancel_scope.cancel()
    assert tries > 2


async def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "simulator.log.kafka", raising=False)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(ConfigError, match=r"pip install 'egostream\[kafka\]'"):
        async with open_log("kafka://h:1"):
            pass
