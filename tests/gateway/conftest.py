"""One scripted server for all tests here; and pauses between tries are short."""

from __future__ import annotations

from tests.models.conftest import _short_pauses, server

__all__ = ["_short_pauses", "server"]
