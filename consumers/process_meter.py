"""The process meter: says in the log, once a second, what its process used, and how late its event loop came.

Needs the extra `egostream[load]` for psutil: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

import itertools

import anyio
import anyio.to_thread
import psutil

from simulator.events import ProcessSampleEvent, RunStartedEvent
from simulator.log.protocol import Log
from simulator.topics import Recorder

SAMPLE_S = 1.0
_TICK_S = 0.01


async def meter_process(log: Log, started: RunStartedEvent, process: str, *, children: bool = True) -> None:
    """Write a sample each second, until cancelled. `process` names it; two in one run need two names. `children`: count
    those that it started: not where they do so themselves."""
    recorder = Recorder.for_run(started)
    me = psutil.Process()
    for number in itertools.count():
        lag_us = await _loop_lag_us()
        used = await anyio.to_thread.run_sync(_used, me, children)
        sample = ProcessSampleEvent(
            id=f"sample/{process}/{number}",
            run=started.run,
            event_time_us=started.event_time_us,
            process=process,
            sample=number,
        )
        await log.append([recorder.record(sample, loop_lag_us=lag_us, **used)])


async def _loop_lag_us() -> int:
    """The longest that a timer came late, of all within a second. A stall of the whole second counts whole."""
    until_s = anyio.current_time() + SAMPLE_S
    longest_s = 0.0
    while (before_s := anyio.current_time()) < until_s:
        await anyio.sleep(_TICK_S)
        longest_s = max(longest_s, anyio.current_time() - before_s - _TICK_S)
    return round(longest_s * 1e6)


def _used(me: psutil.Process, children: bool) -> dict[str, int]:
    """Processor time and memory of a process and its children. Blocking: reads files of the kernel."""
    own = me.cpu_times()
    children_s, children_bytes = 0.0, 0
    for child in me.children(recursive=True) if children else ():
        try:
            with child.oneshot():
                times, memory = child.cpu_times(), child.memory_info()
        except psutil.NoSuchProcess:
            continue  # it ended between the two looks
        children_s += times.user + times.system
        children_bytes += memory.rss
    return {
        "cpu_us": round((own.user + own.system) * 1e6),
        "rss_bytes": me.memory_info().rss,
        "children_cpu_us": round(children_s * 1e6),
        "children_rss_bytes": children_bytes,
    }
