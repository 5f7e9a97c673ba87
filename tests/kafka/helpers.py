"""What the tests of the Kafka log share."""

from __future__ import annotations

import secrets

from dev.kafka.brokers import Cluster

QUICK = "session_timeout_ms=6000&heartbeat_interval_ms=100"
"""Groups that notice within a test's patience; a broker takes no shorter session."""


def url(cluster: Cluster, *options: str) -> str:
    """A log of one's own on a cluster: nobody else uses its prefix."""
    return f"kafka://{cluster.bootstrap}?" + "&".join((f"prefix=t{secrets.token_hex(4)}.", QUICK, *options))
