"""One scripted server for all tests here; and pauses between tries are short."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.endpoints import caller
from tests.models.server import Server, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A scripted server, which follows whatever was played on it last."""
    with running_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "FIRST_PAUSE_S", 0.01)
