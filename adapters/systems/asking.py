"""Several calls of one operation at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from simulator.errors import ModelError

T = TypeVar("T")


async def all_of(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """What each call gives, in order. Where some raise ModelError the others go on all the same, since what they come
    to is in the cache for the next time; then the first of these errors is raised."""
    given: dict[int, T] = {}
    failures: dict[int, ModelError] = {}

    async def ask(number: int) -> None:
        try:
            given[number] = await calls[number]()
        except ModelError as error:
            failures[number] = error

    async with anyio.create_task_group() as asking:
        for number in range(len(calls)):
            asking.start_soon(ask, number)
    if failures:
        raise failures[min(failures)]
    return [given[number] for number in range(len(calls))]
