"""The wall clock that stamps are taken by: microseconds since 1970, of a clock that nobody can set.

It is the machine's monotonic clock and an offset. Each process measures the offset once; the one that sets a run up
writes it into `run_started`, with an id of the machine's boot, and every process of the same boot that reads it takes
that offset over. So all stamps of a run that were taken on one machine are readings of one clock, across processes
and restarts, and setting the wall clock meanwhile changes none of them. A process of another boot (another machine,
or this one before it was started anew) keeps its own offset, and its stamps say so.

A process takes stamps for one run at a time: reading another run of this boot goes over to that one's offset.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from pathlib import Path
from typing import Final

_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
"""Counts the time for which the machine was suspended (Linux); elsewhere `time.monotonic` has to do."""


def monotonic_us() -> int:
    """Microseconds of a clock that only goes on, the same in all processes of this boot."""
    return (time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)) // 1000


def _this_boot() -> str:
    """An id of this boot of this machine, and of its clock: on Linux a container may have one of its own.

    Where there is none to be read, each process counts as a machine: its clock is then compared, and not believed.
    """
    proc = Path("/proc")
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex(6)
    try:
        clock = os.readlink(proc / "self/ns/time")
    except OSError:  # a kernel without them: all have one
        clock = ""
    return hashlib.sha256(f"{boot} {clock}".encode()).hexdigest()[:12]


class _Timebase:
    def __init__(self) -> None:
        self.offset_us = time.time_ns() // 1000 - monotonic_us()


BOOT: Final = _this_boot()
_base = _Timebase()


def wall_us(at_us: int | None = None) -> int:
    """Microseconds since 1970: now, or at a moment that `monotonic_us` gave."""
    return _base.offset_us + (monotonic_us() if at_us is None else at_us)


def offset_us() -> int:
    """Wall time less monotonic time, as this process has it now."""
    return _base.offset_us


def adopt(boot: str, run_offset_us: int) -> None:
    """Take a run's offset over, if it was measured on this boot."""
    if boot == BOOT:
        _base.offset_us = run_offset_us
