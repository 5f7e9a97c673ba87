"""Progress on standard error: a bar with an ETA on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from simulator.cli.common import err

PLAIN_INTERVAL_S = 10.0
"""Where standard error is no terminal: seconds between two lines."""

Update = Callable[[int, int, str], None]
"""(done, in all, what to say beside it)."""


@contextmanager
def progress_bar(title: str, quiet: bool) -> Iterator[Update]:
    """Gives the function to call with what is done."""
    if quiet:
        yield lambda done, total, note: None
    elif err.is_terminal:
        with _bar() as bar:
            task = bar.add_task(title, total=None, note="")
            yield lambda done, total, note: _update(bar, task, done, total, note)
    else:
        yield _plain(title)


@contextmanager
def files_progress(title: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Progress over files read."""
    with progress_bar(title, quiet) as update:
        yield lambda done, total: update(done, total, "files")


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )


def _update(bar: Progress, task: TaskID, done: int, total: int, note: str) -> None:
    bar.update(task, completed=done, total=total, note=note)


def _plain(title: str) -> Update:
    began_s = time.monotonic()
    said_s = began_s

    def say(done: int, total: int, note: str) -> None:
        nonlocal said_s
        now_s = time.monotonic()
        if now_s - said_s < PLAIN_INTERVAL_S:
            return
        said_s = now_s
        elapsed_s = now_s - began_s
        left = f", about {elapsed_s / done * (total - done):.0f} s left" if done else ""
        err.print(f"{title}: {done} of {total} {note} after {elapsed_s:.0f} s{left}")

    return say
