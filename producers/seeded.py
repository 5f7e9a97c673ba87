"""What made-up data share: options after `synthetic:`, and random numbers that are the same on every Python."""

from __future__ import annotations

import hashlib
from random import Random
from typing import TypeVar

import msgspec

from simulator.errors import ConfigError

PREFIX = "synthetic:"

Options = TypeVar("Options", bound=msgspec.Struct)


def parse_numbers(path: str, kind: type[Options]) -> Options:
    """`synthetic:seed=7,days=3` → options; what isn't named has its default. Raises ConfigError for another form, an
    unknown key (naming the keys) or a value that is no whole number."""
    known = kind.__struct_fields__
    values: dict[str, int] = {}
    for part in filter(str.strip, path.removeprefix(PREFIX).split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in known:
            raise ConfigError(f"{path}: no option {key!r}; the options are {', '.join(known)}")
        if key in values:
            raise ConfigError(f"{path}: {key} is given twice")
        try:
            values[key] = int(value)
        except ValueError:
            raise ConfigError(f"{path}: {key} must be a whole number, not {value!r}") from None
    return kind(**values)


def seeded(name: str) -> Random:
    """Random numbers of a name. Take `random()` alone: its sequence for an integer seed is guaranteed."""
    return Random(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
