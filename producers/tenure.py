"""One of several at work: the others stand by, and one whose place was taken is stopped and stands by again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import anyio
import structlog

from simulator.errors import FencedError
from simulator.log.protocol import Log, Record, Subscription
from simulator.ownership import Ownership

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Appends(Protocol):
    """What records can be appended to: a log, or a log as the one at work."""

    async def append(self, records: Sequence[Record]) -> None:
        """Append a batch."""


async def work_alone(
    log: Log, group: str, topic: str, guarded: Iterable[str], work: Callable[[Appends], Awaitable[T]]
) -> T:
    """Stand by until no other member of `group` is at work; then work, and give what that gave.

    What `work` appends to the `guarded` topics is refused once another has taken over: work is then cancelled, and
    begins anew when its turn comes again, from what the log holds by then. `topic` is any of the run's: a group has to
    read one, and with it hears at once that it was superseded.
    """
    async with log.subscribe([topic], group=group, exclusive=True) as subscription:
        ownership = Ownership(subscription, [topic])
        while True:
            gained, _ = ownership.change()
            if gained and await ownership.take_over(gained):
                try:
                    await subscription.guard(guarded)
                    return await _while_owner(subscription, ownership, work)
                except FencedError as error:
                    _log.warning("superseded", group=group, reason=str(error))
                    ownership.put_off(gained)  # where it still is ours, it comes again
            await subscription.poll()


async def _while_owner(
    subscription: Subscription, ownership: Ownership, work: Callable[[Appends], Awaitable[T]]
) -> T:
    """Work beside a poll that keeps the membership. Errors are raised as they are, and not in a group."""
    outcome: list[T] = []
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            nonlocal failure
            try:
                outcome.append(await work(subscription))
            except Exception as error:
                failure = error
            tasks.cancel_scope.cancel()

        tasks.start_soon(run)
        while True:
            try:
                await subscription.poll()
            except Exception as error:
                failure = failure or error
                tasks.cancel_scope.cancel()
                break
            gained, lost = ownership.change()
            if gained or lost:
                ownership.put_off(gained)
                failure = failure or FencedError("another has been at work")
                tasks.cancel_scope.cancel()
                break
    if outcome:
        return outcome[0]
    assert failure is not None  # else this was cancelled, and did not come here
    raise failure
