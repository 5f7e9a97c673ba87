"""One scripted server for all tests here."""

from __future__ import annotations

from tests.models.conftest import server

__all__ = ["server"]
