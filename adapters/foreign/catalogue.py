"""What is known of the foreign systems: one file `systems/NAME.toml` each, with its pins in `pins/NAME.txt` and its
driver in `host/drivers/NAME.py`."""

from __future__ import annotations

import functools
import hashlib
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from simulator.errors import ConfigError

_HERE: Final = Path(__file__).parent


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a system on no registry is from. `address`: the repository, `commit`: what its driver was written for and
    measured with; `needs`: files that a checkout has to have; `used`: what its driver uses of one, as patterns of
    files, and `digest`: of these at that commit, as `source_digest` gives it."""

    address: str
    commit: str
    needs: tuple[str, ...]
    used: tuple[str, ...]
    digest: str


class Option(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One option of a driver. `about`: its meaning, with what it is by default. `choices`: the words that it may be;
    `number`: it is one, `whole` or any finite one, of at least `least`. Otherwise it may be any text."""

    about: str
    choices: tuple[str, ...] = ()
    number: Literal["whole", "any"] | None = None
    least: float = -math.inf

    @property
    def may_be(self) -> str:
        """What it may be, in words."""
        if self.choices:
            return " or ".join(self.choices)
        if self.number is None:
            return "any text"
        least = "" if self.least == -math.inf else f" of at least {self.least:g}"
        return ("a whole number" if self.number == "whole" else "a number") + least

    def takes(self, value: str) -> bool:
        """Whether it may be this. Numbers are read as drivers read them, by `int` and `float`."""
        if self.choices:
            return value in self.choices
        if self.number is None:
            return True
        try:
            number = int(value) if self.number == "whole" else float(value)
        except ValueError:
            return False
        return math.isfinite(number) and number >= self.least


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One system.

    `about`: what it is, in one sentence. `version`: that of `distribution`, or of the source where there is one.
    `python`: the first version that it runs on and, where there is one, the first that it does not. `environment`: of
    its processes; `{home}` stands for their home. `options`: what its driver takes.

    `ingest`, `search`, `top_k`: how its paper or its authors drive it, for people to compare with what we do.
    `approximations`: in what it differs here from the original. `model_calls`, `own_tokens`: how many calls one ingest
    takes, and the tokens of each call's own prompt, as measured: estimates rest on them. `turns_per_call`: for one that
    reads in pieces, how many observations each of these calls has beside those of the piece before; `whole_with`:
    options with any of which it does not. `exempt`: as in `Capabilities`, what of the conformance suite it does not
    keep.
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
    turns_per_call: int | None = None
    top_k: int | None = None
    distribution: str = ""
    source: Source | None = None
    environment: Mapping[str, str] = {}
    options: Mapping[str, Option] = {}
    whole_with: Mapping[str, str] = {}
    exempt: Mapping[str, str] = {}

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

    @property
    def implementation(self) -> str:
        """What runs, as the identity of a run has it, but for the digest of a checkout."""
        return f"{self.name} {self.version}, pins {self.pins_digest}"

    @property
    def unlike(self) -> str:
        """What stands at the end of `implementation` where a checkout is not as the driver was written for it."""
        return "" if self.source is None else f" (unlike {self.source.commit})"

    @property
    def unmeasured(self) -> str:
        """The same in words, of which the checkout is the subject."""
        if self.source is None:
            return ""
        return (
            f"is not as at commit {self.source.commit}, which its driver was written for and measured with, so it may "
            "be another system"
        )

    @property
    def driven(self) -> str:
        """How its authors drive it, as `systems NAME` and reports say it."""
        return f"as its authors do: {self.ingest}; {self.search}; top {self.top_k or 'as asked'}"


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
