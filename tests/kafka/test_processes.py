"""A run in processes of their own on real brokers: it gives what a run in one process on one file gives, whoever is
killed, one broker of three included."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import anyio
import pytest

from dev.kafka.brokers import Cluster, start
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import VERDICTS_NAME
from tests.conftest import skip_without
from tests.foreign.helpers import install_toy
from tests.foreign.test_workers import agent_killed
from tests.kafka.helpers import url
from tests.models.server import running_server
from tests.workers.fleet import fleet, hurry, published, torment, undisturbed, workers
from tests.workers.test_attach import attached_run
from tests.workers.test_control import steered_replay, steered_run
from tests.workers.test_processes import check
from tests.workers.test_rebuilt import other_hands, same_hands


@pytest.fixture(scope="module")
def three_brokers(kafka_data: Path) -> Iterator[Cluster]:
    cluster = start("fleet", brokers=3, data=kafka_data)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


def test_roles_as_processes(kafka_broker: Cluster, tmp_path: Path, expected: bytes) -> None:
    log, out = url(kafka_broker), tmp_path / "run"
    with fleet(tmp_path, workers(log, out)) as processes:
        processes.start(*processes.commands)
        check(processes, log, out, expected)


@pytest.mark.parametrize("hands", [same_hands, other_hands])
def test_lanes_that_another_agent_takes_over(
    kafka_broker: Cluster, tmp_path: Path, hands: Callable[[Path, str], None]
) -> None:
    hands(tmp_path, url(kafka_broker))


def test_foreign_memories_are_taken_over(
    kafka_broker: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, folder in {"EGOSTREAM_SYSTEMS": tmp_path / "systems", "TMPDIR": tmp_path / "tmp"}.items():
        folder.mkdir()
        monkeypatch.setenv(variable, str(folder))
    install_toy(tmp_path / "systems")
    with running_server() as server:
        agent_killed(server, tmp_path, tmp_path / "tmp", url(kafka_broker))


@pytest.mark.timeout(450)  # it starts three brokers, and stops them
def test_twenty_kills_and_a_broker(three_brokers: Cluster, tmp_path: Path, expected: bytes) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = Random(seed)
    log, out = url(three_brokers, "replication=3"), tmp_path / "run"
    with fleet(tmp_path, workers(log, out, rate=100, conductors=2)) as processes:
        processes.start(*processes.commands)
        torment(processes, rng, 3)  # while it begins
        processes.wait_for(lambda: published(out) > 0)
        torment(processes, rng, 4, longest_s=2.4)
        broker = 1 + int(rng.random() * 3)
        three_brokers.kill(broker)
        torment(processes, rng, 6, longest_s=2.4)
        again = threading.Thread(target=three_brokers.restart, args=(broker,))
        again.start()
        torment(processes, rng, 7, longest_s=2.4)
        again.join()
        hurry(processes)
        check(processes, log, out, expected)


def test_an_attached_class_is_judged_as_if_it_were_here(kafka_broker: Cluster, tmp_path: Path) -> None:
    attached_run(tmp_path, url(kafka_broker), 0)


@pytest.mark.parametrize("steered", [steered_replay, steered_run])
def test_pause_resume_and_another_rate(
    kafka_broker: Cluster, tmp_path: Path, steered: Callable[..., None]
) -> None:
    steered(tmp_path, "--log", url(kafka_broker))


def test_kcat_reads_a_topic_of_a_run(kafka_broker: Cluster, tmp_path: Path) -> None:
    kcat = shutil.which("kcat") or skip_without("kcat", "kcat is not installed (Debian package kcat)")
    log, out = f"kafka://{kafka_broker.bootstrap}?prefix=k{secrets.token_hex(4)}.", tmp_path / "run"
    plan = plan_run(
        RunOptions(data="synthetic:wearers=1,segments_per_day=2", systems=("null",), out=out, log=log)
    )
    anyio.run(execute, plan)
    topic = f"{log.partition('prefix=')[2]}{plan.started.run}.verdicts"
    ran = subprocess.run(
        [kcat, "-b", kafka_broker.bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%h %s\\n"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    lines = sorted(line.partition(b" ") for line in ran.stdout.splitlines())
    assert sorted(value for _, _, value in lines) == sorted((out / VERDICTS_NAME).read_bytes().splitlines())
    assert all(b"kind=verdict" in headers for headers, _, _ in lines)
