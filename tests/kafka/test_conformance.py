"""The conformance suite of `tests/log` on a real broker: all its tests run here, with this `new_log`."""

from __future__ import annotations

import pytest

from dev.kafka.brokers import Cluster
from simulator.log import open_log
from tests.kafka.helpers import url
from tests.log.test_conformance import *  # noqa: F403 - the suite's tests are what this module is for
from tests.log.test_conformance import NewLog


@pytest.fixture
def new_log(kafka_broker: Cluster) -> NewLog:
    place = url(kafka_broker)
    return lambda: open_log(place)
