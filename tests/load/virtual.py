"""Virtual time: an event loop whose clock stands still while anything is being done, and jumps to the next timer when
nothing is. The whole of egostream runs in it, threads and files included, and takes no time at all: what takes time is
what sleeps. So a queue comes out as theory has it, to the microsecond, on a machine of any speed.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio.to_thread
import pytest

T = TypeVar("T")
_LOOK_S = 0.05


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.loop.busy or timeout is None:
            return super().select(_LOOK_S)  # a thread is at work: time stands still
        self.loop.virtual_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual_s = 0.0
        self.busy = 0
        """Calls in worker threads."""
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.virtual_s

    def block(self, seconds: float) -> None:
        """What `time.sleep` does to a real loop: time passes, and nothing runs."""
        self.virtual_s += seconds


class _Time:
    """In place of the module `time`, where stamps and the replay's clock are taken."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic_ns(self) -> int:
        return round(self._loop.virtual_s * 1e9)

    def clock_gettime_ns(self, _: int) -> int:
        return self.monotonic_ns()

    def monotonic(self) -> float:
        return self._loop.virtual_s


@contextmanager
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Runner]:
    """A runner whose loop has virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        in_thread = anyio.to_thread.run_sync

        async def counted(function: Callable[..., T], *args: Any, **options: Any) -> T:
            loop.busy += 1
            try:
                return await in_thread(function, *args, **options)
            finally:
                loop.busy -= 1

        monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
        for module in ("simulator.timebase", "simulator.clock"):
            monkeypatch.setattr(f"{module}.time", _Time(loop))
        yield runner


def run(monkeypatch: pytest.MonkeyPatch, function: Callable[[], Awaitable[T]]) -> T:
    """Await a function in virtual time."""

    async def body() -> T:
        return await function()

    with virtual_time(monkeypatch) as runner:
        return runner.run(body())
