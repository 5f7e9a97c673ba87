"""Broker processes: started apart from us, known again later by pid and command line, and ended."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from dev.kafka.files import ClusterError

# Below Linux's and macOS's ephemeral ports: a client that retries a dead broker's port from such a port can
# connect to itself, and then the broker can't have its port back.
PORTS = range(20_000, 32_000)


def free_ports(count: int, taken: Collection[int]) -> list[int]:
    """Ports of 127.0.0.1 that nobody has bound, and that are not `taken`. Raises ClusterError."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if port not in taken and port_is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise ClusterError(f"127.0.0.1 has no {count} free ports from {PORTS.start} to {PORTS.stop}")


def port_is_free(port: int) -> bool:
    """Whether a server could listen there now (as servers do, past connections that linger)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def spawn(command: Sequence[str], log: Path) -> int:
    """Start a process in a session of its own, so that our terminal's signals and our end do not touch it.
    Its output is added to `log`. Returns its pid, after the command has taken the process over."""
    with log.open("ab") as out:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, out.fileno(), 2),
        ]
        return os.posix_spawn(command[0], list(command), os.environ, file_actions=actions, setsid=True)


def is_alive(pid: int, marker: str) -> bool:
    """Whether this pid still is the process whose command line names `marker`. One that was given to another
    process since is not, nor one that died and was not yet waited for."""
    if pid <= 0:
        return False
    if marker in _command_line(pid):
        return True
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # our own dead child; somebody else's can't be waited for
    return False


def _command_line(pid: int) -> str:
    if Path("/proc/self/cmdline").exists():
        with suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""
    shown = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return shown.stdout


def send(processes: Collection[tuple[int, str]], number: signal.Signals) -> None:
    """Send a signal to those of the processes (pid, marker) that live."""
    for pid, marker in processes:
        if is_alive(pid, marker):
            with suppress(ProcessLookupError):  # it ended in between
                os.kill(pid, number)


def wait_gone(processes: Collection[tuple[int, str]], timeout_s: float) -> bool:
    """Wait until none of the processes lives; False when some still do after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while any(is_alive(pid, marker) for pid, marker in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def end(processes: Collection[tuple[int, str]], grace_s: float) -> None:
    """Ask the processes to end, kill those that have not after `grace_s`. Raises ClusterError when even that
    does not end them."""
    send(processes, signal.SIGTERM)
    if not wait_gone(processes, grace_s):
        kill(processes)


def kill(processes: Collection[tuple[int, str]]) -> None:
    """Kill the processes (SIGKILL) and wait until they are gone. Raises ClusterError when they are not."""
    send(processes, signal.SIGKILL)
    if not wait_gone(processes, 20):
        pids = ", ".join(str(pid) for pid, marker in processes if is_alive(pid, marker))
        raise ClusterError(f"processes that can't be killed: {pids}")
