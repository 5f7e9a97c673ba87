"""The gateway's port: uvicorn on loopback, in the run's own event loop."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
import msgspec
import structlog
import uvicorn

from adapters.gateway.app import gateway_app
from adapters.gateway.lanes import Gateway

_KEEP_ALIVE_S: Final = 600
"""Longer than clients keep a connection: one that is closed as it is used again fails its call."""
_CLOSE_S: Final = 2
_BACKLOG: Final = 1024

_log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    """Told by us when to end, and by no signal: those are for the run."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = anyio.Event()
        self.over = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Until it is over."""
        await self.over.wait()


@asynccontextmanager
async def open_gateway() -> AsyncIterator[Gateway]:
    """A gateway on a free port of 127.0.0.1. At the end its calls are cancelled, the port is closed,
    and the log has what each operation of each lane came to."""
    token = secrets.token_urlsafe(16)  # the port is open to all users of the machine, and calls cost money
    listening = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    gateway = Gateway(f"http://127.0.0.1:{listening.getsockname()[1]}/{token}")
    config = uvicorn.Config(
        gateway_app(gateway, token),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        date_header=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_CLOSE_S,
    )
    server = _Server(config)

    async def serve() -> None:
        with anyio.CancelScope(shield=True):  # it ends when it is over, also in a run that is cancelled
            await server.serve([listening])

    failed: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        try:
            await server.ready.wait()
            yield gateway
        except Exception as error:  # the caller's, which is none of a group
            failed = error
        finally:
            gateway.close()
            server.over.set()
    for account in gateway.accounts():
        _log.info("asked_over_http", **msgspec.structs.asdict(account))
    if failed is not None:
        raise failed
