"""A process of its own on a Kafka log: `python -m tests.kafka.worker ROLE URL`. It says `ready`, then what it
does."""

from __future__ import annotations

import sys

import anyio
from anyio import to_thread

from simulator.errors import FencedError
from simulator.log import Log, Record, TopicPartition, open_log
from simulator.outbox import positions_after


def say(text: str) -> None:
    print(text, flush=True)


async def copy(log: Log, turns: int | None = None) -> None:
    """Consume, process, produce: copies `in` to `out` for ever, or that many times, a few records at a time."""
    async with log.subscribe(["in"], group="copy") as subscription:
        say("ready")
        while turns != 0:
            got = await subscription.poll(max_records=7, timeout_s=1)
            out = [Record("out", r.key, r.value, r.timestamp_ms, r.headers, r.partition) for r in got]
            if out:
                await subscription.transact(out, positions_after(got))
                say(f"copied {len(out)}")
                turns = turns and turns - 1
        await anyio.sleep_forever()


async def copy_some(log: Log) -> None:
    """What leaves something to be copied to the next, however late it is killed."""
    await copy(log, 15)


async def zombie(log: Log) -> None:
    """Owns everything, and writes once it is told to, whatever happened meanwhile."""
    async with log.subscribe(["in"], group="copy") as subscription:
        got = await subscription.poll(timeout_s=30)
        say("ready")
        await to_thread.run_sync(sys.stdin.readline)
        try:
            await subscription.transact(
                [Record("out", b"k", b"from the dead", 0, (), 0)], positions_after(got)
            )
            say("written")
        except FencedError:
            say("fenced")


async def quiet(log: Log) -> None:
    """Does one thing of each kind, and leaves."""
    await log.create_topics({"in": 1})
    await log.append([Record("in", b"k", b"v", 0, ())])
    async with log.subscribe(["in"], group="quiet") as subscription, log.subscribe(["in"]) as lone:
        await subscription.poll(timeout_s=30)
        await lone.poll(timeout_s=30)
        await subscription.transact([Record("in", b"k", b"w", 0, ())], {TopicPartition("in", 0): 1})
    say("ready")


async def main(role: str, url: str) -> None:
    async with open_log(url) as log:
        await {"copy": copy, "copy_some": copy_some, "zombie": zombie, "quiet": quiet}[role](log)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
