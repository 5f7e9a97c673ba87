"""What is known of the foreign systems: one file `systems/NAME.toml` each, with its pins in `pins/NAME.txt` and its
driver in `host/drivers/NAME.py`."""

from __future__ import annotations

import functools
import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from simulator.errors import ConfigError

_HERE: Final = Path(__file__).parent


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a system on no registry is from. `address`: the repository, `commit`: what its driver was written for;
    `needs`: files that a checkout has to have."""

    address: str
    commit: str
    needs: tuple[str, ...]


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One system.

    `about`: what it is, in one sentence. `version`: that of `distribution`, or of the source where there is one.
    `python`: the first version that it runs on and, where there is one, the first that it does not. `environment`: of
    its processes; `{home}` stands for their home. `options`: what its driver takes, each with its meaning.

    `ingest`, `search`, `top_k`: how its paper or its authors drive it, for people to compare with what we do.
    `approximations`: in what it differs here from the original. `model_calls`, `own_tokens`: how many calls one ingest
    takes, and the tokens of each call's own prompt, as measured: estimates rest on them.
    """

    name: str
    title: str
    about: str
    version: str
    licence: str
    python: tuple[tuple[int, int], tuple[int, int] | None]
    ingest: str
    search: str
    approximations: tuple[str, ...]
    model_calls: int
    own_tokens: int
    top_k: int | None = None
    distribution: str = ""
    source: Source | None = None
    environment: Mapping[str, str] = {}
    options: Mapping[str, str] = {}

    @property
    def pins(self) -> Path:
        """The file of its environment's packages, each with its version."""
        return _HERE / "pins" / f"{self.name}.txt"

    @property
    def driver(self) -> Path:
        """The file of its driver."""
        return _HERE / "host" / "drivers" / f"{self.name}.py"

    @property
    def pins_digest(self) -> str:
        """Twelve hex digits that name what its environment holds."""
        return hashlib.sha256(self.pins.read_bytes()).hexdigest()[:12]


@functools.cache
def catalogue() -> Mapping[str, Known]:
    """All systems by name, in alphabetical order. Blocking, and short."""
    return {path.stem: _read(path) for path in sorted((_HERE / "systems").glob("*.toml"))}


def known(name: str) -> Known:
    """One system. Raises ConfigError."""
    try:
        return catalogue()[name]
    except KeyError:
        raise ConfigError(f"no foreign system {name!r}: there are {', '.join(catalogue())}") from None


def _read(path: Path) -> Known:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return msgspec.convert({"name": path.stem, **table}, Known)
