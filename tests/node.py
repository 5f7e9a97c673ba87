"""Node programs of the tests and the examples: a copy of their folder with their packages installed, as their
lock file says, kept in `.pytest_cache`. Tests that need it skip where there is no Node or no registry."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT, skip_without

NODE = (20, 19)
INSTALL_TIMEOUT_S = 100.0
"""Less than a test has: so one that needs it is skipped, and not ended."""


def node_folder(source: Path) -> Path:
    """A copy of `source`, ready to run. Skips, or fails where Node is required here."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            skip_without("node", f"there is no {tool}; Node {NODE[0]}.{NODE[1]} or newer is needed")
    said = subprocess.run(
        ["node", "--version"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    if tuple(int(part) for part in said.strip().removeprefix("v").split(".")[:2]) < NODE:
        skip_without("node", f"Node {said.strip()} is older than {NODE[0]}.{NODE[1]}")
    lock = (source / "package-lock.json").read_bytes()
    folder = ROOT / ".pytest_cache" / "node" / f"{source.name}-{hashlib.sha256(lock).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    asked_s = time.time()
    with _alone(folder.with_suffix(".lock")):
        for path in source.iterdir():
            if path.is_file():
                _put(path, folder / path.name)
        installed, failed = folder / "installed", folder / "failed"
        if not installed.exists():
            if not failed.exists() or failed.stat().st_mtime < asked_s:
                failed.write_text(_install(folder, source.name))
            if reason := failed.read_text():  # also that of who tried while this one waited
                skip_without("node", reason)
            installed.touch()
    return folder


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time: two that install into one folder take each other's packages away."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _put(source: Path, target: Path) -> None:
    """Copy a file, unless it is there: a program of another test may be reading it."""
    if not target.exists() or target.read_bytes() != source.read_bytes():
        shutil.copy(source, target)


def _install(folder: Path, name: str) -> str:
    """Gives why it failed, or nothing."""
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        return f"npm could not install {name}: {error.stderr.strip()[-500:]}"
    except subprocess.TimeoutExpired:
        return f"npm did not install {name} in {INSTALL_TIMEOUT_S:.0f} s"
    return ""
