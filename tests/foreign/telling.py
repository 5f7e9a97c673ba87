"""A driver for the tests, of another one: when it is forked, it writes down all that the other's objects hold, beside
the memory's folder. Option `tells`: the other's name.
"""

from __future__ import annotations

import importlib
import json
from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import Any

from ..driver import Driver, Settings  # as drivers are imported

_NO_STATE = ("concurrent", "httpx", "openai", "psycopg2", "threading")


def _state(value: Any, seen: dict[int, Any]) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if id(value) in seen or type(value).__module__.partition(".")[0] in _NO_STATE:
        return type(value).__name__
    seen[id(value)] = value  # as long as this lives, no other object has its id
    if isinstance(value, Mapping):
        return [[_state(key, seen), _state(held, seen)] for key, held in value.items()]
    if isinstance(value, Sequence | Set | deque):
        return [_state(held, seen) for held in value]
    return _state(vars(value), seen) if hasattr(value, "__dict__") else str(value)


class Telling:
    def __init__(self, settings: Settings, driver: Driver | None = None) -> None:
        if driver is None:
            driver = importlib.import_module(f".{settings.options['tells']}", __package__).DRIVER(settings)
        self._driver = driver
        self._file = settings.directory.with_suffix(".json")
        self.searching_changes = driver.searching_changes

    def fork(self, settings: Settings) -> Driver:
        self._file.write_text(json.dumps(_state(self._driver, {})))
        return Telling(settings, self._driver.fork(settings))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


DRIVER = Telling
