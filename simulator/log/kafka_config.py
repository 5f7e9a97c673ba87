"""Where a Kafka log is and how to reach it: `kafka://host:port[,host:port...][?option=value&...]`.

User name and password never stand in the URL, which ends up in shell histories, process lists and log lines.
They come from the environment (`EGOSTREAM_KAFKA_USERNAME`, `EGOSTREAM_KAFKA_PASSWORD`) or, the password, from
a file (`EGOSTREAM_KAFKA_PASSWORD_FILE` or `?password_file=`).
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from simulator.errors import ConfigError

USERNAME_VARIABLE = "EGOSTREAM_KAFKA_USERNAME"
PASSWORD_VARIABLE = "EGOSTREAM_KAFKA_PASSWORD"
PASSWORD_FILE_VARIABLE = "EGOSTREAM_KAFKA_PASSWORD_FILE"

SECURITY = {
    "plaintext": "PLAINTEXT",
    "tls": "SSL",
    "sasl_plaintext": "SASL_PLAINTEXT",
    "sasl_ssl": "SASL_SSL",
}
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
COMPRESSION = ("none", "gzip", "lz4", "snappy", "zstd")

_SECRETS = {
    "user",
    "username",
    "password",
    "sasl_username",
    "sasl_password",
    "sasl_plain_password",
    "key_password",
}
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_PREFIX = re.compile(r"[A-Za-z0-9._-]*")


@dataclass(frozen=True)
class KafkaConfig:
    """One Kafka cluster and how to speak to it. Times are in milliseconds.

    Attributes:
        servers: `host:port` of one or more brokers; the others are found through them.
        security: `plaintext`, `tls`, `sasl_plaintext` or `sasl_ssl`.
        ca_file, cert_file, key_file: PEM files: who signed the broker's certificate (default: the system's
            authorities), and this client's own certificate with its key.
        sasl_mechanism: how user name and password are proved.
        replication: copies of each topic that is created; None takes the broker's default.
        prefix: stands before the names of all topics, groups and transactions, for a shared cluster.
        session_timeout_ms: a group's member that is silent for so long has lost its partitions.
        heartbeat_interval_ms: how often a member is heard of, and so how fast a group shares anew.
        max_poll_interval_ms: a member that does not poll for so long has lost its partitions.
        transaction_timeout_ms: the broker aborts a transaction that is open for so long.
        connect_timeout_ms: how long to try to reach a broker at the start.
        timeout_ms: how long any later operation is tried again while brokers are away.
    """

    servers: tuple[str, ...]
    security: str = "plaintext"
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    sasl_mechanism: str = "SCRAM-SHA-512"
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    replication: int | None = None
    prefix: str = ""
    compression: str = "none"
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 500
    max_poll_interval_ms: int = 300_000
    transaction_timeout_ms: int = 30_000
    connect_timeout_ms: int = 8_000
    timeout_ms: int = 60_000

    def __str__(self) -> str:
        return ",".join(self.servers)

    @property
    def timeout_s(self) -> float:
        """`timeout_ms` in seconds."""
        return self.timeout_ms / 1000

    def client_options(self) -> dict[str, Any]:
        """What every aiokafka client is made with. Reads the certificate files; raises ConfigError."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.servers),
            "security_protocol": SECURITY[self.security],
        }
        if self.security in ("tls", "sasl_ssl"):
            options["ssl_context"] = self._ssl_context()
        if self.security.startswith("sasl"):
            options |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return options

    def _ssl_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"can't read the authorities in ca_file {self.ca_file}: {error}") from error
        if self.cert_file is not None:
            try:
                # A key under a pass phrase would make OpenSSL ask on the terminal: an empty one makes it
                # fail.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (OSError, ssl.SSLError) as error:
                where = f"cert_file {self.cert_file}" + (
                    f" and key_file {self.key_file}" if self.key_file else ""
                )
                raise ConfigError(
                    f"can't read the client's certificate and key in {where}: {error}"
                ) from error
        return context


