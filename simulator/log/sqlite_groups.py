"""Consumer groups in an SQLite log: who is a member, who owns which partition since when, what is committed.

The topics of a group are shared together: partition p of each belongs to the same member, and members get ranges of p
in the order in which they joined; in an exclusive group the first has all of them. Every change of the membership
starts a *generation*. A partition's assignment keeps the generation since which its owner has owned it without a
break; a member that last looked at generation g owns a partition if it is the assigned member and has been since g or
earlier. Otherwise somebody else may have read and committed in between, so its commits are refused, as Kafka refuses
those of an old generation.

All functions are blocking; those that write run within the caller's transaction.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from simulator.errors import FencedError, LogError
from simulator.log.protocol import TopicPartition
from simulator.log.sqlite_store import Catalogue

HEARTBEATS = 10
"""A member notes that it polls this often per `max_poll_interval_s`."""


class Member(NamedTuple):
    """One membership. A member that was expelled joins again as another one."""

    group: str
    id: int
    generation: int
    """The newest generation that it knows."""


class Share(NamedTuple):
    """What a member owns at a generation: partition number → the generation since which it owns it."""

    generation: int
    since: Mapping[int, int]


def join(
    conn: sqlite3.Connection,
    catalogue: Catalogue,
    group: str,
    topics: Iterable[str],
    max_poll_interval_s: float,
    *,
    exclusive: bool = False,
) -> int:
    """Become a member, after expelling dead ones; returns its id. Raises LogError if living members read
    other topics or share them otherwise, TopicError for an unknown topic."""
    wanted = sorted(topics)
    for topic in wanted:
        catalogue.ids(conn, topic)
    dead = dead_members(conn, group)
    conn.executemany("DELETE FROM members WHERE id = ?", [(member,) for member in dead])
    row = conn.execute("SELECT topics, exclusive FROM groups WHERE name = ?", (group,)).fetchone()
    if row is None:
        conn.execute("INSERT INTO groups VALUES (?, ?, ?, 0)", (group, json.dumps(wanted), exclusive))
    elif (json.loads(row[0]), bool(row[1])) != (wanted, exclusive):
        if _members(conn, group):
            how = " exclusively" if row[1] else ""
            raise LogError(
                f"members of group {group!r} read {json.loads(row[0])}{how}; another can't read {wanted}"
                f"{' exclusively' if exclusive else ''}"
            )
        conn.execute(
            "UPDATE groups SET topics = ?, exclusive = ? WHERE name = ?",
            (json.dumps(wanted), exclusive, group),
        )
    joined = conn.execute(
        "INSERT INTO members (group_name, process, polled_s, max_poll_interval_s) VALUES (?, ?, ?, ?)",
        (group, this_process(), time.monotonic(), max_poll_interval_s),
    )
    _rebalance(conn, catalogue, group)
    assert joined.lastrowid is not None
    return joined.lastrowid


def remove(conn: sqlite3.Connection, catalogue: Catalogue, group: str, members: Iterable[int]) -> list[str]:
    """Members leave or are expelled; the others get their partitions. Returns the group's topics, whose
    readers need to know; none if nobody was removed."""
    removed = conn.executemany("DELETE FROM members WHERE id = ?", [(member,) for member in members])
    return _rebalance(conn, catalogue, group) if removed.rowcount > 0 else []


def heartbeat(conn: sqlite3.Connection, member: int) -> None:
    """Note that a member polls."""
    conn.execute("UPDATE members SET polled_s = ? WHERE id = ?", (time.monotonic(), member))


def generation_of(conn: sqlite3.Connection, group: str) -> int:
    """The current generation of an existing group."""
    generation: int = conn.execute("SELECT generation FROM groups WHERE name = ?", (group,)).fetchone()[0]
    return generation


def share_of(conn: sqlite3.Connection, group: str, member: int) -> Share | None:
    """What a member owns now; None if it was expelled."""
    if not conn.execute("SELECT 1 FROM members WHERE id = ?", (member,)).fetchone():
        return None
    rows = conn.execute(
        "SELECT partition, since_generation FROM assignments WHERE group_name = ? AND member_id = ?",
        (group, member),
    )
    return Share(generation_of(conn, group), dict(rows))


def commit(
    conn: sqlite3.Connection, catalogue: Catalogue, member: Member, offsets: Mapping[TopicPartition, int]
) -> None:
    """Store offsets. Raises FencedError if one of the partitions is not this member's, or was another's
    since it last looked; the caller rolls back."""
    for (topic, partition), offset in offsets.items():
        partition_id = catalogue.id(conn, topic, partition)
        check_owner(conn, member, topic, partition)
        conn.execute(
            "INSERT INTO committed VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET offset = excluded.offset",
            (member.group, partition_id, offset),
        )


def check_owner(conn: sqlite3.Connection, member: Member, topic: str, partition: int) -> None:
    """Raises FencedError if a partition is not this member's, or was another's since it last looked."""
    owner = conn.execute(
        "SELECT member_id, since_generation FROM assignments WHERE group_name = ? AND partition = ?",
        (member.group, partition),
    ).fetchone()
    if owner is None or owner[0] != member.id or owner[1] > member.generation:
        raise FencedError(
            f"{topic!r} partition {partition} no longer belongs to this member of group {member.group!r}"
        )


def committed(
    conn: sqlite3.Connection, catalogue: Catalogue, group: str, topics: Iterable[str]
) -> dict[TopicPartition, int]:
    """What a group has committed. Raises TopicError for an unknown topic."""
    stored = dict(conn.execute("SELECT partition_id, offset FROM committed WHERE group_name = ?", (group,)))
    return {
        TopicPartition(topic, partition): stored[partition_id]
        for topic in topics
        for partition, partition_id in enumerate(catalogue.ids(conn, topic))
        if partition_id in stored
    }


def dead_members(conn: sqlite3.Connection, group: str) -> list[int]:
    """Members whose process is gone, or that have not polled within their `max_poll_interval_s`."""
    rows = conn.execute(
        "SELECT id, process, polled_s, max_poll_interval_s FROM members WHERE group_name = ?", (group,)
    )
    return [member for member, *seen in rows if _is_dead(*seen)]


def user_of(conn: sqlite3.Connection) -> int | None:
    """The id of another process that is a living member of some group; None where there is none."""
    rows = conn.execute(
        "SELECT process, polled_s, max_poll_interval_s FROM members WHERE process != ?", (this_process(),)
    )
    return next((int(seen[0].split("|")[2]) for seen in rows if not _is_dead(*seen)), None)


def _is_dead(process: str, polled_s: float, interval_s: float) -> bool:
    # a poll may be one heartbeat newer than what was noted
    return time.monotonic() - polled_s > interval_s * (1 + 1 / HEARTBEATS) or _is_gone(process)


def _members(conn: sqlite3.Connection, group: str) -> list[int]:
    return [
        row[0] for row in conn.execute("SELECT id FROM members WHERE group_name = ? ORDER BY id", (group,))
    ]


def assign(members: list[int], partitions: int) -> list[int]:
    """The owner of each partition number: ranges of equal length, the first members taking one more."""
    each, more = divmod(partitions, len(members))
    return [member for i, member in enumerate(members) for _ in range(each + (i < more))]


def _rebalance(conn: sqlite3.Connection, catalogue: Catalogue, group: str) -> list[str]:
    row = conn.execute("SELECT topics, exclusive, generation FROM groups WHERE name = ?", (group,)).fetchone()
    topics: list[str] = json.loads(row[0])
    generation = row[2] + 1
    conn.execute("UPDATE groups SET generation = ? WHERE name = ?", (generation, group))
    before = dict(conn.execute("SELECT partition, member_id FROM assignments WHERE group_name = ?", (group,)))
    members = _members(conn, group)
    partitions = max(len(catalogue.ids(conn, topic)) for topic in topics)
    owners = dict(enumerate(assign(members[:1] if row[1] else members, partitions))) if members else {}
    for partition in before.keys() - owners.keys():
        conn.execute("DELETE FROM assignments WHERE group_name = ? AND partition = ?", (group, partition))
    for partition, owner in owners.items():
        if before.get(partition) != owner:
            conn.execute(
                "REPLACE INTO assignments VALUES (?, ?, ?, ?)", (group, partition, owner, generation)
            )
    return topics


# --- processes --------------------------------------------------------------------------------------------


def this_process() -> str:
    """This process, told apart from a later one with the same id: boot, id space, id and time of start."""
    return "|".join((*_machine(), str(os.getpid()), _started(os.getpid())))


def _machine() -> tuple[str, str]:
    proc = Path("/proc")
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip(), os.readlink(proc / "self/ns/pid")
    except OSError:  # not Linux: the id alone must do
        return "", ""


def _started(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # gone, or not Linux
        return ""
    fields = stat.rpartition(")")[
        2
    ].split()  # from field 3; the name in field 2 may hold anything but ends in ")"
    return "" if fields[0] in "ZX" else fields[19]  # a killed child that nobody waited for is gone as well


def _is_gone(process: str) -> bool:
    boot, space, pid, started = process.split("|")
    our_boot, our_space = _machine()
    if boot != our_boot:
        return True
    if space != our_space:
        return False  # its ids mean nothing here; it has to poll
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's, and there
    return _started(int(pid)) != started
