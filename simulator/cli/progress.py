"""Progress on standard error: a bar with an ETA on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from simulator.cli import common

FIRST_LINE_S = 2.0
PLAIN_INTERVAL_S = 10.0
"""Where standard error is no terminal: seconds to the first line, and then between two."""

Update = Callable[[float, float, str], None]
"""(done, in all, what to say beside it): done and in all in any unit that grows evenly with time."""


@contextmanager
def progress_bar(title: str, quiet: bool) -> Iterator[Update]:
    """Gives the function to call with what is done."""
    if quiet:
        yield lambda done, total, note: None
    elif common.err.is_terminal:
        with _bar() as bar:
            task = bar.add_task(title, total=None, note="")
            yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)
    else:
        yield _plain(title)


@contextmanager
def files_progress(title: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Progress over files read."""
    with progress_bar(title, quiet) as update:
        yield lambda done, total: update(done, total, f"{done} of {total} files")


def records_shown(update: Update) -> Callable[[int, int], None]:
    """What shows progress over records read."""
    return lambda done, total: update(done, total, f"{done:,} of {total:,} records")


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}", style="dim"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=common.err,
        transient=True,
    )


def _plain(title: str) -> Update:
    began_s = time.monotonic()
    next_s = began_s + FIRST_LINE_S

    def say(done: float, total: float, note: str) -> None:
        nonlocal next_s
        now_s = time.monotonic()
        if now_s < next_s:
            return
        next_s = now_s + PLAIN_INTERVAL_S
        elapsed_s = now_s - began_s
        share = f"{done / total:.0%}, " if total else ""
        left = f", about {elapsed_s / done * (total - done):.0f} s left" if done else ""
        common.note(f"{title}: {share}{note}, {elapsed_s:.0f} s so far{left}")

    return say
