"""One scripted model server for all tests here, and the toy system in our own environment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapters.foreign.process import ForeignProcess
from tests.foreign.helpers import install_toy, start_toy
from tests.models.server import Server, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@pytest.fixture
async def host(server: Server, tmp_path: Path) -> AsyncIterator[ForeignProcess]:
    async with start_toy(server, tmp_path) as process:
        yield process


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The toy is installed."""
    folder = tmp_path_factory.mktemp("systems")
    install_toy(folder)
    monkeypatch.setenv("EGOSTREAM_SYSTEMS", str(folder))
