"""The conformance suite of `tests/log` on a real broker: all its tests run here, with this `new_log`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dev.kafka.brokers import Cluster
from simulator.log import Log, open_log
from tests.log.test_conformance import *  # noqa: F403 - the suite's tests are what this module is for
from tests.log.test_conformance import NewLog

QUICK = "session_timeout_ms=6000&heartbeat_interval_ms=100"


@pytest.fixture
def new_log(kafka_broker: Cluster) -> NewLog:
    prefix = f"c{secrets.token_hex(4)}."

    @asynccontextmanager
    async def opened() -> AsyncIterator[Log]:
        async with open_log(f"kafka://{kafka_broker.bootstrap}?prefix={prefix}&{QUICK}") as log:
            yield log

    return opened
