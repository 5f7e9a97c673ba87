"""What every log must do (`tests/log`), on a real broker: all those tests run here, with this `new_log`."""

from __future__ import annotations

import pytest

from dev.kafka.brokers import Cluster
from simulator.log import open_log
from tests.kafka.helpers import url
from tests.log.conftest import NewLog
from tests.log.test_groups import *  # noqa: F403 - the suite's tests are what this module is for
from tests.log.test_records import *  # noqa: F403 - likewise


@pytest.fixture
def new_log(kafka_broker: Cluster) -> NewLog:
    place = url(kafka_broker)
    return lambda: open_log(place)
