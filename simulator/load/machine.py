"""The machine that a load ran on: a latency says nothing without it, so it stands in the run's identity.

Needs the extra `egostream[load]` for psutil: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import psutil

from simulator.errors import ConfigError


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


@contextmanager
def in_real_time() -> Iterator[None]:
    """Let this thread run before all others that share its processors, for as long as the body takes; threads and
    processes that it starts are not. Raises ConfigError where the system can't or may not do so."""
    if sys.platform != "linux":
        raise ConfigError("real-time scheduling is known on Linux only: leave out --real-time")
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    lowest = os.sched_param(os.sched_get_priority_min(os.SCHED_RR))
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, lowest)
    except PermissionError as error:
        raise ConfigError(
            "--real-time is not permitted here: run as root, or give the process CAP_SYS_NICE "
            "(docker run --cap-add SYS_NICE), or leave it out"
        ) from error
    try:
        yield
    finally:
        try:
            os.sched_setscheduler(0, *before)
        except PermissionError:  # whom only a resource limit permits it may not take that flag back
            policy, parameters = before
            os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, parameters)


def may_run_in_real_time() -> bool:
    """Whether `in_real_time` is permitted here."""
    try:
        with in_real_time():
            return True
    except ConfigError:
        return False
