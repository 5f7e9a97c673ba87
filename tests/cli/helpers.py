"""Runs the real `egostream` script, the one that is installed beside this Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SCRIPT = Path(sys.executable).with_name("egostream")
DEADLINE_S = 240.0
"""Ends a hang; measures nothing."""
PLAIN = {"COLUMNS": "80", "PYTHONUNBUFFERED": "1"}


class Ran(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    path = f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated environment
    return {**os.environ, "PATH": path, **PLAIN, **(more or {})}


def egostream(
    *args: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> Ran:
    """Run a command to its end."""
    ran = subprocess.run(
        [SCRIPT, *map(str, args)],
        cwd=cwd,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=deadline_s,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@contextmanager
def started(*args: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command under way; killed at the end if it is still there."""
    process = subprocess.Popen(
        [SCRIPT, *map(str, args)],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupt(process: subprocess.Popen[str]) -> Ran:
    """Ctrl-C, and what the command made of it."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    return Ran(process.returncode, out, err)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until it holds; fails if the process ends first."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has(run: Path, topic: str, *filters: str) -> bool:
    """Whether a run has a record in a topic yet."""
    if not (run / "log.db").exists():
        return False
    where = [word for text in filters for word in ("--where", text)]
    return bool(egostream("tap", run, topic, "-n", 1, "--json", "-q", *where).out)


def one_line(ran: Ran) -> str:
    """The only line on standard error, where nothing is on standard output."""
    assert ran.out == ""
    assert ran.err.endswith("\n")
    (line,) = ran.err.splitlines()
    assert "Traceback" not in line
    return line
