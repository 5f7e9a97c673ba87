"""The machine that a load ran on: a latency says nothing without it, so it stands in the run's identity.

Needs the extra `egostream[load]` for psutil: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

import os
import platform
import sys

import msgspec
import psutil


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """`cores`: how many logical processors this process may use, of `cores_in_all`."""

    cores: int
    cores_in_all: int
    memory_bytes: int
    processor: str
    os: str
    python: str


def this_machine() -> Machine:
    """The one that this runs on, now. Blocking."""
    in_all = os.cpu_count() or 1
    # elsewhere than on Linux no process is held to some of them
    mine = len(os.sched_getaffinity(0)) if sys.platform == "linux" else in_all
    return Machine(
        cores=mine,
        cores_in_all=in_all,
        memory_bytes=psutil.virtual_memory().total,
        processor=platform.machine(),
        os=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
    )
