"""The cache: what is kept, across processes too, and files that are none."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.endpoints import Cache, default_cache
from adapters.endpoints.cache import Entry, key_for
from simulator.errors import ConfigError
from tests.conftest import ROOT

A, B = key_for("a"), key_for("b")
ONE = Entry(value=b"one", prompt_tokens=3, completion_tokens=1)
TWO = Entry(value=b"two")


async def opened(path: Path) -> Cache:
    cache = Cache(path)
    await cache.open()
    return cache


async def test_what_is_kept_is_found_again_and_the_first_stays(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "models.db"
    cache = await opened(path)
    assert await cache.get([A, B]) == {}
    assert await cache.put("m", {A: ONE}) == {A: ONE}
    assert await cache.put("m", {A: TWO, B: TWO}) == {A: ONE, B: TWO}
    await cache.aclose()
    cache = await opened(path)
    assert await cache.get([A, B, key_for("c")]) == {A: ONE, B: TWO}
    assert await cache.put("m", {A: TWO}, replace=True) == {A: TWO}
    await cache.aclose()


async def test_thousands_of_keys_are_looked_up_at_once(tmp_path: Path) -> None:
    cache = await opened(tmp_path / "c.db")
    entries = {key_for(number): Entry(value=str(number).encode()) for number in range(3_000)}
    await cache.put("m", entries)
    assert await cache.get(list(entries)) == entries
    await cache.aclose()


async def test_what_is_in_it_is_counted_and_pruned_by_model_and_age(tmp_path: Path) -> None:
    cache = await opened(tmp_path / "c.db")
    await cache.put("m", {A: ONE})
    await cache.put("n", {B: TWO})
    counted = await cache.models()
    assert [(m.model, m.entries, m.value_bytes) for m in counted] == [("m", 1, 3), ("n", 1, 3)]
    assert await cache.prune(model="m", kept_before_s=1) == 0
    assert await cache.prune(model="m") == 1
    assert await cache.get([A, B]) == {B: TWO}
    assert await cache.prune(kept_before_s=2**40) == 1
    assert await cache.models() == []
    await cache.aclose()


async def test_an_answer_that_was_paid_is_kept_even_when_the_caller_is_cancelled(tmp_path: Path) -> None:
    cache = await opened(tmp_path / "c.db")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await cache.put("m", {A: ONE})
    assert await cache.get([A]) == {A: ONE}
    await cache.aclose()


@pytest.mark.parametrize("content", [b"a text file\n" * 100, b"SQLite format 3\x00" + b"\xff" * 5_000])
async def test_a_file_that_is_none_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"notes\.txt can't be used: .*; name another with --cache"):
        await opened(path)
    assert path.read_bytes() == content


async def test_someone_else_s_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is no cache of egostream's"):
        await opened(path)
    assert path.read_bytes() == before


async def test_a_cache_of_another_version_is_refused(tmp_path: Path) -> None:
    await (await opened(tmp_path / "c.db")).aclose()
    with sqlite3.connect(tmp_path / "c.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ConfigError, match="has version 99, and this egostream reads 1"):
        await opened(tmp_path / "c.db")


async def test_a_cache_that_is_damaged_inside_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    cache = await opened(path)
    await cache.put("m", {key_for(n): Entry(value=b"x" * 1_000) for n in range(100)})
    await cache.aclose()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    cache = await opened(path)
    with pytest.raises(ConfigError, match=r"c\.db can't be used: .*malformed"):
        await cache.get([key_for(n) for n in range(100)])
    await cache.aclose()


async def test_a_folder_or_a_place_that_can_t_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        await opened(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can't be made"):
        await opened(tmp_path / "file" / "c.db")


def test_it_lies_among_the_person_s_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "egostream" / "models.db"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the standard says to ignore
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "egostream" / "models.db"


@given(st.lists(st.text() | st.integers() | st.none() | st.dictionaries(st.text(), st.integers())), st.data())
def test_other_parts_have_other_keys(parts: list[object], data: st.DataObject) -> None:
    assert key_for(*parts) == key_for(*parts)
    others = data.draw(st.permutations([*parts, "x"]))
    assert key_for(*others) != key_for(*parts)
    assert key_for({"a": 1, "b": 2}) == key_for({"b": 2, "a": 1})
    assert key_for("ab", "c") != key_for("a", "bc")


WRITER = """
import sys, anyio
from pathlib import Path
from adapters.endpoints import Cache
from adapters.endpoints.cache import Entry, key_for

async def main(path, name):
    cache = Cache(Path(path))
    await cache.open()
    for number in range(200):
        kept = await cache.put("m", {key_for(number): Entry(value=name.encode())})
        print(number, kept[key_for(number)].value.decode())
    await cache.aclose()

anyio.run(main, *sys.argv[1:])
"""


async def test_processes_that_write_the_same_at_once_all_go_on_with_one_value(tmp_path: Path) -> None:
    path = tmp_path / "c.db"  # made by whichever comes first
    said: dict[str, list[str]] = {}

    async def write(name: str) -> None:
        done = await anyio.run_process(
            [sys.executable, "-c", WRITER, str(path), name], cwd=ROOT, stderr=subprocess.STDOUT
        )
        said[name] = done.stdout.decode().splitlines()

    async with anyio.create_task_group() as tasks:
        for name in ("p", "q", "r"):
            tasks.start_soon(write, name)
    assert len(said["p"]) == 200
    assert said["p"] == said["q"] == said["r"]
    cache = await opened(path)
    kept = await cache.get([key_for(number) for number in range(200)])
    assert [f"{n} {kept[key_for(n)].value.decode()}" for n in range(200)] == said["p"]
    await cache.aclose()
