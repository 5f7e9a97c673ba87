"""A process of its own on a log: `python -m tests.log.worker ROLE LOG [ARGUMENT]`. It says `ready` when it
is, and then one line for each thing that it has done."""

from __future__ import annotations

import sys

import anyio

from simulator.log import Log, open_log
from tests.log.helpers import record


def say(text: str) -> None:
    print(text, flush=True)


async def write(log: Log, name: str) -> None:
    """Appends batches for ever; says the number of each that was acknowledged."""
    say("ready")
    number = 0
    while True:
        await log.append([record("a", b"%s %d %d" % (name.encode(), number, i)) for i in range(20)])
        say(str(number))
        number += 1


async def write_some(log: Log, name: str) -> None:
    """Appends 50 batches."""
    say("ready")
    for number in range(50):
        await log.append([record("a", b"%s %d %d" % (name.encode(), number, i)) for i in range(20)])


async def join(log: Log, group: str) -> None:
    """Is a member of a group and reads; never commits."""
    async with log.subscribe(["a"], group=group) as subscription:
        while True:
            await subscription.poll(timeout_s=0.1)
            say(f"ready {len(subscription.assignment)}")


async def echo(log: Log, _: str) -> None:
    """Says every value that arrives."""
    async with log.subscribe(["a"], start="latest") as subscription:
        say("ready")
        while True:
            for got in await subscription.poll(timeout_s=60):
                say(got.value.decode())


async def main(role: str, path: str, argument: str = "") -> None:
    async with open_log(path) as log:
        await log.create_topics({"a": 2 if role == "join" else 1})
        await {"write": write, "write_some": write_some, "join": join, "echo": echo}[role](log, argument)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
