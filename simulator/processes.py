"""Processes of our own: started together, ended together, and none left behind.

Each is `egostream` with some arguments. It gets its task as one line on standard input, which then stays open as long
as it is to live: whoever started it may die in any way, and it ends all the same (`until_input_ends`). It is a
session of its own, so that Ctrl-C is told to nobody but the starter.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import anyio
import structlog
from anyio.abc import ByteReceiveStream, Process

from simulator.errors import ProcessError

END_S = 30.0
"""When the leader has ended, the others have so long to do so."""
_GRACE_S = 5.0
"""So long a process has to end once its input has, before it is killed."""
_LAST_WORDS_S = 1.0
"""Standard error may be held open by what the process had started."""
_KEPT_LINES = 20

_log = structlog.get_logger(__name__)


async def run_processes(tasks: Mapping[str, bytes], command: tuple[str, ...], leader: str) -> None:
    """Start `egostream COMMAND` for each task, by name, and wait until all have ended; when the leader has, the
    others have `END_S`. Cancelled, it leaves none. Raises ProcessError for one that failed, and then none is left."""
    running = set(tasks)
    with anyio.CancelScope() as scope:

        async def run(name: str, task: bytes) -> None:
            await _run(name, command, task)
            running.discard(name)
            if name == leader:
                scope.deadline = anyio.current_time() + END_S

        async with anyio.create_task_group() as group:
            for name, task in tasks.items():
                group.start_soon(run, name, task, name=name)
    if scope.cancelled_caught:
        _log.warning("killed", processes=sorted(running), reason=f"not over {END_S:g} s after {leader} was")


async def _run(name: str, command: tuple[str, ...], task: bytes) -> None:
    """One process to its end. Raises ProcessError, with its last words."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = await anyio.open_process(
        [sys.executable, "-m", "egostream", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    said: deque[str] = deque(maxlen=_KEPT_LINES)
    try:
        assert process.stdin is not None
        assert process.stderr is not None
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, process.stderr, said)
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # it has ended: it says why
                await process.stdin.send(task + b"\n")
            code = await process.wait()
            group.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS_S
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    if code:
        raise ProcessError(name, code, said)
    for line in said:
        _log.warning("said", process=name, line=line)


async def _hear(stream: ByteReceiveStream, said: deque[str]) -> None:
    """Keep the last lines of a stream."""
    rest = b""
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            said.extend(line.decode(errors="replace") for line in lines)
    if rest:
        said.append(rest.decode(errors="replace"))


async def _end(process: Process) -> None:
    """Let a process end, or kill it with what it had started."""
    if process.returncode is None:
        assert process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.aclose()
        with anyio.move_on_after(_GRACE_S):
            await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):  # it has ended since
            os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()


async def until_input_ends(work: Callable[[], Awaitable[None]]) -> bool:
    """In such a process: work, but no longer than standard input lasts. Whether the work was done."""
    loop, ended = asyncio.get_running_loop(), anyio.Event()

    def look() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            ended.set()

    async def watch(scope: anyio.CancelScope) -> None:
        await ended.wait()
        scope.cancel()

    loop.add_reader(sys.stdin.fileno(), look)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(watch, group.cancel_scope)
            await work()
            group.cancel_scope.cancel()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return not ended.is_set()
