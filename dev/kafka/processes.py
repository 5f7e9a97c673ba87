"""Processes apart from us: started, known again later by pid and time of birth, and ended."""

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
from typing import NamedTuple

from dev.kafka.files import ClusterError

# Below Linux's and macOS's ephemeral ports: a client that retries a dead broker's port from such a port can
# connect to itself, and then the broker can't have its port back.
PORTS = range(20_000, 32_000)
KILL_TIMEOUT_S = 20.0


class Process(NamedTuple):
    """One process for good: a pid alone is given away again, by this system or after its next start."""

    pid: int = 0  # 0: none
    born: str = ""


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


def spawn(command: Sequence[str], log: Path) -> Process:
    """Start a process in a session of its own, so that our terminal's signals and our end do not touch it.
    Its output is added to `log`."""
    with log.open("ab") as out:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, out.fileno(), 2),
        ]
        pid = os.posix_spawn(command[0], list(command), os.environ, file_actions=actions, setsid=True)
    found = _look(pid)  # is there even when it died at once: nobody has waited for it yet
    return Process(pid, found.born if found else "")


def is_alive(process: Process) -> bool:
    """Whether the process has not ended. One that dies is alive until its last thread is gone, since it holds
    its ports until then."""
    found = _look(process.pid) if process.pid > 0 else None
    if found is None or found.born != process.born:
        return False
    if found.ended:
        with suppress(ChildProcessError):  # somebody else's child is theirs to wait for
            os.waitpid(process.pid, os.WNOHANG)
    return not found.ended


def end(processes: Collection[Process], grace_s: float) -> None:
    """Ask the processes to end (SIGTERM), and kill those that have not after `grace_s`."""
    _signal(processes, signal.SIGTERM)
    if not _wait(processes, grace_s):
        kill(processes)


def kill(processes: Collection[Process]) -> None:
    """Kill the processes (SIGKILL) and wait until they are gone. Raises ClusterError when they are not."""
    _signal(processes, signal.SIGKILL)
    if not _wait(processes, KILL_TIMEOUT_S):
        left = ", ".join(str(process.pid) for process in processes if is_alive(process))
        raise ClusterError(f"processes that can't be killed: {left}")


def _signal(processes: Collection[Process], number: signal.Signals) -> None:
    for process in processes:
        if is_alive(process):
            with suppress(ProcessLookupError):  # it ended in between
                os.kill(process.pid, number)


def _wait(processes: Collection[Process], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while any(is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class _Found(NamedTuple):
    born: str
    ended: bool


def _look(pid: int) -> _Found | None:
    """The process that has this pid now."""
    if not Path("/proc/self/stat").exists():
        return _ask_ps(pid)
    folder = Path("/proc", str(pid))
    try:
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()  # see proc(5)
        state, ticks_since_boot = fields[0], fields[19]
        ended = state in "ZX" and len(list((folder / "task").iterdir())) <= 1
    except OSError:
        return None
    return _Found(ticks_since_boot, ended)


def _ask_ps(pid: int) -> _Found | None:
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    )
    state, _, born = shown.stdout.strip().partition(" ")
    return _Found(born.strip(), state.startswith("Z")) if born else None
