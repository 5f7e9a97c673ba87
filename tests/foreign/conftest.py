"""One scripted model server for all tests here, and the toy system in our own environment."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapters.foreign import memory
from adapters.foreign.environment import Environment
from adapters.foreign.process import ForeignProcess
from tests.foreign.helpers import TOY_KNOWN, start_toy
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
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy is known, and installed."""
    ours = Environment(python=sys.executable, python_version="3.11")
    monkeypatch.setattr(memory, "known", {"toy": TOY_KNOWN}.__getitem__)
    monkeypatch.setattr(memory, "must_be_installed", lambda known: ours)
