"""What all commands share: options, errors as one line, exit codes, logging, and how results are printed."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import anyio
import click
import msgspec
import structlog
from rich.console import Console

from simulator.errors import EgostreamError

P = ParamSpec("P")
T = TypeVar("T")

EXIT_UNJUDGED = 4
"""The run ended, and a share of it is unjudged: the scores stand on fewer trajectories than there are."""

out = Console(highlight=False, soft_wrap=False)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class Settings:
    """Options that every command takes."""

    def __init__(self, json: bool, quiet: bool) -> None:
        self.json = json
        self.quiet = quiet


def command_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add `--json`, `--quiet`, `--log-level` and `--log-json`; the command gets them as `settings`."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, nothing else.")
    @click.option("--quiet", "-q", is_flag=True, help="No progress.")
    @click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="warning",
        show_default=True,
        help="Least severe log line that is written to standard error.",
    )
    @click.option("--log-json", is_flag=True, help="Write log lines as JSON.")
    @functools.wraps(function)
    def with_settings(*args: Any, as_json: bool, quiet: bool, log_level: str, log_json: bool, **kwargs: Any) -> T:
        configure_logging(log_level, as_json=log_json)
        return function(*args, settings=Settings(as_json, quiet or as_json), **kwargs)

    return with_settings


def configure_logging(level: str, *, as_json: bool) -> None:
    """Structured log lines on standard error."""
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def run_async(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run one coroutine function to its end; Ctrl-C cancels it cleanly first."""
    return anyio.run(function)


def print_json(value: object) -> None:
    """One JSON document, indented, on standard output."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def fail(error: BaseException) -> int:
    """Say one line about an error and give its exit code."""
    for inner in _leaves(error):
        click.echo(f"egostream: error: {' '.join(str(inner).split())}", err=True)
        return inner.exit_code if isinstance(inner, EgostreamError) else 1
    return 1


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside an exception group, those that egostream raised on purpose first."""
    if isinstance(error, BaseExceptionGroup):
        leaves = [leaf for inner in error.exceptions for leaf in _leaves(inner)]
        return sorted(leaves, key=lambda leaf: not isinstance(leaf, EgostreamError))
    return [error]


def expected(error: BaseException) -> bool:
    """An error that egostream raised on purpose, alone or in a group; anything else is a bug."""
    return isinstance(_leaves(error)[0], EgostreamError)


FOLDER = click.Path(path_type=Path)
