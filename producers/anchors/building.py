"""A construction from its beginning to a release that appears whole or not at all. Blocking, but for the asking."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from producers.anchors.construction import Account, Asking, Progress, account, anchors_of, construct
from producers.anchors.state import FILE_NAME, State
from producers.datasets import write_release
from producers.lifelog import Dataset
from simulator.errors import ConfigError

RECORD_NAME: Final = "construction.json"
"""In a release that was built: what it was built out of, and what it came to."""
CANDIDATES_NAME: Final = "candidates.jsonl"
"""Beside it: every segment with its candidates, those that fell too."""
_RELEASE: Final = "release"
_OLD: Final = "old"


class Record(msgspec.Struct, frozen=True):
    """What `construction.json` says. `identity` has the models and the prompts with their digests."""

    identity: Mapping[str, str]
    account: Account


class Built(msgspec.Struct, frozen=True):
    """What came of it. `release` is None where segments are undone and nothing was written; `partial` is then where
    the finished ones are."""

    release: str | None
    partial: str
    already_there: bool
    account: Account


def partial_of(out: Path) -> Path:
    """Where a construction keeps what it has finished, until the release is there."""
    whole = Path(os.path.abspath(out))  # `.` has no name of its own
    return whole.with_name(f"{whole.name}.partial")


async def build_release(
    dataset: Dataset,
    asking: Asking,
    out: Path,
    *,
    overwrite: bool = False,
    allow_undone: bool = False,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Built:
    """Build a release at `out`, or go on with one that was interrupted. With `allow_undone` it is written although
    segments are undone: they have no anchors in it then, and its record names them.

    Raises ConfigError where `out` can't be taken, and where what is there is of another construction.
    """
    identity = asking.identity(dataset)
    partial_folder = partial_of(out)
    there = await anyio.to_thread.run_sync(_record_at, out)
    if there is not None and there.identity == identity and not there.account.undone and not overwrite:
        await anyio.to_thread.run_sync(_sweep, partial_folder, identity)
        return Built(str(out), str(partial_folder), True, there.account)
    await anyio.to_thread.run_sync(_refuse_taken, out, there, identity, overwrite)
    state = await anyio.to_thread.run_sync(State.open, partial_folder, identity)
    finished = False
    try:
        undone = await construct(dataset, asking, state, tell)
        came_to = account(state, dataset, undone)
        if undone and not allow_undone:
            return Built(None, str(partial_folder), False, came_to)
        record = Record(identity, came_to)
        write = partial(_write, dataset, state, record, partial_folder, out)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(write)
        finished = not undone
        return Built(str(out), str(partial_folder), False, came_to)
    finally:
        if finished:
            state.delete()
        else:
            state.close()


def _sweep(partial_folder: Path, identity: Mapping[str, str]) -> None:
    """Remove what a kill between the release's appearing and the construction's end has left."""
    if partial_folder.exists():
        State.open(partial_folder, identity).delete()


def _record_at(out: Path) -> Record | None:
    try:
        return msgspec.json.decode((out / RECORD_NAME).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None  # then it is nothing that was built


def _refuse_taken(out: Path, there: Record | None, identity: Mapping[str, str], overwrite: bool) -> None:
    """Raises ConfigError where something lies at `out` that may not be replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if there is None:
        raise ConfigError(f"{out} is there already, and was not built by this command: choose another --out")
    if overwrite or (there.identity == identity and there.account.undone):
        return
    names = sorted(
        n for n in there.identity.keys() | identity.keys() if there.identity.get(n) != identity.get(n)
    )
    raise ConfigError(
        f"{out} was built otherwise ({', '.join(names)}): choose another --out, or pass --overwrite to replace it"
    )


def _write(dataset: Dataset, state: State, record: Record, partial_folder: Path, out: Path) -> None:
    release, old = partial_folder / _RELEASE, partial_folder / _OLD
    for left in (release, old):
        shutil.rmtree(left, ignore_errors=True)
    anchors, quotes = anchors_of(state, dataset)
    write_release(replace(dataset, anchors=anchors), release, quotes)
    (release / RECORD_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    shutil.copyfile(partial_folder / FILE_NAME, release / CANDIDATES_NAME)
    if out.exists():
        os.rename(out, old)
    os.rename(release, out)
    shutil.rmtree(old, ignore_errors=True)
