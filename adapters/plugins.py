"""Memory systems that installed packages bring, as entry points: nothing of them is imported before it is used.

[project.entry-points."egostream.systems"]
notebook = "egostream_notebook:NotebookMemory"
"""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

from simulator.errors import ConfigError

GROUP: Final = "egostream.systems"

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")


class Plugin(NamedTuple):
    """A system that packages bring under one name."""

    name: str
    entries: tuple[EntryPoint, ...]

    @property
    def packages(self) -> str:
        """Who brings it: names and versions."""
        return " and ".join(sorted({_package(entry) for entry in self.entries}))

    def load(self) -> type[Any]:
        """Import its class. Raises ConfigError, with the package's name, for whatever goes wrong."""
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"{self.packages} brings a system {self.name!r}, which is no name for one")
        values = {entry.value for entry in self.entries}
        if len(values) > 1:
            raise ConfigError(
                f"{self.packages} bring a system {self.name!r}: name its class instead, one of "
                f"{', '.join(sorted(values))}"
            )
        entry = self.entries[0]
        try:
            found = entry.load()
        except Exception as error:  # whatever the package's own code raises
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(
                f"{self.name!r}, which {self.packages} brings, can't be imported: {said}"
            ) from error
        if not isinstance(found, type):
            raise ConfigError(
                f"{self.name!r}, which {self.packages} brings, is no class: its entry point is {entry.value!r}"
            )
        return found


def plugins() -> dict[str, Plugin]:
    """All that are installed, by name. Raises ConfigError where what is installed can't be read."""
    try:
        entries = entry_points(group=GROUP)
    except Exception as error:  # of any package, also one that has nothing to do with memory systems
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"the entry points of installed packages can't be read ({said}): `pip check`"
        ) from error
    found: dict[str, list[EntryPoint]] = {}
    for entry in entries:
        found.setdefault(entry.name, []).append(entry)
    return {name: Plugin(name, tuple(found[name])) for name in sorted(found)}


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "a package"
