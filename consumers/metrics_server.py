"""Serving a run's numbers to Prometheus: HTTP in threads of its own, so that no scrape blocks the event loop.

Needs the extra `egostream[metrics]`: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from socketserver import TCPServer
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from consumers.exposition import StateCollector
from consumers.gauges import State
from simulator.errors import ConfigError

_log = structlog.get_logger(__name__)

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/\[\]]+)):(?P<port>\d{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT, with an IPv6 address in brackets; port 0 takes a free one. Raises ConfigError for anything else."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(
            f"{text!r} is no address to serve metrics on: write HOST:PORT, such as 127.0.0.1:9100 or [::1]:9100"
        )
    return match["v6"] or match["host"], int(match["port"])


class MetricsServer:
    """Serves what it was handed last under any path, from when it is made until it is closed.

    Raises ConfigError when it is made for an address that is none, is in use, or isn't this machine's.
    """

    def __init__(self, address: str) -> None:
        host, port = parse_address(address)
        self._collector = StateCollector()
        registry = CollectorRegistry()
        registry.register(self._collector)
        self._app = make_wsgi_app(registry)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, place = found[0][0], found[0][4]
            self._http = _server(family)((str(place[0]), int(place[1])), _Handler)
        except (OSError, UnicodeError) as error:  # the latter of a host name that can't be one
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"can't serve metrics on {address}: {reason}") from error
        self._http.set_app(self._serve)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._http.server_port}/metrics"
        self._sent: State | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def set(self, state: State) -> None:
        """What is served from now on."""
        self._collector.state = state

    def linger(self, seconds: float) -> bool:
        """Wait until what was handed last was fetched, for so long at most; gives whether it was. Blocking."""
        with self._changed:
            return self._changed.wait_for(lambda: self._sent is self._collector.state, seconds)

    def close(self) -> None:
        """Serve no more. Blocking, for a tenth of a second."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        state = self._collector.state
        body = self._app(environ, start_response)
        return _Body(body, lambda: self._fetched(state)) if environ["REQUEST_METHOD"] == "GET" else body

    def _fetched(self, state: State | None) -> None:
        with self._changed:
            if state is self._collector.state:
                self._sent = state
                self._changed.notify_all()


class _Body:
    """A response that says when it was sent: WSGI servers call `close` then."""

    def __init__(self, parts: Iterable[bytes], close: Callable[[], None]) -> None:
        self._parts = parts
        self.close = close

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def __len__(self) -> int:
        return 1  # so that its length is in the header


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # a client that says nothing holds a thread for no longer

    def log_message(self, *_: object) -> None:
        """Say nothing: standard error is for the run's progress."""


def _server(family: socket.AddressFamily) -> type[ThreadingWSGIServer]:
    class Server(ThreadingWSGIServer):
        address_family = family

        def server_bind(self) -> None:
            """Without the look-up of its own name, which waits for a name server that may not be there."""
            TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
            self.setup_environ()

        def handle_error(self, request: object, client_address: object) -> None:
            """One line, and not a traceback: most often a client that went away."""
            _log.warning("scrape_failed", client=str(client_address), reason=repr(sys.exception()))

    return Server
