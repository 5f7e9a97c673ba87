"""`egostream lag`: how far the roles of a run are behind its topics."""

from __future__ import annotations

import click
import msgspec
from rich.table import Table

from simulator.cli import common
from simulator.cli.given import given_run, run_argument
from simulator.events import RunStartedEvent
from simulator.log.protocol import Log
from simulator.topics import Topics
from simulator.waits import CONDUCTOR_ROLE, JUDGE_ROLE, agent_role


class Lag(msgspec.Struct, frozen=True):
    """One partition of one topic for one group. `committed` is None before the group's first commit."""

    group: str
    topic: str
    partition: int
    committed: int | None
    end: int

    @property
    def lag(self) -> int:
        """How many offsets the group has not committed."""
        return self.end - (self.committed or 0)


@click.command(epilog="Example: egostream lag runs/live")
@run_argument
@common.command_options
def lag(run: str, settings: common.Settings) -> None:
    """Print, for each consumer group of RUN (its folder, or kafka://HOST:PORT/RUN-ID) and each partition that it
    reads, what it has committed, where the partition ends, and the difference.

    A group commits together with what it writes: records that gave rise to nothing count as lag until its next
    result. On Kafka the marks of transactions take offsets too.
    """

    async def read() -> list[Lag]:
        async with given_run(run) as (log, started):
            return await lags(log, started)

    found = common.run_async(read)
    if settings.json:
        common.print_json([{**msgspec.structs.asdict(one), "lag": one.lag} for one in found])
        return
    table = Table(title="Lag", title_justify="left", box=None)
    for name in ("Group", "Topic", "Partition", "Committed", "End", "Lag"):
        table.add_column(name, justify="left" if name in ("Group", "Topic") else "right")
    for one in found:
        committed = "–" if one.committed is None else f"{one.committed:,}"
        table.add_row(one.group, one.topic, str(one.partition), committed, f"{one.end:,}", f"{one.lag:,}")
    common.show(table)
    common.say(
        "Records that a group had nothing to write for count until its next result, at a run's end for good."
    )


async def lags(log: Log, started: RunStartedEvent) -> list[Lag]:
    """The lag of every group of a run, by group, topic and partition; names without the run's."""
    topics = Topics.of(started.run)
    agents = [topic for topic in topics.for_agents if topic != topics.control]
    conductor = [topics.deltas, topics.responses, topics.verdicts, topics.anchors, topics.control]
    groups = {agent_role(system): agents for system in started.systems}
    groups |= {JUDGE_ROLE: [topics.deltas, topics.responses], CONDUCTOR_ROLE: conductor}
    skip = len(started.run) + 1
    found: list[Lag] = []
    for group, read in groups.items():
        committed = await log.committed(f"{started.run}.{group}", read)
        for tp, end in sorted((await log.end_offsets(read)).items()):
            found.append(Lag(group, tp.topic[skip:], tp.partition, committed.get(tp), end))
    return found
