"""What this process holds: processes that it started, open files and sockets, threads, tasks. From /proc, where there
is one."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

import anyio

_POOLS = ("AnyIO worker thread", "asyncio_")
"""Threads of event loops' own pools: they grow by how many calls are under way, whoever makes them."""


class Holding(NamedTuple):
    """How many there are of each."""

    processes: int
    files: int
    threads: int
    tasks: int

    @classmethod
    def now(cls) -> Holding:
        """What this process holds at this moment; files (sockets among them) and processes are 0 without /proc."""
        return cls(
            processes=len(descendants()),
            files=_open_files(),
            threads=sum(not thread.name.startswith(_POOLS) for thread in threading.enumerate()),
            tasks=len(anyio.get_running_tasks()),
        )

    def beyond(self, before: Holding) -> dict[str, int]:
        """Of what there is more than before, and how many."""
        return {
            name: now - then for name, now, then in zip(self._fields, self, before, strict=True) if now > then
        }


def descendants() -> frozenset[int]:
    """Processes that this one started, and theirs; no zombies, which only wait to be asked how they ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_bytes().rpartition(b") ")[2].split()[:2]
        except (OSError, ValueError):  # it has ended
            continue
        if state not in (b"Z", b"X"):
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child)
    return frozenset(found)


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
