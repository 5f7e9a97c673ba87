"""Checkouts of systems that are on no registry: where they are, and what is in them."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Final

from adapters.foreign.catalogue import Known
from simulator.errors import ConfigError

_LARGEST_BYTES: Final = 4 * 1024 * 1024
"""Larger files are data, and no source."""


def variable_of(known: Known) -> str:
    """The environment variable that names a system's checkout."""
    return f"EGOSTREAM_SOURCE_{known.name.upper()}"


def find_source(known: Known, given: str) -> Path | None:
    """The checkout of a system, by its option or the environment; None for one that needs none. Raises ConfigError,
    which says how to get it."""
    if known.source is None:
        if given:
            raise ConfigError(f"{known.name} is installed from a registry: leave source= away")
        return None
    named = given or os.environ.get(variable_of(known), "")
    if not named:
        raise ConfigError(
            f"{known.name} is on no registry: git clone {known.source.address} (commit {known.source.commit}), and "
            f"name the folder with source=DIR or ${variable_of(known)}"
        )
    folder = Path(named).absolute()
    missing = [name for name in known.source.needs if not (folder / name).exists()]
    if missing:
        raise ConfigError(
            f"{known.name}: {named} is no checkout of {known.source.address}: it lacks {', '.join(missing)}"
        )
    return folder


def is_as_measured(known: Known, folder: Path | None) -> bool:
    """Whether what a driver uses of a checkout is what it was written for and measured with. Blocking."""
    source = known.source
    return source is None or folder is None or source_digest(folder, source.used) == source.digest


def source_warning(known: Known, given: str) -> str:
    """What to be told of a system's checkout before its results are believed; empty where it is as measured, or there
    is none. Blocking."""
    try:
        folder = find_source(known, given)
    except ConfigError:  # said where it is needed
        return ""
    if known.source is None or is_as_measured(known, folder):
        return ""
    return f"{known.name}: {folder} {known.unmeasured}: take that commit of {known.source.address}"


@functools.cache
def source_digest(folder: Path, used: tuple[str, ...] = ("**/*",)) -> str:
    """Twelve hex digits of what a checkout holds, hidden and large files aside; `used`: of these files alone.
    Blocking."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in used for path in folder.glob(pattern)}):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") or part == "__pycache__" for part in parts) or not path.is_file():
            continue
        if path.stat().st_size <= _LARGEST_BYTES:
            digest.update(f"{'/'.join(parts)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
