"""A real broker for tests: started once per test session, in `.kafka/tests/<pid of the session>`."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.kafka.brokers import DATA, Cluster, clusters, start
from dev.kafka.files import ToolError, locked
from dev.kafka.tools import fetch_jars, missing_tools
from tests.conftest import skip_without

TESTS = DATA / "tests"
SWEEP_TIMEOUT_S = 60.0


@pytest.fixture(scope="session")
def kafka_data() -> Iterator[Path]:
    """The folder for this session's clusters, all stopped at its end; skips where no broker can run."""
    if missing := missing_tools():
        skip_without("kafka", f"a Kafka broker needs {', '.join(missing)}")
    try:
        fetch_jars()
    except ToolError as error:
        skip_without("kafka", str(error))
    _sweep()
    data = TESTS / str(os.getpid())
    data.mkdir(parents=True)
    try:
        yield data
    finally:
        _remove(data)


@pytest.fixture(scope="session")
def kafka_broker(kafka_data: Path) -> Cluster:
    """One broker without passwords, shared by all tests: use topics of your own, and do not kill it."""
    return start("shared", data=kafka_data)


@pytest.fixture
def own_broker(kafka_data: Path) -> Iterator[Cluster]:
    """A broker of the test's own, which it may kill. None is left beside the next test's."""
    cluster = start(f"own-{secrets.token_hex(2)}", data=kafka_data)
    yield cluster
    cluster.stop()


def _sweep() -> None:
    """Stop what an earlier test session left running because it was killed. Sessions begin side by side."""
    with locked(TESTS, SWEEP_TIMEOUT_S):
        for data in TESTS.iterdir():
            if data.name.isdigit() and not _is_alive(int(data.name)):
                _remove(data)


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # one that had this id before: a container gives the same ones away each time
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(data: Path) -> None:
    for cluster in clusters(data):
        cluster.stop()
    shutil.rmtree(data)
