"""The environments that foreign systems run in: one virtual environment for each system and its pins.

They lie in `$EGOSTREAM_SYSTEMS`, or `egostream/systems` in the person's folder for caches, as `NAME-<digest of pins>`.
One counts as installed once its last file is there, which says what was found in it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from adapters.foreign.catalogue import Known
from simulator.errors import ConfigError, ProcessError
from simulator.files import write_whole

FOLDER_VARIABLE: Final = "EGOSTREAM_SYSTEMS"
FIRST_PYTHON: Final = (3, 11)
"""What the host itself needs."""

_INSTALLED = "installed.json"
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?==(?P<version>[^\s;]+)")
_KEPT_PYTHONS: Final = (
    ("PYENV_ROOT", ".pyenv", "versions/*/bin"),
    ("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", "*/bin"),
)
_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
_VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in json.loads(sys.argv[1]):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_KEPT_LINES = 20


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment that is there. `python`: its interpreter; `python_version`: three numbers, as in 3.11.7."""

    python: str
    python_version: str


def systems_folder() -> Path:
    """Where the environments lie."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).absolute()
    caches = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(caches) if os.path.isabs(caches) else Path.home() / ".cache") / "egostream" / "systems"


def folder_of(known: Known) -> Path:
    """Where a system's environment lies, or would."""
    return systems_folder() / f"{known.name}-{known.pins_digest}"


def installed(known: Known) -> Environment | None:
    """A system's environment; None where there is none, or a part of one. Blocking, and short."""
    try:
        content = (folder_of(known) / _INSTALLED).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(content, type=Environment)


def must_be_installed(known: Known) -> Environment:
    """The same. Raises ConfigError, which says how to install it."""
    found = installed(known)
    if found is None:
        raise ConfigError(f"{known.name} is not installed here: egostream systems install {known.name}")
    return found


def install(known: Known, python: Path | None, say: Callable[[str], None]) -> Environment:
    """Make a system's environment, if it is not there. `python`: an interpreter for it; by default one that is found
    and fits. `say`: gets a line for each step. Blocking, for as long as the downloads take.

    Raises ConfigError where no interpreter fits, or what came is something else than the pins say; ProcessError where
    pip fails.
    """
    folder = folder_of(known)
    with _alone(folder):
        found = installed(known)
        if found is not None:
            return found
        base, version = _base_python(known, python)
        say(f"{known.name}: an environment of Python {version} in {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        _run("venv", [base, "-I", "-m", "venv", str(folder)], lambda _: None)
        inside = str(folder / "bin" / "python")
        pip = [
            "-I",
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar",
            "off",
        ]
        _run("pip", [inside, *pip, "--requirement", str(known.pins)], say)
        _check(known, inside)
        made = Environment(python=inside, python_version=version)
        write_whole(folder / _INSTALLED, msgspec.json.encode(made))
    return made


def remove(known: Known) -> bool:
    """Delete a system's environment; gives whether there was any. Blocking."""
    folder = folder_of(known)
    with _alone(folder):
        was_there = folder.exists()
        (folder / _INSTALLED).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return was_there


def python_range(known: Known) -> str:
    """The versions of Python that a system runs on, as in `3.11+` or `3.12-3.13`."""
    first, end = known.python
    low = max(first, FIRST_PYTHON)
    if end is None or end[1] == 0:
        return f"{low[0]}.{low[1]}+"
    last = f"{end[0]}.{end[1] - 1}"
    return last if last == f"{low[0]}.{low[1]}" else f"{low[0]}.{low[1]}-{last}"


def _base_python(known: Known, given: Path | None) -> tuple[str, str]:
    """An interpreter that fits, and its version. Raises ConfigError."""
    if given is not None:
        version = _version_of(str(given))
        if version is None:
            raise ConfigError(f"{given} is no Python interpreter")
        if not _fits(known, version):
            raise ConfigError(
                f"{known.name} needs Python {python_range(known)}, and {given} is {version}: name another with --python"
            )
        return str(given), version
    for candidate in (sys.executable, *_pythons(max(known.python[0], FIRST_PYTHON)[1])):
        version = _version_of(candidate)
        if version and _fits(known, version):
            return candidate, version
    raise ConfigError(
        f"{known.name} needs Python {python_range(known)}, and there is none here: egostream systems install "
        f"{known.name} --python PATH"
    )


def _pythons(first_minor: int) -> Iterator[str]:
    """Those on the path, and those that pyenv and uv keep beside it, older minor versions first. What pyenv puts on the
    path may not run."""
    folders = [Path(folder) for folder in os.get_exec_path() if os.path.isabs(folder)]
    for variable, usual, inside in _KEPT_PYTHONS:
        kept = Path(os.environ.get(variable) or Path.home() / usual)
        folders += sorted(kept.glob(inside))
    for minor in range(first_minor, 20):
        for folder in folders:
            yield from filter(None, [shutil.which(str(folder / f"python3.{minor}"))])


def _version_of(python: str) -> str | None:
    try:
        said = subprocess.run([python, "-I", "-c", _VERSION], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() if said.returncode == 0 else None


def _fits(known: Known, version: str) -> bool:
    first, end = known.python
    there = tuple(map(int, version.split(".")[:2]))
    return there >= max(first, FIRST_PYTHON) and (end is None or there < end)


def _check(known: Known, python: str) -> None:
    """All pins are there, and nothing in their place: a registry may give an older package of that name, which is
    another one. Raises ConfigError."""
    pins = {match["name"]: match["version"] for match in map(_PIN.match, _lines(known)) if match}
    said = subprocess.run(
        [python, "-I", "-c", _VERSIONS, json.dumps(list(pins))], capture_output=True, check=True, timeout=300
    )
    found = json.loads(said.stdout)
    wrong = [
        f"{name} {found.get(name, 'nowhere')}, not {version}"
        for name, version in pins.items()
        if found.get(name, "") != version
    ]
    if known.distribution and pins.get(known.distribution) != known.version:
        wrong.insert(0, f"no pin of {known.distribution} {known.version}")
    if wrong:
        raise ConfigError(f"{known.name} was not installed as pinned: {'; '.join(wrong[:5])}")


def _lines(known: Known) -> list[str]:
    return known.pins.read_text(encoding="utf-8").splitlines()


def _run(name: str, command: list[str], say: Callable[[str], None]) -> None:
    """Run a command and pass on what it says. Raises ProcessError."""
    said: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line.strip())
                say(line.strip())
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise ProcessError(name, process.returncode, said)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Alone among all processes on one environment."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"{folder.parent} can't be used for environments: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
