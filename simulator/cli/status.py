"""`egostream status`: how a run stands."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.table import Table

from consumers.rebuild import differing_line, same_line
from consumers.status import Owed, RoleStatus, Status, StatusFold
from simulator.cli import common
from simulator.cli.given import given_run, run_argument
from simulator.cli.lag import Lag, lags
from simulator.events import DeadLetterEvent, RunStartedEvent
from simulator.intake import decode_records, read_events, read_subjects, read_to_end
from simulator.log.protocol import Log, StoredRecord
from simulator.topics import Topics, partition_of, wall_of, wall_us


@click.command(
    epilog="""\b
Examples:
  egostream status runs/live
  egostream status kafka://127.0.0.1:9092/RUN-ID --json
""",
)
@run_argument
@click.option(
    "-n",
    "limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="How many of the events that are owed to list, the oldest first.",
)
@common.command_options
def status(run: str, limit: int, settings: common.Settings) -> None:
    """Print how a finished, stopped or running RUN (its folder, or kafka://HOST:PORT/RUN-ID) stands.

    For each role (an agent for each of its lanes): the last event that it wrote and how long ago, what it owes or
    waits for, and its lag (offsets that its group has not committed). For the trajectories: how many are in which
    state, and which events are owed, by whom, after what and for how long. Events are named by their ids, as
    `egostream tap RUN TOPIC --where id=ID` finds them.

    Ages are by the clocks of those who wrote, against this machine's. With --json: all that is owed, and times in
    microseconds since 1970.
    """

    async def read() -> tuple[RunStartedEvent, Status, list[Lag]]:
        async with given_run(run) as (log, started):
            return (
                started,
                await fold_status(log, started),
                await lags(log, started) if started.systems else [],
            )

    started, found, behind = common.run_async(read)
    lag_of = {(role.role, role.lane): _lag(role, started, behind) for role in found.roles}
    now_us = wall_us()
    if settings.json:
        common.print_json(_as_json(found, lag_of, now_us))
        return
    common.say(f"{found.run}: {found.state}")
    common.show(_roles(found, lag_of, now_us))
    if found.trajectories:
        counts = (f"{count:,} {state}" for state, count in found.trajectories.items())
        common.say(f"\n{sum(found.trajectories.values()):,} trajectories: {'; '.join(counts)}")
    for said in filter(None, (differing_line(found.rebuilds), same_line(found.rebuilds))):
        common.say(f"\n{said}")
    if found.owed and limit:
        common.show(_owed(found.owed[:limit], len(found.owed), now_us))


async def fold_status(log: Log, started: RunStartedEvent) -> Status:
    """How a run stands by what its log holds now."""
    topics = Topics.of(started.run)
    buried = {
        (event.topic, event.partition, event.offset)
        async for event, _ in read_events(log, started.run, [topics.dead])
        if isinstance(event, DeadLetterEvent)
    }
    fold = StatusFold(started, await read_subjects(log, started.run))
    newest: dict[int, StoredRecord] = {}
    async for record in read_to_end(log, [t for t in topics if t not in (topics.anchors, topics.dead)]):
        if (record.topic, record.partition, record.offset) in buried:
            continue  # an attached agent wrote it out of place: it is no part of the run
        if ("kind", b"observation") in record.headers:
            newest[record.partition] = record  # of the many, only the last says something
            continue
        _feed(fold, record, started.run)
    for record in newest.values():
        _feed(fold, record, started.run)
    return fold.status()


def _feed(fold: StatusFold, record: StoredRecord, run: str) -> None:
    for event, _ in decode_records(run, [record])[0]:
        fold.feed(event, wall_of(record.headers) or 0)


def _lag(role: RoleStatus, started: RunStartedEvent, found: list[Lag]) -> int | None:
    """What the role's group has not committed; an agent's lane stands for its partition."""
    partition = partition_of(started.streams, started.partitions).get(role.lane.partition("@")[2])
    mine = [one.lag for one in found if one.group == role.role and partition in (None, one.partition)]
    return sum(mine) if mine else None


def _roles(found: Status, lag_of: dict[tuple[str, str], int | None], now_us: int) -> Table:
    table = Table(box=None)
    for name in ("Role", "Last event", "Ago", "Lag", "Now"):
        table.add_column(name, justify="right" if name in ("Ago", "Lag") else "left", overflow="fold")
    for role in found.roles:
        lag = lag_of[role.role, role.lane]
        table.add_row(
            f"agent {role.lane}" if role.lane else role.role,
            role.last_event or "–",
            _age(role.last_us, now_us),
            "–" if lag is None else f"{lag:,}",
            _now(role, now_us),
        )
    return table


def _now(role: RoleStatus, now_us: int) -> str:
    if role.state == "ended":
        return "ended"
    if not role.waits_for:
        return "nothing to do"
    if role.state == "owes":
        more = f" and {role.owes - 1:,} more" if role.owes > 1 else ""
        return f"owes {role.waits_for}{more} for {_age(role.since_us, now_us)}"
    return f"waits for {role.waits_for}"


def _owed(owed: tuple[Owed, ...], total: int, now_us: int) -> Table:
    table = Table(title=f"Owed: {total:,}, the oldest first", title_justify="left", box=None)
    for name in ("Event", "By", "After", "For"):
        table.add_column(name, justify="right" if name == "For" else "left", overflow="fold")
    for one in owed:
        table.add_row(one.event, one.role, one.cause, _age(one.since_us, now_us))
    return table


def _age(then_us: int | None, now_us: int) -> str:
    if not then_us:
        return "–"
    seconds = max(0, now_us - then_us) / 1e6
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.1f} s"


def _as_json(found: Status, lag_of: dict[tuple[str, str], int | None], now_us: int) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(found)
    for role in shown["roles"]:
        role["lag"] = lag_of[role["role"], role["lane"]]
    return {"now_us": now_us, **shown}
