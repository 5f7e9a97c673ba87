"""Foreign systems live in the stream's time: nothing that they keep or tell their models is of the wall clock."""

from __future__ import annotations

import pickle
import re
import sqlite3
import struct
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from simulator.events import Turn
from tests.foreign.hosts import START_US, prompts, running_host, script_for
from tests.foreign.test_drivers import DAYS, NAMES, TELESCOPE, live
from tests.foreign.wallclock import POSTGRES_EPOCH_S, UNITS_S, WallClock
from tests.models.server import Server

NOTHING: Final = re.compile(r"(?!)")
# What may show it: none of this is ever read back as a time, so that it reaches no prompt, no ranking and no delta
BOOKKEEPING: Final[Mapping[str, re.Pattern[str]]] = {
    "memos": re.compile(
        r"home/\.memos/logs/memos\.log"  # what its modules say as they are imported, before its logging is turned off
        r"|memories/postgres/(pg_wal|pg_dynshmem)/"  # when transactions were committed; sessions and their statistics
        r"|memories/postgres/(postmaster\.pid|\.s\.PGSQL\.5432\.lock)"  # when the server was started
        # its catalogue, whose numbers lie below those of what is made later: the same bytes in every installation, and
        # now and then some of them are a time
        r"|memories/postgres/base/\d+/(\d{1,4}|1[0-5]\d{3}|16[0-2]\d\d|163[0-7]\d|1638[0-3])(?!\d)"
    ),
    # of its Markdown files: with it alone EverOS sees which of them have changed since they were indexed
    "evermemos": re.compile(r"memories/\d+/everos/\.index/sqlite/system\.db: md_change_state\.mtime:"),
}
# so that pages, a profile and knowledge are made of the few segments, with all that is asked for that
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "memoryos": {"short_term_capacity": "1", "heat_threshold": "1"}
}
IN_RAM: Final = {"amem", "memoryos", "memskill"}
TURNS: Final = (
    Turn(role="user", text="Where is the passport?"),
    Turn(role="assistant", text="In the drawer."),
)


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_that_is_kept_or_asked_is_of_the_wall_clock(
    name: str, server: Server, tmp_path: Path
) -> None:
    system = name.partition(":")[0]
    began_s = time.time()
    await server.play(script_for(name))
    driver = Path(__file__).with_name("telling.py")
    async with running_host(
        name, server, tmp_path, driver, {"tells": system}, **OPTIONS.get(system, {})
    ) as host:
        memory = await host.memory()
        await live(memory)
        await memory.commit("s9/e0", 10, *TURNS)
        fork = await memory.fork()
        await fork.ingest(11, TELESCOPE)
        found = str(await fork.search("the passport", 20))
        await fork.fork()  # upon which all that a process holds is written
        asked = prompts(await server.asked())
        # No longer than it takes to round a time: bytes that are none happen to look like one of these, too
        wall = WallClock(began_s - 60, time.time() + 60)
        told = "\n".join(record.text for each in (memory, fork) for record in each.held.values())
        said = f"{asked}\n{told}\n{found}".encode()
        assert list(wall.in_text(said)) == []
        assert wall.in_files(host.directory, BOOKKEEPING.get(system, NOTHING)) == []
        stream = WallClock(START_US / 1e6, START_US / 1e6 + (len(DAYS) + 2) * 60)
        assert list(stream.in_text(asked.encode()))
        seen = stream.in_files(host.directory, BOOKKEEPING.get(system, NOTHING))
    # the stream's times are seen in the memory's state and in its fork's, so that others would be, too
    assert {place[:15] for place in seen} >= {"memories/0.json", "memories/1.json"}
    assert any(re.match(r"memories/(0|postgres/base)/", place) for place in seen) == (system not in IN_RAM)


NOW_S: Final = 1_796_064_445.9163132
AT: Final = datetime.fromtimestamp(NOW_S, UTC)


def ids_of(at_s: float) -> bytes:
    """An id of version 7."""
    return str(uuid.UUID(int=int(at_s * 1000) << 80 | 7 << 76 | 2 << 62 | 5)).encode()


def in_table(folder: Path, cell: object) -> None:
    with closing(sqlite3.connect(folder / "some.db")) as database:
        database.execute("CREATE TABLE kept (at)")
        database.execute("INSERT INTO kept VALUES (?)", (cell,))
        database.commit()


@pytest.mark.parametrize(
    "content",
    [
        *(
            f"{AT:{form}}".encode()
            for form in ("%Y-%m-%d", "[%Y%m%d%H%M]", "%B %d, %Y", "%d %b %Y", "%Y/%m/%d")
        ),
        *(f'{{"at": {int(NOW_S / unit_s)}}}'.encode() for unit_s in UNITS_S),
        f'{{"at": {NOW_S}}}'.encode(),
        b"<!-- " + ids_of(NOW_S),
        *(b"odd" + struct.pack("<q", int(NOW_S / unit_s)) + b"end" for unit_s in UNITS_S[1:]),
        struct.pack("<q", int((NOW_S - POSTGRES_EPOCH_S) * 1e6)),
        b"odd" + struct.pack("<d", NOW_S),
        pickle.dumps({"at": NOW_S}),
        pickle.dumps([AT]),
    ],
)
def test_times_are_seen_however_they_are_written(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(content)
    in_table(tmp_path, content)
    now, later = WallClock(NOW_S - 60, NOW_S + 60), WallClock(NOW_S + 90_000, NOW_S + 93_600)
    places = [place.partition(": ")[0] for place in now.in_files(tmp_path, NOTHING)]
    assert set(places) == {"kept", "some.db"}
    assert later.in_files(tmp_path, NOTHING) == []


@pytest.mark.parametrize("cell", [NOW_S, int(NOW_S), f"{AT:%Y-%m-%d %H:%M}"])
def test_what_is_known_is_left_out_by_its_name_alone(cell: object, tmp_path: Path) -> None:
    (tmp_path / f"log-{AT:%Y-%m-%d}").touch()
    in_table(tmp_path, cell)
    now = WallClock(NOW_S - 60, NOW_S + 60)
    found = now.in_files(tmp_path, re.compile(r"log-|some\.db: kept\.of"))
    assert [place[: len("some.db: kept.at: ")] for place in found] == ["some.db: kept.at: "]
    assert now.in_files(tmp_path, re.compile(r"log-|some\.db: kept\.at")) == []
