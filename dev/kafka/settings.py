"""What a broker is told: its properties, its Java options, its logging, its passwords."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dev.kafka.files import ToolError
from dev.kafka.processes import Process

ADMIN, GUEST = "admin", "guest"  # may do everything; may log in and do nothing
SCRAM_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
CLIENT = "egostream"  # the name in the client certificate, which may do everything
LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


class Broker(NamedTuple):
    """One broker of a cluster: its ports on 127.0.0.1 and, once started, its process."""

    id: int
    port: int
    controller_port: int
    internal_port: int  # brokers among themselves; the clients' own port where that is not secured
    pid: int = 0
    born: str = ""
    tls_port: int = 0  # for clients that show a certificate; the clients' own port where that is not secured

    @property
    def process(self) -> Process:
        """The process that was started last."""
        return Process(self.pid, self.born)

    @property
    def ports(self) -> tuple[int, int, int, int]:
        """All that it listens on."""
        return self.port, self.controller_port, self.internal_port, self.tls_port


class Security(NamedTuple):
    """What a secured listener needs: the brokers' key store, the clients' certificate, and the passwords by user
    (the key store's among them)."""

    keystore: Path
    client_cert: Path
    passwords: Mapping[str, str]


def java_options(brokers: int, log4j: Path) -> list[str]:
    """Options for one broker's Java.

    One broker keeps Java's defaults at 512 MB of heap: it is what throughput is measured on. Three share the
    machine with the tests: a smaller heap, the collector with the least threads, and only the first compiler,
    which halves the processor time of starting and costs throughput.
    """
    small = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    size = ["-Xmx512m"] if brokers == 1 else small
    return [
        *size,
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={log4j}",
    ]


def tool_options(log4j: Path) -> list[str]:
    """Options for Kafka's short-lived tools: start fast."""
    return ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={log4j}"]


def server_properties(
    broker: Broker, brokers: Sequence[Broker], data: Path, security: Security | None
) -> str:
    """The `server.properties` of one broker that is its own controller (KRaft, combined roles).

    With `security`, clients must log in over TLS, or show the client certificate on a port of its own; None leaves
    all listeners plain.
    """
    copies = len(brokers)
    in_sync = max(1, copies - 1)
    voters = ",".join(f"{peer.id}@127.0.0.1:{peer.controller_port}" for peer in brokers)
    client = f"CLIENT://127.0.0.1:{broker.port}"
    listeners = client
    if security is not None:
        listeners += f",INTERNAL://127.0.0.1:{broker.internal_port},TLS://127.0.0.1:{broker.tls_port}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": broker.id,
        "controller.quorum.voters": voters,
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            f"CLIENT:{'PLAINTEXT' if security is None else 'SASL_SSL'},TLS:SSL,INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT"
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENT" if security is None else "INTERNAL",
        "log.dirs": data,
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 8,  # 50 by default: slow to start and to rebalance
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,  # 3 s by default: every group would wait for it
        "log.retention.ms": -1,  # event time is years old: by time, a lifelog would be deleted at once
        # An older client's back-to-back transactions would be told to retry, 100 ms each time.
        "transaction.partition.verification.enable": "false",
        "broker.session.timeout.ms": 6000,  # 9 s by default: how long a dead broker stalls writers
        "auto.create.topics.enable": "false",  # a misspelt topic is an error, not an empty topic
        "log.cleaner.dedupe.buffer.size": 16 << 20,  # 128 MB by default: a third of the heap
    }
    if security is not None:
        modules = "org.apache.kafka.common.security"
        logins = " ".join(f'user_{user}="{security.passwords[user]}"' for user in (ADMIN, GUEST))
        settings |= {
            "sasl.enabled.mechanisms": ",".join((*SCRAM_MECHANISMS, "PLAIN")),
            "listener.name.client.plain.sasl.jaas.config": (
                f"{modules}.plain.PlainLoginModule required {logins};"
            ),
            **{
                f"listener.name.client.{mechanism.lower()}.sasl.jaas.config": (
                    f"{modules}.scram.ScramLoginModule required;"
                )
                for mechanism in SCRAM_MECHANISMS
            },
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": security.keystore,
            "ssl.keystore.password": security.passwords["keystore"],
            "listener.name.tls.ssl.client.auth": "required",
            "listener.name.tls.ssl.truststore.type": "PEM",
            "listener.name.tls.ssl.truststore.location": security.client_cert,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Brokers talk among themselves on open loopback ports, as nobody: a set-up to test clients with,
            # and no protection against other users of this machine.
            "super.users": f"User:{ADMIN};User:CN={CLIENT};User:ANONYMOUS",
        }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def make_passwords() -> dict[str, str]:
    """Passwords by user: from `$EGOSTREAM_KAFKA_ADMIN_PASSWORD` and `..._GUEST_PASSWORD`, else made up; and
    one for the key store. Raises ToolError for a password that Kafka's own tool can't read back."""
    passwords = {"keystore": secrets.token_urlsafe(24)}
    for user in (ADMIN, GUEST):
        name = f"EGOSTREAM_KAFKA_{user.upper()}_PASSWORD"
        password = os.environ.get(name) or secrets.token_urlsafe(24)
        if not re.fullmatch(r"[A-Za-z0-9_.-]{8,128}", password):
            raise ToolError(f"${name} must be 8 to 128 characters, only letters, digits, '-', '_' and '.'")
        passwords[user] = password
    return passwords
