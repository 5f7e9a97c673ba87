"""The processes of foreign systems: started with an environment of their own, heard once, and ended with the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from adapters.foreign.host.memories import Task
from simulator.errors import ProcessError

START_S: Final = 120.0
"""So long a system may take to import."""
_GRACE_S: Final = 6.0
"""So long a process has to end once its input has: a little longer than it gives itself."""
_READY = b"listening on "
_LAST_WORDS_S: Final = 1.0
_MOST_SAID_BYTES = 4096
_HOST = Path(__file__).with_name("host")
_PASSED = ("LANG", "LC_ALL", "TIKTOKEN_CACHE_DIR")
"""Variables of ours that a foreign process gets: no key, no proxy, no address."""


class ForeignProcess:
    """A host that runs. `url`: where it listens."""

    def __init__(self, process: Process, url: str, log: Path) -> None:
        self.url = url
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has died."""
        return self._process.returncode is not None

    def last_words(self) -> str:
        """How it ended, and what it said last. Blocking, and short."""
        return str(ProcessError("its process", self._process.returncode or 0, _said(self._log)))

    async def aclose(self) -> None:
        """End it, with all that it has started."""
        await _end(self._process)


def environment_for(variables: Mapping[str, str], python: Path, folder: Path) -> dict[str, str]:
    """The whole environment of a process that may write into `folder` alone. `variables`: the system's own, where
    `{home}` stands for its home."""
    home = folder / "home"
    own = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {
        "PATH": os.pathsep.join((str(python.parent), os.defpath)),
        "LANG": "C.UTF-8",
        **own,
        "HOME": str(home),
        "TMPDIR": str(folder / "tmp"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",  # the order of a set may reach a prompt
        "PYTHONUNBUFFERED": "1",  # what is said last is what one wants to read
        "PYTHONDONTWRITEBYTECODE": "1",  # a checkout is read, and stays as it is
        "NO_PROXY": "*",
        "DO_NOT_TRACK": "1",
        "ANONYMIZED_TELEMETRY": "False",
        "OPENAI_API_KEY": "none",
        "OPENBLAS_NUM_THREADS": "1",  # its threads wait by spinning
        "OMP_NUM_THREADS": "1",
        **{name: value.replace("{home}", str(home)) for name, value in variables.items()},
    }


async def start_process(
    python: Path, task: Task, variables: Mapping[str, str], log: Path, deadline_s: float = START_S
) -> ForeignProcess:
    """Start a host and wait until it listens. What it says is added to `log`. Raises ProcessError where it ends
    instead, or says nothing in time."""
    folder = Path(task.directory)
    environment = environment_for(variables, python, folder)
    await anyio.to_thread.run_sync(_make_folders, folder)
    said = await anyio.to_thread.run_sync(_open_log, log)
    with said:
        process = await anyio.open_process(
            [str(python), "-s", "-P", str(_HOST)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    try:
        line = await _first_line(process, task, deadline_s)
    except BaseException:
        await _end(process)
        raise
    if line.startswith(_READY):
        return ForeignProcess(process, line.removeprefix(_READY).decode(), log)
    late = process.returncode is None
    await _end(process)
    last = await anyio.to_thread.run_sync(_said, log)
    raise ProcessError(
        "its process",
        process.returncode or 0,
        [*last, f"it was not ready within {deadline_s:g} s"] if late else last,
    )


async def _first_line(process: Process, task: Task, deadline_s: float) -> bytes:
    """Give it its task, and wait for its word; empty where none came."""
    assert process.stdin is not None
    assert process.stdout is not None
    output = BufferedByteReceiveStream(process.stdout)
    with anyio.move_on_after(deadline_s), suppress(anyio.BrokenResourceError, anyio.IncompleteRead):
        await process.stdin.send(json.dumps(task._asdict()).encode() + b"\n")
        return await output.receive_until(b"\n", _MOST_SAID_BYTES)
    with anyio.move_on_after(_LAST_WORDS_S):  # one that ends closes its output first
        await process.wait()
    return b""


def _make_folders(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("home", "tmp"):
        (folder / name).mkdir(parents=True)


def _open_log(log: Path) -> BinaryIO:
    log.parent.mkdir(parents=True, exist_ok=True)
    return log.open("ab")


def _said(log: Path) -> list[str]:
    """The last lines of a process's log."""
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_SAID_BYTES))
        return file.read().decode(errors="replace").splitlines()


async def _end(process: Process) -> None:
    """Let a process end, or kill it, and kill what it has left; even when cancelled."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            assert process.stdin is not None
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await process.stdin.aclose()
            with anyio.move_on_after(_GRACE_S):
                await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.aclose()
