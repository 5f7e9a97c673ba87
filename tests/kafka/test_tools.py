"""What starts brokers, tried without brokers: missing tools, failing downloads, Java that dies or hangs,
locks, process identity, and the wire protocol."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.kafka import processes, storage, wire
from dev.kafka.cluster import Cluster, ClusterError, main, missing_tools, named, start
from dev.kafka.files import locked, write_private
from dev.kafka.processes import Process
from dev.kafka.settings import Broker, server_properties
from dev.kafka.tools import JAVA_AT_LEAST
from tests.conftest import ROOT

SCRIPT = ROOT / "dev" / "kafka" / "cluster.py"


class Tools:
    """A machine with only the tools that a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.jars = folder / "jars"
        self.data = folder / "data"
        self.bin.mkdir()

    def add(self, name: str, python: str) -> None:
        """A tool that runs this Python."""
        tool = self.bin / name
        tool.write_text(f"#!{sys.executable} -I\nimport sys, time, pathlib\n{python}\n")
        tool.chmod(0o755)

    def add_java(self, broker: str, version: str = "21.0.1") -> None:
        """A Java that formats storage without a word, and as a broker runs this Python."""
        self.add(
            "java",
            "if '-version' in sys.argv:\n"
            f"    sys.stderr.write('openjdk version \"{version}\"\\n')\n"
            "    sys.exit()\n"
            f"if 'kafka.Kafka' in sys.argv:\n    {broker}",
        )
        self.add("keytool", "")

    def add_maven(self, before: str = "") -> None:
        """A Maven that does `before`, and then copies one jar."""
        self.add(
            "mvn",
            f"{before}\n"
            "folder = pathlib.Path(next(a for a in sys.argv if 'outputDirectory' in a).partition('=')[2])\n"
            "(folder / 'kafka_2.13-4.0.0.jar').touch()",
        )


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    tools = Tools(tmp_path)
    monkeypatch.setenv("PATH", str(tools.bin))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("EGOSTREAM_KAFKA_JARS", str(tools.jars))
    return tools


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_machine_without_java_and_maven_gets_one_line_and_code_2(tools: Tools) -> None:
    assert missing_tools() == [
        f"Java {JAVA_AT_LEAST} or newer",
        "keytool (part of Java)",
        "mvn (Apache Maven)",
    ]
    for command in ("start", "fetch"):
        done = script(command)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(r"kafka: a Kafka broker needs Java 17 or newer, .*mvn.*\n", done.stderr)


@pytest.mark.parametrize(("version", "shown"), [("11.0.2", "11"), ("1.8.0_402", "8")])
def test_an_old_java_is_named_with_its_version(tools: Tools, version: str, shown: str) -> None:
    tools.add_java("pass", version)
    tools.add_maven()
    assert missing_tools() == [f"Java 17 or newer ({tools.bin}/java is {shown})"]


def test_a_failed_download_gives_mavens_reason_in_one_line_and_leaves_nothing(tools: Tools) -> None:
    tools.add_java("pass")
    tools.add_maven("print('[ERROR] no such host'); print('[ERROR] see the manual'); sys.exit(1)")
    done = script("fetch")
    assert done.returncode == 2
    assert done.stderr == "kafka: the Kafka jars could not be fetched from Maven Central: no such host\n"
    assert list(tools.jars.iterdir()) == []


def test_fetches_at_once_make_one_download(tools: Tools) -> None:
    tools.add_java("pass")
    count = tools.bin / "count"
    tools.add_maven(f"open({str(count)!r}, 'a').write('x'); time.sleep(0.5)")
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda _: script("fetch"), range(3)))
    assert [d.returncode for d in done] == [0, 0, 0]
    assert len({d.stdout for d in done}) == 1
    assert count.read_text() == "x"
    assert Path(done[0].stdout.strip()).parent == tools.jars
    (tools.bin / "mvn").unlink()
    assert missing_tools() == []  # Maven has done its part


def test_a_broker_that_dies_is_an_error_with_the_end_of_its_log(tools: Tools) -> None:
    tools.add_java("print('starting'); print('boom: the disk is full'); sys.exit(1)")
    tools.add_maven()
    with pytest.raises(ClusterError, match=r"(?s)broker 1 of cluster dev ended.*boom: the disk is full"):
        start(data=tools.data)
    assert [broker.running for broker in named(data=tools.data).status()] == [False]


