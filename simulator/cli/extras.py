"""What commands need beyond the core, named before they begin and not when they have ended."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from simulator.errors import ConfigError

REPORT_MODULES: Final = ("matplotlib", "jinja2", "markupsafe")


def need_modules(what: str, modules: Iterable[str], extra: str) -> None:
    """Raise ConfigError for a module that is missing. Nothing is imported."""
    for module in modules:
        if find_spec(module) is None:
            raise ConfigError(
                f"{what} needs {module}, which is not installed: pip install 'egostream[{extra}]'"
            )
