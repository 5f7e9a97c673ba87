"""What the tests share: where the real lifelogs are.

`EGOSTREAM_REQUIRE` names, separated by commas, what must not be skipped on this machine (`data`): a test that
lacks it fails there instead.
"""

from __future__ import annotations

import os
import signal
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
