"""What all commands share: options, errors as one line, exit codes, logging, and how things are printed.

Results go to standard output, all else (progress, notes, errors, logs) to standard error.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, ParamSpec, TypeVar

import anyio
import click
import msgspec
import structlog
from rich.console import Console, RenderableType

from simulator.errors import EgostreamError

P = ParamSpec("P")
T = TypeVar("T")

EXIT_VIOLATION = 3
"""The run's log breaks an invariant: its numbers prove nothing."""
EXIT_UNJUDGED = 4
"""The run ended, and a share of it is unjudged: the scores stand on fewer trajectories than there are."""
EXIT_STOPPED = 130
EXIT_NO_READER = 141
"""Whoever read standard error went away, as SIGPIPE would say it."""
PIPED_WIDTH = 120
"""Columns of tables where standard output is no terminal and $COLUMNS doesn't say."""

FOLDER = click.Path(path_type=Path)


class Number(click.FloatRange):
    """A number in a range. Click's own lets NaN through, which lies in none: no comparison with it is true."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the range accepts, and not NaN."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number", param, ctx)
        return number


log_option = click.option(
    "--log",
    "log_url",
    metavar="LOG",
    help="Where the events go: kafka://HOST:PORT, or the path of a file. [default: log.db in RUN]",
)

stream_option = click.option(
    "--stream", "streams", multiple=True, metavar="NAME", help="Only this stream. May be given several times."
)
language_option = click.option(
    "--language",
    type=click.Choice(["en", "zh", "both"]),
    default="en",
    show_default=True,
    help="Which language to read where there are two.",
)
models_option = click.option(
    "--models",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where models are configured, in tables [models.NAME] (docs/models.md). [default: models.toml in this "
    "folder, if there is one]",
)
cache_option = click.option(
    "--cache",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where models' answers are kept, so that none is paid for twice. [default: egostream/models.db in "
    "$XDG_CACHE_HOME, or ~/.cache]",
)
offline_option = click.option(
    "--offline",
    is_flag=True,
    help="Ask no model: answers come from the cache alone, and what it lacks is counted.",
)
call_timeout_option = click.option(
    "--call-timeout",
    "call_timeout_s",
    type=Number(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="After so long, an ingest, an answer or a commit has failed: that one result is unjudged.",
)


class OutputClosedError(Exception):
    """Whoever read our output has enough of it (`| head`)."""

    def __init__(self, stream: IO[Any]) -> None:
        self.stream = stream
        super().__init__("nobody reads the output any more")


class StoppedError(click.ClickException):
    """Ctrl-C, after everything was let go of cleanly. The message says what stays."""

    exit_code = EXIT_STOPPED

    def show(self, file: IO[Any] | None = None) -> None:
        """One line on standard error."""
        note(f"egostream: {self.message}")


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Instead of rich's own way out, which exits with 1 from wherever it is."""
        raise OutputClosedError(self.file)


def _width(stream: IO[str]) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH


out = _Console(highlight=False, width=_width(sys.stdout))
err = _Console(stderr=True, highlight=False, soft_wrap=True)


def show(renderable: RenderableType, *, wrap: bool = True, alone: bool = False) -> None:
    """A table or the like on standard output. Text that is not to be wrapped is not cropped either. `alone` as in
    `say`."""
    with _read_by_some(alone):
        out.print(renderable, crop=False, soft_wrap=not wrap)


def say(text: str | bytes = "", *, alone: bool = False) -> None:
    """A line on standard output as it is: commands to copy stay on one line. Where nobody reads it any more, the
    command goes on to its end and its exit code; with `alone`, where it does nothing but print, OutputClosedError ends
    it."""
    with _read_by_some(alone):
        try:
            click.echo(text)
        except BrokenPipeError as error:
            raise OutputClosedError(sys.stdout) from error


@contextmanager
def _read_by_some(alone: bool) -> Iterator[None]:
    try:
        yield
    except OutputClosedError as error:
        if alone:
            raise
        _let_go(error.stream)


def _let_go(stream: IO[Any]) -> None:
    """What is written to it from now on, or still buffered, goes nowhere, instead of failing again, at exit at the
    latest."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def note(text: str) -> None:
    """A line on standard error, above a progress bar if there is one."""
    err.print(text, markup=False, emoji=False)


def print_json(value: object) -> None:
    """One JSON document, indented, on standard output."""
    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def command(*arguments: object) -> str:
    """A command line to copy: this program as it can be called from here (`egostream` where the shell finds
    it, else the path that it was called by), and its arguments."""
    called = sys.argv[0]
    found = shutil.which("egostream")
    known = Path(called).name != "egostream" or (found is not None and os.path.samefile(found, called))
    return shlex.join(["egostream" if known else called, *map(str, arguments)])


class Settings:
    """Options that every command takes."""

    def __init__(self, json: bool, quiet: bool) -> None:
        self.json = json
        self.quiet = quiet


def command_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add `--json`, `--quiet`, `--log-level` and `--log-json`; the command gets them as `settings`."""

    @click.option(
        "--json", "as_json", is_flag=True, help="Print JSON on standard output, and nothing else there."
    )
    @click.option("--quiet", "-q", is_flag=True, help="No progress and no notes on standard error.")
    @click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="warning",
        show_default=True,
        help="Least severe log line that is written to standard error.",
    )
    @click.option("--log-json", is_flag=True, help="Write log lines as JSON.")
    @functools.wraps(function)
    def with_settings(
        *args: Any, as_json: bool, quiet: bool, log_level: str, log_json: bool, **kwargs: Any
    ) -> T:
        configure_logging(log_level, as_json=log_json)
        return function(*args, settings=Settings(as_json, quiet), **kwargs)

    return with_settings


def configure_logging(level: str, *, as_json: bool) -> None:
    """Structured log lines on standard error."""
    last: list[Any] = [
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    ]
    if as_json:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # looked up for each line: a progress bar stands in for standard error while it is shown
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def run_async(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run one coroutine function to its end; Ctrl-C cancels it cleanly first."""
    return anyio.run(function)


def fail(error: BaseException) -> int:
    """Say one line about an error and give its exit code. What egostream did not raise on purpose is a bug;
    its traceback is logged at level debug."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        command = error.ctx.command_path
        note(f"{command}: error: {_one_line(error.format_message())} (see `{command} --help`)")
        return error.exit_code
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    leaves = _leaves(error)
    for leaf in leaves:
        if isinstance(leaf, OutputClosedError):
            _let_go(leaf.stream)
            return EXIT_NO_READER if leaf.stream is sys.stderr else 0
    structlog.get_logger(__name__).debug("failed", exc_info=error)
    for leaf in leaves:
        if isinstance(leaf, EgostreamError):
            note(f"egostream: error: {_one_line(str(leaf))}")
            return leaf.exit_code
        if isinstance(leaf, OSError):
            note(f"egostream: error: {_one_line(str(leaf))}")
            return 1
    what = f"{type(leaves[0]).__name__}: {_one_line(str(leaves[0]))}"
    note(f"egostream: bug: {what} (run again with --log-level debug for the traceback)")
    return 1


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside an exception group, those that egostream raised on purpose first."""
    if isinstance(error, BaseExceptionGroup):
        leaves = [leaf for inner in error.exceptions for leaf in _leaves(inner)]
        return sorted(leaves, key=lambda leaf: not isinstance(leaf, EgostreamError))
    return [error]
