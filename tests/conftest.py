"""What the tests share: where the real lifelogs are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real lifelogs (`$EGOSTREAM_DATA`, or `../shared/data` beside the project)."""
    path = Path(os.environ.get("EGOSTREAM_DATA") or _ROOT.parent / "shared" / "data")
    if not (path / "egolife").is_dir():
        pytest.skip(f"the real lifelogs are not at {path}; set EGOSTREAM_DATA to try them")
    return path
