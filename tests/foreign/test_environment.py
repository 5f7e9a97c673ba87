"""Environments: made whole or not at all, of what is pinned and nothing else. Nothing is downloaded here."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from adapters.foreign import environment
from adapters.foreign.catalogue import Known, Option, catalogue
from adapters.foreign.environment import (
    Environment,
    folder_of,
    install,
    installed,
    must_be_installed,
    python_range,
    remove,
)
from adapters.foreign.sources import find_source, source_digest, source_warning
from simulator.errors import ConfigError, ProcessError
from tests.foreign.helpers import TOY_KNOWN, ToyKnown
from tests.foreign.hosts import SOURCES, checkout


class Pinned(ToyKnown, frozen=True, kw_only=True):
    """The toy with pins of its own."""

    pinned: str

    @property
    def pins(self) -> Path:
        return Path(self.pinned)


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pinned:
    monkeypatch.setenv("EGOSTREAM_SYSTEMS", str(tmp_path / "systems"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    pins = tmp_path / "toy.txt"
    pins.write_text("# nothing\n")
    return Pinned(**msgspec.structs.asdict(TOY_KNOWN), pinned=str(pins))


def test_an_environment_is_there_once_it_is_whole(pinned: Pinned, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(pinned)
    folder.mkdir(parents=True)
    (folder / "half").touch()
    assert installed(pinned) is None
    with pytest.raises(ConfigError, match="toy is not installed here: egostream systems install toy"):
        must_be_installed(pinned)
    said: list[str] = []
    made = install(pinned, None, said.append)
    assert str(folder) in said[0]
    assert not (folder / "half").exists()
    assert must_be_installed(pinned) == made
    ran = subprocess.run([made.python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True)
    assert ran.stdout.strip() == str(folder)
    monkeypatch.setattr(environment, "_run", None)
    assert install(pinned, None, said.append) == made  # nothing is run again
    Path(pinned.pinned).write_text("# other pins\n")
    assert installed(pinned) is None
    Path(pinned.pinned).write_text("# nothing\n")
    assert remove(pinned)
    assert not folder.exists()
    assert not remove(pinned)


def test_what_can_t_be_had_leaves_nothing_that_counts(pinned: Pinned) -> None:
    Path(pinned.pinned).write_text("a-package-that-is-not-there==1\n")
    with pytest.raises(ProcessError, match=r"pip ended with exit code 1.*No matching distribution"):
        install(pinned, None, lambda _: None)
    assert installed(pinned) is None


def test_another_version_than_the_pinned_one_is_refused(
    pinned: Pinned, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(pinned.pinned).write_text("anyio==0.0.1\nno-such-thing[extra]==2 ; python_version > '3'\n")
    with pytest.raises(ConfigError, match=r"anyio [\d.]+, not 0.0.1; no-such-thing nowhere, not 2"):
        environment._check(pinned, sys.executable)


def test_an_interpreter_that_does_not_fit_is_refused(pinned: Pinned, tmp_path: Path) -> None:
    future = msgspec.structs.replace(pinned, python=((3, 19), None))
    with pytest.raises(ConfigError, match=r"toy needs Python 3.19\+, and .* is 3.*--python"):
        install(future, Path(sys.executable), lambda _: None)
    with pytest.raises(ConfigError, match="there is none here: egostream systems install toy --python PATH"):
        install(future, None, lambda _: None)
    with pytest.raises(ConfigError, match="is no Python interpreter"):
        install(pinned, tmp_path / "nothing", lambda _: None)


@pytest.mark.parametrize(
    ("variable", "usual", "place"),
    [
        ("PYENV_ROOT", ".pyenv", "versions/3.19.1/bin"),
        ("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", "cpython-3.19.1-linux-x86_64-gnu/bin"),
    ],
)
def test_an_interpreter_is_found_behind_one_that_does_not_run(
    variable: str, usual: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims, kept = tmp_path / "shims", tmp_path / usual / place
    for folder, script in ((shims, "exit 127"), (kept, "echo 3.19.1")):
        folder.mkdir(parents=True)
        (folder / "python3.19").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "python3.19").chmod(0o755)
    monkeypatch.setenv("PATH", str(shims))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(variable, raising=False)
    future = msgspec.structs.replace(TOY_KNOWN, python=((3, 19), None))
    found = (str(kept / "python3.19"), "3.19.1")
    assert environment._base_python(future, None) == found
    monkeypatch.setenv(variable, str(tmp_path / usual))
    monkeypatch.setenv("HOME", str(shims))
    assert environment._base_python(future, None) == found
    monkeypatch.setenv(variable, str(shims))
    with pytest.raises(ConfigError, match="there is none here"):
        environment._base_python(future, None)
    monkeypatch.setenv("PATH", f"{shims}:{kept}")
    assert environment._base_python(future, None) == found


@pytest.mark.parametrize(
    ("python", "says"),
    [
        (((3, 8), None), "3.11+"),
        (((3, 10), (4, 0)), "3.11+"),
        (((3, 12), None), "3.12+"),
        (((3, 9), (3, 13)), "3.11-3.12"),
        (((3, 12), (3, 13)), "3.12"),
    ],
)
def test_ranges_of_python_are_said_briefly(
    python: tuple[tuple[int, int], tuple[int, int] | None], says: str
) -> None:
    assert python_range(msgspec.structs.replace(TOY_KNOWN, python=python)) == says


def test_a_source_is_found_by_option_or_variable_and_known_by_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {
        "address": "https://example.org/toy",
        "commit": "0c8039f",
        "needs": ["toy.py"],
        "used": ["toy.py"],
        "digest": "0" * 12,
    }
    told = msgspec.to_builtins(TOY_KNOWN) | {"source": source}
    sourced = msgspec.convert(told, Known)
    with pytest.raises(ConfigError, match=r"git clone \S+ \(commit 0c8039f\).*\$EGOSTREAM_SOURCE_TOY"):
        find_source(sourced, "")
    with pytest.raises(ConfigError, match=r"is no checkout of .*: it lacks toy.py"):
        find_source(sourced, str(tmp_path))
    for name in ("toy.py", ".git/config", "deep/more.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert find_source(sourced, str(tmp_path)) == tmp_path
    monkeypatch.setenv("EGOSTREAM_SOURCE_TOY", str(tmp_path))
    assert find_source(sourced, "") == tmp_path
    before = source_digest(tmp_path)
    (tmp_path / ".git/config").write_text("another")
    source_digest.cache_clear()
    assert source_digest(tmp_path) == before
    (tmp_path / "deep/more.py").write_text("another")
    source_digest.cache_clear()
    assert source_digest(tmp_path) != before


@pytest.mark.parametrize("name", SOURCES)
def test_a_checkout_is_as_measured_as_long_as_what_its_driver_uses_of_it_is(
    name: str, tmp_path: Path
) -> None:
    about, folder = catalogue()[name], tmp_path / "checkout"
    real = checkout(name)
    assert real is not None
    assert about.source is not None
    assert source_warning(about, str(real)) == ""
    for place in (path for path in real.rglob("*") if path.is_file()):
        copy = folder / place.relative_to(real)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(place.read_bytes())
    (folder / "README.md").write_text("another\n")
    assert source_warning(about, str(folder)) == ""
    for pattern in about.source.used:
        path = next(folder.glob(pattern))
        path.write_bytes(b"# another\n" + (kept := path.read_bytes()))
        source_digest.cache_clear()
        said = source_warning(about, str(folder))
        assert f"{name}: {folder} is not as at commit {about.version}" in said, pattern
        assert said.endswith(f"take that commit of {about.source.address}")
        path.write_bytes(kept)


@pytest.mark.parametrize(
    ("option", "takes", "refuses", "says"),
    [
        (Option(about="it"), ["", "any thing"], [], "any text"),
        (Option(about="it", choices=("a", "b")), ["a", "b"], ["", "A", "ab"], "a or b"),
        (
            Option(about="it", number="whole", least=1),
            ["1", "20"],
            ["0", "-1", "1.5", "1e3", "many", "nan", ""],
            "a whole number of at least 1",
        ),
        (
            Option(about="it", number="any", least=0),
            ["0", "0.6", "1e3"],
            ["-0.1", "nan", "inf", "1,5", "hot"],
            "a number of at least 0",
        ),
        (Option(about="it", number="any"), ["-3"], ["-inf"], "a number"),
    ],
)
def test_what_an_option_may_be(option: Option, takes: list[str], refuses: list[str], says: str) -> None:
    assert [value for value in (*takes, *refuses) if option.takes(value)] == takes
    assert option.may_be == says


@pytest.mark.parametrize("name", catalogue())
def test_what_is_known_of_a_system_is_whole(name: str) -> None:
    known = catalogue()[name]
    assert known.driver.is_file()
    assert known.about.endswith(".")
    pins = known.pins.read_text().splitlines()
    assert all("==" in line or line.startswith("#") for line in pins)
    assert (known.source is None) == bool(known.distribution)
    if known.distribution:
        assert f"{known.distribution}=={known.version}" in pins
    assert isinstance(installed(known), Environment | None)
    assert all(known.options[option].takes(value) for option, value in known.whole_with.items())


@pytest.mark.parametrize("name", catalogue())
def test_a_driver_reads_the_options_that_the_catalogue_has_and_tells_their_words_apart(name: str) -> None:
    known = catalogue()[name]
    trees = [ast.parse(known.driver.read_text())]
    if "unit_of(settings)" in known.driver.read_text():
        trees.append(ast.parse((known.driver.parents[1] / "patching.py").read_text()))
    defaults: dict[str, str] = {}
    tables: list[set[str]] = []
    units: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="options"), attr="get") | ast.Name(id="option"),
                args=[ast.Constant(value=str(option)), ast.Constant(value=default)],
            ):
                defaults[option] = str(default)
            case ast.Dict(keys=keys):
                tables.append({key.value for key in keys if isinstance(key, ast.Constant)})
            case ast.Compare(
                left=ast.Name(id="unit") | ast.Attribute(attr="_unit"),
                comparators=[ast.Constant(value=str(unit))],
            ):
                units.add(unit)
    assert defaults.keys() == known.options.keys()
    for option, about in known.options.items():
        assert about.takes(defaults[option])
        assert f"({float(defaults[option]):g})" in about.about if about.number else "default" in about.about
    if "unit" in defaults:
        assert units | {defaults["unit"]} == set(known.options["unit"].choices)
    if "memory" in defaults:
        assert set(known.options["memory"].choices) in tables
