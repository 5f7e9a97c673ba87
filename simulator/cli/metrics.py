"""What commands share that serve metrics: the option, the server, and who follows the run for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from consumers.follow import Watcher, follow
from simulator.cli import common
from simulator.errors import ConfigError

if TYPE_CHECKING:
    from consumers.gauges import State
    from consumers.metrics_server import MetricsServer

T = TypeVar("T")
LINGER_S = 15.0
Tell = Callable[["State"], None]

linger_option = click.option(
    "--linger",
    "linger_s",
    type=common.Number(min=0),
    default=LINGER_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to go on serving metrics after the end, unless they are fetched once more before.",
)


def metrics_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add `--metrics` and `--linger`. The server is there before the command begins, and lingers after it unless that
    fails; the command gets `tell`, what to tell of the run's state, None without `--metrics`."""

    @click.option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve Prometheus's format there while it runs (docs/prometheus.md); port 0 takes a free one. Whoever can "
        "reach it can read it.",
    )
    @linger_option
    @functools.wraps(function)
    def with_options(
        *args: Any, metrics: str | None, linger_s: float, settings: common.Settings, **options: Any
    ) -> T:
        with serving(metrics, linger_s, settings.quiet) as tell:
            return function(*args, tell=tell, settings=settings, **options)

    return with_options


@contextmanager
def serving(address: str | None, linger_s: float, quiet: bool) -> Iterator[Tell | None]:
    """Serve from before the body until after it; gives what to tell of the run's state, None without an address. Raises
    ConfigError where nothing can be served there."""
    if address is None:
        yield None
        return
    with open_server(address) as server, lingering(server, linger_s, quiet):
        yield server.set


@contextmanager
def lingering(server: MetricsServer, linger_s: float, quiet: bool) -> Iterator[None]:
    """Say where the metrics are. Once the body is done, and has not failed, wait until they are fetched once more."""
    if not quiet:
        common.note(f"metrics: {server.url}")
    yield
    if server.linger(0) or not linger_s:
        return
    if not quiet:
        common.note(f"metrics stay at {server.url} until they are fetched once more, {linger_s:g} s at most")
    try:
        server.linger(linger_s)
    except KeyboardInterrupt:
        return  # all was done: who doesn't want to wait loses nothing


def open_server(address: str) -> MetricsServer:
    """A server for metrics. Raises ConfigError where there can't be one."""
    try:
        from consumers.metrics_server import MetricsServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise ConfigError(
            "metrics need prometheus-client, which is not installed: pip install 'egostream[metrics]'"
        ) from error
    return MetricsServer(address)


def watching(
    *tells: Tell | None, remembered: Callable[[int], None] = lambda late_us: None
) -> tuple[Watcher, ...]:
    """Who follows a run, to tell those that there are: nobody for none."""
    told = [tell for tell in tells if tell is not None]
    if not told:
        return ()

    def tell_all(state: State) -> None:
        for tell in told:
            tell(state)

    return (partial(follow, tell=tell_all, remembered=remembered),)
