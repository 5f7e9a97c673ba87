"""What the tests share: where the real lifelogs are.

`EGOSTREAM_REQUIRE` names, separated by commas, what must not be skipped on this machine (`data`): a test that
lacks it fails there instead.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

# An example's time is the machine's: on a busy one it passes any limit, and with it so does what is drawn slowly.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# What starts the tests in the background ignores SIGINT, and so would every process that they start and interrupt.
# A run that is to find a system of these tests may import them in a thread, which can't set it and needs not.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
LONGEST = ("foreign", "kafka", "workers", "load")
"""The folders whose files take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, and those in turns, for some compute and others wait: where processes
    share the tests, a file each, none is left alone with a long one at the end, nor do all of them wait at once."""
    places: dict[str, dict[Path, int]] = {folder: {} for folder in LONGEST}

    def place(item: pytest.Item) -> tuple[int, int]:
        folder = item.path.parent.name
        if folder not in places:
            return sys.maxsize, 0
        return places[folder].setdefault(item.path, len(places[folder])), LONGEST.index(folder)

    items.sort(key=place)


def skip_without(need: str, reason: str) -> NoReturn:
    """Skip, or fail where this machine is required to have it."""
    if need in os.environ.get("EGOSTREAM_REQUIRE", "").split(","):
        pytest.fail(f"required here, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real lifelogs (`$EGOSTREAM_DATA`, or `../shared/data` beside the project)."""
    path = Path(os.environ.get("EGOSTREAM_DATA") or ROOT.parent / "shared" / "data")
    if not (path / "egolife").is_dir():
        skip_without("data", f"the real lifelogs are not at {path}; set EGOSTREAM_DATA to try them")
    return path
