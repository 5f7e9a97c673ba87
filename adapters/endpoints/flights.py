"""Equal work at one time is done once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from simulator.errors import EgostreamError

V = TypeVar("V")


class _Flight(Generic[V]):
    def __init__(self) -> None:
        self.over = anyio.Event()
        self.landed: list[V] = []
        self.error: EgostreamError | None = None


class Flights(Generic[V]):
    """Work under way, by key."""

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[V]] = {}

    async def once(self, key: bytes, work: Callable[[], Awaitable[V]]) -> tuple[V, bool]:
        """The work's result, and whether it was done for this caller: others share it, and its error. If the one who
        did it is cancelled, the next one begins again."""
        while (flight := self._flights.get(key)) is not None:
            await flight.over.wait()
            if flight.landed:
                return flight.landed[0], False
            if flight.error is not None:
                raise flight.error
        flight = self._flights[key] = _Flight()
        try:
            value = await work()
        except EgostreamError as error:
            flight.error = error
            raise
        else:
            flight.landed.append(value)
            return value, True
        finally:
            del self._flights[key]
            flight.over.set()