def test_a_port_that_another_took_once_it_was_chosen_is_left_to_it(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tools.bin / "count"
    tools.add_java(f"open({str(count)!r}, 'a').write('x'); sys.exit('in use')")
    tools.add_maven()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        chosen = iter([[taken, *processes.free_ports(3, ())]])
        monkeypatch.setattr(storage, "free_ports", lambda *asked: next(chosen, processes.free_ports(*asked)))
        with pytest.raises(ClusterError, match="ended"):
            start(data=tools.data)
    assert count.read_text() == "xx"
    (broker,) = named(data=tools.data).state.brokers
    assert taken not in broker.ports


def test_brokers_that_never_get_ready_are_ended_and_the_reason_told(tools: Tools) -> None:
    tools.add_java("print('thinking', flush=True); time.sleep(600)")
    tools.add_maven()
    with pytest.raises(ClusterError, match=r"(?s)not ready after 6 s .*refused.*thinking"):
        start(brokers=3, data=tools.data, timeout_s=6)  # in which each can say what it thinks
    cluster = named(data=tools.data)
    assert [broker.pid > 0 for broker in cluster.status()] == [True] * 3
    assert [broker.running for broker in cluster.status()] == [False] * 3
    cluster.stop()
    assert list(tools.data.iterdir()) == []


def test_a_start_that_was_cut_off_is_begun_anew(tools: Tools) -> None:
    tools.add_java("sys.exit('no')")
    tools.add_maven()
    with pytest.raises(ClusterError):
        start(data=tools.data)
    cluster = named(data=tools.data)
    before = cluster.state
    cluster.folder.write(before._replace(formatted=False))
    (cluster.folder.home(1) / "half").touch()
    with pytest.raises(ClusterError, match="ended"):
        start(brokers=3, data=tools.data)
    assert cluster.state.cluster_id != before.cluster_id
    assert len(cluster.state.brokers) == 3
    assert not (cluster.folder.home(1) / "half").exists()


def test_a_pid_of_another_process_is_no_broker_and_is_left_alone(tools: Tools) -> None:
    tools.add_java("sys.exit('no')")
    tools.add_maven()
    with pytest.raises(ClusterError):
        start(data=tools.data)
    cluster = named(data=tools.data)
    (broker,) = cluster.state.brokers
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        cluster.folder.write(cluster.state._replace(brokers=(broker._replace(pid=bystander.pid),)))
        assert [status.running for status in cluster.status()] == [False]
        cluster.kill(1)
        cluster.stop()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_is_not_there_or_not_possible_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data", str(tmp_path)]
    assert main(["status", *where]) == 1
    assert main(["kill", "1", *where]) == 1
    assert main(["restart", "1", *where]) == 1
    assert capsys.readouterr().err.splitlines() == [f"kafka: there is no cluster dev in {tmp_path}"] * 3
    assert main(["stop", *where]) == 0
    assert main(["stop", "--all", *where]) == 0
    for name in ("../up", "jars", "Über", ""):
        assert main(["start", "--name", name, *where]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_state_names_the_folder_to_remove(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "dev")
    (tmp_path / "dev").mkdir()
    for text in ("{", "[]", "{}", '{"brokers": [{"id": 1, "colour": 2}]}'):
        cluster.folder.state_file.write_text(text)
        with pytest.raises(ClusterError, match="remove"):
            cluster.status()


@pytest.mark.parametrize("password", ["short", "with space in it", "a,b,c,d,e,f]", "new\nline-in-it"])
def test_a_password_that_kafka_can_not_take_is_refused_unseen(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    tools.add_java("sys.exit('no')")
    tools.add_maven()
    monkeypatch.setenv("EGOSTREAM_KAFKA_ADMIN_PASSWORD", password)
    assert main(["start", "--sasl", "--data", str(tools.data)]) == 2
    shown = capsys.readouterr().err
    assert "$EGOSTREAM_KAFKA_ADMIN_PASSWORD must be" in shown
    assert password not in shown


def test_a_process_lives_until_it_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os, signal, time; print(os.getsid(0) == os.getpid(), flush=True); "
    deaf = code + "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    process = processes.spawn([sys.executable, "-c", deaf], log)
    assert processes.is_alive(process)
    assert not processes.is_alive(process._replace(born="1"))
    while "deaf" not in log.read_text():
        assert processes.is_alive(process)
    processes.end([process, Process()], grace_s=0.2)
    assert not processes.is_alive(process)
    assert not Path("/proc", str(process.pid)).exists()
    assert log.read_text().startswith("True\n")  # in a session of its own


def test_ports_are_free_not_taken_and_different() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not processes.port_is_free(server.getsockname()[1])
    taken = set(processes.PORTS) - set(range(25_000, 25_200))
    ports = processes.free_ports(9, taken)
    assert len(set(ports)) == 9
    assert not set(ports) & taken
    with pytest.raises(ClusterError, match="free ports"):
        processes.free_ports(1, processes.PORTS)


def test_a_folder_is_held_by_one_and_can_be_removed_by_its_holder(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    entered, leave, got = threading.Event(), threading.Event(), []

    def second() -> None:
        with locked(folder, 30):
            got.append(folder.exists())

    with locked(folder, 1):
        with pytest.raises(ClusterError, match="another process"), locked(folder, 0.1):
            entered.set()
        assert not entered.is_set()
        waiting = threading.Thread(target=second)
        waiting.start()
        leave.wait(0.2)
        assert got == []
        folder.rmdir()  # as `stop` does
    waiting.join(30)
    assert got == [True]  # it holds the folder that is there now, not the removed one


def test_private_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        for text in ("one", "two"):
            write_private(tmp_path / "secret", text)
    finally:
        os.umask(mask)
    assert (tmp_path / "secret").read_text() == "two"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_docker_users_get_the_same_settings() -> None:
    text = (ROOT / "compose.yaml").read_text()
    given = {
        name.lower().replace("_", "."): value
        for name, value in re.findall(r'^ +KAFKA_([A-Z_]+): "?([^"\n]*)"?$', text, re.MULTILINE)
    }
    ours = dict(
        line.split("=", 1)
        for line in server_properties(Broker(1, 1, 2, 1), [Broker(1, 1, 2, 1)], Path("x"), None).splitlines()
    )
    addresses = {"controller.quorum.voters", "listeners", "advertised.listeners", "log.dirs"}
    names = {"listener.security.protocol.map", "inter.broker.listener.name"}
    machine = {"log.cleaner.dedupe.buffer.size", "broker.session.timeout.ms"}  # for small heaps and for kills
    assert set(ours) - set(given) == machine
    differ = {name for name in given if name in ours and given[name] != ours[name]}
    assert differ == addresses | names
    assert set(given) <= set(ours)


def answer(*, brokers: dict[int, tuple[str, int]], controller: int, correlation: int = 7) -> bytes:
    packed = struct.pack(">ii", correlation, len(brokers))
    for node, (host, port) in brokers.items():
        name = host.encode()
        packed += struct.pack(">ih", node, len(name)) + name + struct.pack(">ih", port, -1)
    return packed + struct.pack(">ii", controller, 0)


many_brokers = st.dictionaries(
    st.integers(0, 2**31 - 1), st.tuples(st.text(max_size=30), st.integers(0, 65535)), max_size=5
)


@given(many_brokers, st.integers(-1, 9), st.data())
def test_metadata_is_read_whole_or_refused(
    brokers: dict[int, tuple[str, int]], controller: int, data: st.DataObject
) -> None:
    payload = answer(brokers=brokers, controller=controller)
    expected = {node: f"{host}:{port}" for node, (host, port) in brokers.items()}
    assert wire.parse_metadata(payload) == (expected, controller)
    cut = data.draw(st.integers(0, len(payload) - 5))  # before the last field that is read
    with pytest.raises(wire.WireError):
        wire.parse_metadata(payload[:cut])


@given(st.binary(max_size=60))
def test_rubbish_is_a_wire_error_or_an_answer(payload: bytes) -> None:
    for parse in (wire.parse_metadata, wire.parse_api_versions):
        with suppress(wire.WireError):
            parse(struct.pack(">i", 7) + payload)


def test_api_versions_are_read() -> None:
    payload = struct.pack(">ihi", 7, 0, 2) + struct.pack(">hhhhhh", 3, 0, 13, 18, 0, 4)
    assert wire.parse_api_versions(payload) == {3: (0, 13), 18: (0, 4)}
    with pytest.raises(wire.WireError, match="error code 35"):
        wire.parse_api_versions(struct.pack(">ihi", 7, 35, 0))


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], int]]:
    """Starts a server that answers every connection with these bytes and closes; returns its port."""
    servers: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(server: socket.socket, reply: bytes) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(reply)

    def begin(reply: bytes) -> int:
        servers.append(socket.create_server(("127.0.0.1", 0)))
        threads.append(threading.Thread(target=serve, args=(servers[-1], reply)))
        threads[-1].start()
        return int(servers[-1].getsockname()[1])

    yield begin
    for thread in threads:
        thread.join(10)
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"", "closed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no Kafka listener"),
        (struct.pack(">i", 100) + b"too little", "closed"),
        (struct.pack(">ii", 4, 99), "another request"),
    ],
)
def test_who_does_not_speak_kafka_is_told_apart(
    answering: Callable[[bytes], int], reply: bytes, reason: str
) -> None:
    with pytest.raises(wire.WireError, match=reason):
        wire.metadata(answering(reply), 60)


def test_silence_ends_at_the_deadline() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(wire.WireError, match="timed out"),
    ):
        wire.metadata(server.getsockname()[1], 0.2)
