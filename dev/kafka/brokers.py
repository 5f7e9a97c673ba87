"""Clusters of one or three brokers on loopback, and what can be done to them.

The state on disk is the only truth: a `Cluster` names a folder, so that several processes can act on the
same brokers. A broker counts as running while the very process that was started lives: neither a reboot nor a
pid used again is mistaken for it.
"""

from __future__ import annotations

import re
import shutil
import ssl
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from dev.kafka import processes
from dev.kafka.files import PROJECT, ClusterError, ToolError, locked, tail
from dev.kafka.settings import Broker, java_options
from dev.kafka.storage import Folder, State, assign_ports, create
from dev.kafka.tools import fetch_jars, java_command, need_tools
from dev.kafka.wire import WireError, api_versions, metadata

DATA = PROJECT / ".kafka"
START_TIMEOUT_S = 180.0
STOP_GRACE_S = 10.0
ANSWER_TIMEOUT_S = 3.0


class BrokerStatus(NamedTuple):
    """One broker now. `sees` are the ids that it names when asked who takes part; empty: no answer."""

    id: int
    address: str
    pid: int
    running: bool
    sees: tuple[int, ...]


class Cluster:
    """One cluster, by its folder. Methods block until done, none for ever, and raise ClusterError."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(folder)

    @property
    def name(self) -> str:
        """The cluster's name, which is its folder's."""
        return self.folder.path.name

    @property
    def state(self) -> State:
        """The state on disk."""
        return self.folder.read()

    @property
    def bootstrap(self) -> str:
        """The addresses for clients, `host:port,host:port`."""
        return self.state.bootstrap

    @property
    def ca_file(self) -> Path:
        """PEM of the certificate that clients of a secured cluster must trust."""
        return self.folder.ca_file

    @property
    def tls_bootstrap(self) -> str:
        """The addresses of a secured cluster for clients that show a certificate."""
        return ",".join(f"127.0.0.1:{broker.tls_port}" for broker in self.state.brokers)

    def password(self, user: str) -> str:
        """The password of `admin` (may do everything) or `guest` (may log in and do nothing)."""
        return self.folder.password(user)

    def status(self) -> list[BrokerStatus]:
        """Every broker as it is now; asks each running one whom it sees."""
        return [self._status(broker) for broker in self.state.brokers]

    def is_ready(self) -> bool:
        """Whether every broker runs and sees all of them."""
        status = self.status()
        return all(len(broker.sees) == len(status) for broker in status)

    def wait_ready(
        self, timeout_s: float = START_TIMEOUT_S, broker_ids: Collection[int] | None = None
    ) -> None:
        """Wait until every running broker answers and sees every running one. Raises ClusterError with the
        end of the log of a broker that was not ready in time, or that died and is one of `broker_ids` (None:
        any that runs now)."""
        deadline = time.monotonic() + timeout_s
        state = self.state
        tls = ssl.create_default_context(cafile=str(self.ca_file)) if state.sasl else None
        expected = _running(state.brokers) if broker_ids is None else set(broker_ids)
        for broker in state.brokers:
            while broker.id in expected | _running(state.brokers):
                if broker.id not in _running(state.brokers):
                    raise ClusterError(self._with_log(broker, "ended while it started"))
                reason = _why_not_ready(broker, _running(state.brokers), tls)
                if reason is None:
                    break
                if time.monotonic() > deadline:
                    raise ClusterError(
                        self._with_log(broker, f"is not ready after {timeout_s:.0f} s ({reason})")
                    )
                time.sleep(0.1)

    def kill(self, broker_id: int) -> None:
        """Kill one broker (SIGKILL), and return when it is gone. Nothing happens to one that is down."""
        processes.kill([self._broker(broker_id).process])

    def restart(self, broker_id: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start one broker again on its ports and data (ending it first where it runs), and wait until it and
        the other running ones are ready. Its copies may still be catching up then."""
        self._broker(broker_id)  # raises before there is anything to lock
        with locked(self.folder.path, timeout_s):
            processes.end([self._broker(broker_id).process], STOP_GRACE_S)
            self._launch([broker_id], fetch_jars(), timeout_s)

    def start(self, brokers: int, sasl: bool, timeout_s: float) -> None:
        """See the function `start`; here names and tools are no longer checked."""
        jars = fetch_jars()
        with locked(self.folder.path, timeout_s):
            state = self.state if self.folder.state_file.exists() else None
            if state is None or not state.formatted:
                create(self.folder, brokers, sasl, jars)
            elif (len(state.brokers), state.sasl) != (brokers, sasl):
                shape = f"{len(state.brokers)} broker(s), {'with' if state.sasl else 'without'} SASL"
                raise ClusterError(f"cluster {self.name} has {shape}: stop it first, or use another name")
            elif not _running(state.brokers):
                assign_ports(self.folder, state)
            brokers_now = self.state.brokers
            down = {broker.id for broker in brokers_now} - _running(brokers_now)
            try:
                self._launch(down, jars, timeout_s)
            except ClusterError:
                if not self._took_new_ports():
                    raise
                self._launch(down, jars, timeout_s)
            self.wait_ready(timeout_s)

    def stop(self, keep: bool = False) -> None:
        """End every broker, and remove the folder unless `keep`. Nothing happens where there is none."""
        if not self.folder.path.exists():
            return
        with locked(self.folder.path, START_TIMEOUT_S):
            if self.folder.state_file.exists():
                processes.end([broker.process for broker in self.state.brokers], STOP_GRACE_S)
            if not keep:
                shutil.rmtree(self.folder.path)

    def _launch(self, broker_ids: Collection[int], jars: Path, timeout_s: float) -> None:
        """Start brokers and wait until they are ready; those started do not outlive a failure."""
        brokers = {broker.id: broker for broker in self.state.brokers}
        started: list[Broker] = []
        try:
            for broker_id in sorted(broker_ids):
                options = java_options(len(brokers), self.folder.log4j)
                command = java_command(jars, options, "kafka.Kafka", [str(self.folder.properties(broker_id))])
                pid, born = processes.spawn(command, self.folder.log(broker_id))
                started.append(brokers[broker_id]._replace(pid=pid, born=born))
                brokers[broker_id] = started[-1]
                self.folder.write(self.state._replace(brokers=tuple(brokers.values())))
            self.wait_ready(timeout_s, broker_ids)
        except BaseException:
            processes.kill([broker.process for broker in started])
            raise

    def _took_new_ports(self) -> bool:
        """Give the brokers new ports where all are down and somebody took one after it was chosen; whether it did."""
        state = self.state
        return not _running(state.brokers) and assign_ports(self.folder, state).brokers != state.brokers

    def _status(self, broker: Broker) -> BrokerStatus:
        running = processes.is_alive(broker.process)
        try:
            sees = tuple(sorted(metadata(broker.internal_port, ANSWER_TIMEOUT_S).brokers)) if running else ()
        except WireError:
            sees = ()  # it runs and does not answer: shown as that
        return BrokerStatus(broker.id, f"127.0.0.1:{broker.port}", broker.pid, running, sees)

    def _broker(self, broker_id: int) -> Broker:
        for broker in self.state.brokers:
            if broker.id == broker_id:
                return broker
        raise ClusterError(f"cluster {self.name} has no broker {broker_id}")

    def _with_log(self, broker: Broker, what: str) -> str:
        log = self.folder.log(broker.id)
        return f"broker {broker.id} of cluster {self.name} {what}; the end of {log}:\n{tail(log)}"


