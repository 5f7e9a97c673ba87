"""The logs that must do what every log must (`test_records.py`, `test_groups.py`).

An implementation joins with one entry of `IMPLEMENTATIONS`, or, where it needs fixtures of its own, by collecting those
tests with its own `new_log` (`tests/kafka/test_conformance.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from simulator.log import Log, open_log

NewLog = Callable[[], AbstractAsyncContextManager[Log]]
"""A fresh and empty log."""


@asynccontextmanager
async def sqlite_log(folder: Path) -> AsyncIterator[Log]:
    async with open_log(str(folder / "log.sqlite")) as log:
        yield log


IMPLEMENTATIONS: dict[str, Callable[[Path], AbstractAsyncContextManager[Log]]] = {"sqlite": sqlite_log}


@pytest.fixture(params=IMPLEMENTATIONS)
def new_log(request: pytest.FixtureRequest, tmp_path: Path) -> NewLog:
    return lambda: IMPLEMENTATIONS[request.param](tmp_path)
