"""A cluster's folder: its state, each broker's settings, and the formatted storage of a new one."""

from __future__ import annotations

import base64
import json
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from dev.kafka.files import ClusterError, locked, read_json, write_private
from dev.kafka.processes import free_ports, port_is_free
from dev.kafka.settings import (
    ADMIN,
    CLIENT,
    GUEST,
    LOG4J,
    SCRAM_MECHANISMS,
    Broker,
    Security,
    make_passwords,
    server_properties,
    tool_options,
)
from dev.kafka.tools import java_command, keytool, openssl, run_tool

TOOL_TIMEOUT_S = 180.0


class State(NamedTuple):
    """What is known of a cluster; kept in its `cluster.json`."""

    cluster_id: str
    sasl: bool
    formatted: bool  # False: its storage was never finished, and can only be made anew
    bootstrap: str  # the addresses for clients, `host:port,host:port`
    brokers: tuple[Broker, ...]


class Folder:
    """Where things are in a cluster's folder, and its state. Raises ClusterError."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.state_file = self.path / "cluster.json"
        self.ca_file = self.path / "ca.pem"
        self.credentials_file = self.path / "credentials.json"
        self.keystore = self.path / "keystore.p12"
        self.client_cert = self.path / "client.pem"
        self.client_key = self.path / "client.key"
        self.log4j = self.path / "log4j2.properties"

    def home(self, broker_id: int) -> Path:
        """The folder of one broker."""
        return self.path / f"broker-{broker_id}"

    def properties(self, broker_id: int) -> Path:
        """The settings file of one broker."""
        return self.home(broker_id) / "server.properties"

    def log(self, broker_id: int) -> Path:
        """The log of one broker."""
        return self.home(broker_id) / "server.log"

    def password(self, user: str) -> str:
        """The password of a user, or of the key store (`keystore`)."""
        try:
            return cast(dict[str, str], read_json(self.credentials_file))[user]
        except (FileNotFoundError, KeyError):
            raise ClusterError(
                f"cluster {self.path.name} has no user {user!r}: was it started with SASL?"
            ) from None

    def read(self) -> State:
        """The state on disk. Raises ClusterError where there is no such cluster."""
        try:
            fields = cast(dict[str, object], read_json(self.state_file))
            brokers = tuple(Broker(**broker) for broker in cast(list[dict[str, Any]], fields.pop("brokers")))
            return State(**fields, brokers=brokers)  # type: ignore[arg-type]  # as `write` wrote it
        except FileNotFoundError:
            raise ClusterError(f"there is no cluster {self.path.name} in {self.path.parent}") from None
        except (AttributeError, KeyError, TypeError) as error:
            raise ClusterError(f"{self.state_file} is of another version; remove {self.path}") from error

    def write(self, state: State) -> None:
        """Replace the state on disk."""
        fields = state._asdict() | {"brokers": [broker._asdict() for broker in state.brokers]}
        write_private(self.state_file, json.dumps(fields, indent=2) + "\n")


def create(folder: Folder, count: int, sasl: bool, jars: Path) -> None:
    """Make a new cluster in an empty folder (what a start that was cut off left there is removed)."""
    for leftover in folder.path.iterdir():
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
    folder.path.chmod(0o700)
    write_private(folder.log4j, LOG4J)
    if sasl:
        write_private(folder.credentials_file, json.dumps(make_passwords()))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
    without_ports = tuple(Broker(number, 0, 0, 0) for number in range(1, count + 1))
    state = assign_ports(folder, State(cluster_id, sasl, False, "", without_ports))
    with ThreadPoolExecutor() as pool:  # each of these is a Java of its own, a second or two
        jobs = [pool.submit(_format, folder, broker.id, state, jars) for broker in state.brokers]
        if sasl:
            jobs.append(pool.submit(_make_certificate, folder))
            jobs.append(pool.submit(_make_client_certificate, folder))
        for job in jobs:
            job.result()
    folder.write(state._replace(formatted=True))


def assign_ports(folder: Folder, state: State) -> State:
    """Give the brokers ports, new ones when an old one is taken; write state and settings. None may run."""
    data = folder.path.parent
    with locked(data, TOOL_TIMEOUT_S):  # one at a time, so that no two clusters choose the same
        if not all(port > 0 and port_is_free(port) for broker in state.brokers for port in broker.ports):
            ports = iter(free_ports(4 * len(state.brokers), set(_ports_in(data))))
            state = state._replace(
                brokers=tuple(_with_ports(broker, ports, state) for broker in state.brokers)
            )
        state = state._replace(bootstrap=",".join(f"127.0.0.1:{broker.port}" for broker in state.brokers))
        folder.write(state)
    security = None
    if state.sasl:
        passwords = {name: folder.password(name) for name in ("keystore", ADMIN, GUEST)}
        security = Security(folder.keystore, folder.client_cert, passwords)
    for broker in state.brokers:
        folder.home(broker.id).mkdir(exist_ok=True)
        properties = server_properties(broker, state.brokers, folder.home(broker.id) / "data", security)
        write_private(folder.properties(broker.id), properties)
    return state


def _with_ports(broker: Broker, ports: Iterator[int], state: State) -> Broker:
    port, controller_port, internal_port, tls_port = (next(ports) for _ in range(4))
    if not state.sasl:
        internal_port = tls_port = port
    return Broker(broker.id, port, controller_port, internal_port, tls_port=tls_port)


def _ports_in(data: Path) -> Iterator[int]:
    for state_file in data.glob("*/cluster.json"):
        with suppress(ClusterError):  # damaged, or removed just now: no reason to start nothing else
            for broker in Folder(state_file.parent).read().brokers:
                yield from broker.ports


def _format(folder: Folder, broker_id: int, state: State, jars: Path) -> None:
    arguments = ["format", "-t", state.cluster_id, "-c", str(folder.properties(broker_id))]
    if state.sasl:
        for user in (ADMIN, GUEST):
            login = f"[name={user},password={folder.password(user)}]"
            for mechanism in SCRAM_MECHANISMS:
                arguments += ["--add-scram", f"{mechanism}={login}"]
    given = folder.home(broker_id) / "format.args"  # a private file: anyone can read a command line
    write_private(given, "\n".join(arguments))
    command = java_command(jars, tool_options(folder.log4j), "kafka.tools.StorageTool", [f"@{given}"])
    run_tool(command, folder.log(broker_id), TOOL_TIMEOUT_S)
    given.unlink()


def _make_certificate(folder: Folder) -> None:
    """A self-signed certificate for all brokers, and its public half for clients."""
    log = folder.path / "keytool.log"
    store = ["-keystore", str(folder.keystore), "-storetype", "PKCS12", "-storepass:env", "STORE_PASSWORD"]
    env = {"STORE_PASSWORD": folder.password("keystore")}
    names = ["-dname", "CN=localhost", "-ext", "SAN=dns:localhost,ip:127.0.0.1", "-ext", "BC:c=ca:true"]
    key = ["-alias", "broker", "-keyalg", "RSA", "-keysize", "2048", "-validity", "3650"]
    run_tool([keytool(), "-genkeypair", *key, *names, *store], log, TOOL_TIMEOUT_S, env)
    folder.keystore.chmod(0o600)
    export = ["-exportcert", "-rfc", "-alias", "broker", "-file", str(folder.ca_file)]
    run_tool([keytool(), *export, *store], log, TOOL_TIMEOUT_S, env)


def _make_client_certificate(folder: Folder) -> None:
    """A self-signed certificate for clients, with its key; the brokers trust it itself."""
    files = ["-keyout", str(folder.client_key), "-out", str(folder.client_cert)]
    key = ["-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", f"/CN={CLIENT}"]
    run_tool([openssl(), "req", "-x509", *key, *files], folder.path / "openssl.log", TOOL_TIMEOUT_S)
    folder.client_key.chmod(0o600)