def start(
    name: str = "dev",
    *,
    brokers: int = 1,
    sasl: bool = False,
    data: Path = DATA,
    timeout_s: float = START_TIMEOUT_S,
) -> Cluster:
    """Start a cluster (or what is down of it), wait until it is ready, and return it.

    With `sasl`, clients must use SASL_SSL (SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN) or, at `tls_bootstrap`, TLS with
    the certificate in the cluster's folder; only `admin` and that certificate have rights. A cluster of this name
    whose data was kept goes on with that data. Raises ToolError where Java or the jars are missing,
    ClusterError where the brokers do not come up (their folder stays, with their logs).
    """
    if brokers not in (1, 3):
        raise ToolError(f"a cluster has 1 or 3 brokers, not {brokers}")
    need_tools()
    cluster = named(name, data)
    cluster.start(brokers, sasl, timeout_s)
    return cluster


def named(name: str = "dev", data: Path = DATA) -> Cluster:
    """The cluster of this name, which need not exist. Raises ToolError for what can't be a name."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", name) or name in ("jars", "tests"):  # other things there
        raise ToolError(f"a cluster can't be named {name!r}: use small letters, digits and '-'")
    return Cluster(data / name)


def clusters(data: Path = DATA) -> list[Cluster]:
    """The clusters whose folders are in `data`, running or not."""
    return [Cluster(file.parent) for file in sorted(data.glob("*/cluster.json"))]


def _running(brokers: Collection[Broker]) -> set[int]:
    return {broker.id for broker in brokers if processes.is_alive(broker.process)}


def _why_not_ready(broker: Broker, expected: set[int], tls: ssl.SSLContext | None) -> str | None:
    """None when the broker answers on its clients' port and sees all the expected brokers."""
    try:
        sees = set(metadata(broker.internal_port, ANSWER_TIMEOUT_S).brokers)
        if tls is not None:
            api_versions(broker.port, ANSWER_TIMEOUT_S, tls)
    except WireError as error:
        return str(error)
    missing = sorted(expected - sees)
    return f"it does not see broker {', '.join(map(str, missing))}" if missing else None
