"""What the tests of the Kafka log share."""

from __future__ import annotations

import secrets

from dev.kafka.brokers import Cluster
from simulator.log import Log
from simulator.log.kafka import KafkaLog

USUAL = ("session_timeout_ms=6000", "heartbeat_interval_ms=100", "connect_timeout_ms=60000")
"""Groups that notice within a test's patience (a broker takes no shorter session), and brokers of a busy machine, whose
first login over TLS takes a Java long."""


def url(cluster: Cluster, *options: str, at: str = "") -> str:
    """A log of one's own on a cluster, or at other addresses of it: nobody else uses its prefix. The options go before
    the usual ones."""
    given = {option.partition("=")[0] for option in options}
    usual = (option for option in USUAL if option.partition("=")[0] not in given)
    prefix = f"prefix=t{secrets.token_hex(4)}."
    return f"kafka://{at or cluster.bootstrap}?" + "&".join((prefix, *usual, *options))


def give_up_after(log: Log, timeout_ms: int) -> None:
    """From now on, for a broker that is to be killed: one that has just been started may take its time for its first
    topic, group and transaction."""
    assert isinstance(log, KafkaLog)
    object.__setattr__(log.config, "timeout_ms", timeout_ms)
