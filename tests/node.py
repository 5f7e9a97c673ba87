"""Node programs of the tests and the examples: a copy of their folder with their packages installed, as their
lock file says, kept in `.pytest_cache`. Tests that need it skip where there is no Node or no registry."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.conftest import ROOT, skip_without

NODE = (20, 19)
INSTALL_TIMEOUT_S = 180.0


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
    for path in source.iterdir():
        if path.is_file():
            shutil.copy(path, folder / path.name)
    installed = folder / "installed"
    if not installed.exists():
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        try:
            subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=True
            )
        except subprocess.CalledProcessError as error:
            skip_without("node", f"npm could not install {source.name}: {error.stderr.strip()[-500:]}")
        except subprocess.TimeoutExpired:
            skip_without("node", f"npm did not install {source.name} in {INSTALL_TIMEOUT_S:.0f} s")
        installed.touch()
    return folder