def parse_kafka_url(url: str, environ: Mapping[str, str] = os.environ) -> KafkaConfig:
    """The configuration that a URL and the environment give. Raises ConfigError for what is no such URL, for
    secrets in it, unknown options and missing credentials; the message never repeats a secret."""
    scheme, separator, rest = url.partition("://")
    if scheme != "kafka" or not separator:
        raise ConfigError("a Kafka log's URL begins with kafka://")
    authority, _, query = rest.partition("?")
    if "@" in authority:
        raise ConfigError(_no_secrets("user name and password"))
    servers = tuple(_server(part) for part in authority.rstrip("/").split(","))
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    for name in options:
        if name.lower() in _SECRETS:
            raise ConfigError(_no_secrets(name))
    if len(options) < len(pairs):
        raise ConfigError("an option stands twice in the Kafka log's URL")
    values: dict[str, Any] = {"servers": servers}
    password_file = options.pop("password_file", None) or environ.get(PASSWORD_FILE_VARIABLE)
    for name, text in options.items():
        values[name] = _option(name, text)
    config = KafkaConfig(**values)
    _check(config)
    if not config.security.startswith("sasl"):
        return config
    values |= _credentials(password_file, environ)
    return KafkaConfig(**values)


def _server(text: str) -> str:
    match = _SERVER.fullmatch(unquote(text))
    if not match or not 0 < int(match["port"] or 9092) < 65536:
        raise ConfigError(f"{text!r} is no broker: write kafka://host:port[,host:port...]")
    return f"{match['host']}:{match['port'] or 9092}"


def _option(name: str, text: str) -> object:
    choices: dict[str, tuple[str, ...]] = {
        "security": tuple(SECURITY),
        "sasl_mechanism": MECHANISMS,
        "compression": COMPRESSION,
    }
    if name in choices:
        found = [choice for choice in choices[name] if choice.lower() == text.lower()]
        if not found:
            raise ConfigError(f"{name}={text}: choose one of {', '.join(choices[name])}")
        return found[0]
    if name in ("ca_file", "cert_file", "key_file"):
        return text
    if name == "prefix":
        if not _PREFIX.fullmatch(text):
            raise ConfigError(f"prefix={text}: only letters, digits, '.', '_' and '-'")
        return text
    if name == "replication" or (name.endswith("_ms") and name in KafkaConfig.__dataclass_fields__):
        if not text.isdecimal() or not 0 < int(text) < 2**31:
            raise ConfigError(f"{name}={text}: a whole number above 0")
        return int(text)
    known = sorted({*KafkaConfig.__dataclass_fields__, "password_file"} - {"servers", "username", "password"})
    raise ConfigError(f"the Kafka log has no option {name!r}; there is {', '.join(known)}")


def _check(config: KafkaConfig) -> None:
    if config.heartbeat_interval_ms * 2 > config.session_timeout_ms:
        raise ConfigError("heartbeat_interval_ms must be at most half of session_timeout_ms")
    given = [name for name in ("ca_file", "cert_file", "key_file") if getattr(config, name) is not None]
    if given and config.security not in ("tls", "sasl_ssl"):
        raise ConfigError(f"{given[0]} is for security=tls or security=sasl_ssl, not for {config.security}")
    if config.key_file is not None and config.cert_file is None:
        raise ConfigError("key_file is given without cert_file")


def _credentials(password_file: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    username, password = environ.get(USERNAME_VARIABLE), environ.get(PASSWORD_VARIABLE)
    if password_file:
        try:
            password = Path(password_file).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"can't read the Kafka password file {password_file}: {error}") from error
    if not username:
        raise ConfigError(f"the Kafka log needs a user name: set {USERNAME_VARIABLE}")
    if not password:
        raise ConfigError(
            f"the Kafka log needs a password: set {PASSWORD_VARIABLE}, {PASSWORD_FILE_VARIABLE} or "
            "the option password_file"
        )
    return {"username": username, "password": password}


def _no_secrets(name: str) -> str:
    return (
        f"{name} must not stand in the Kafka log's URL: set {USERNAME_VARIABLE} and {PASSWORD_VARIABLE}, "
        f"or {PASSWORD_FILE_VARIABLE} for a file"
    )
