"""`egostream systems install` and `remove`: the environments of foreign systems."""

from __future__ import annotations

import re
from pathlib import Path

import click

from adapters.foreign.catalogue import Known, known
from adapters.foreign.environment import folder_of, install, installed, remove
from adapters.foreign.sources import find_source, variable_of
from simulator.cli import common
from simulator.cli.progress import progress_bar
from simulator.errors import ConfigError

_PACKAGE = re.compile(r"(?:Collecting|Using cached|Downloading) (?P<name>\S+)|(?P<last>Installing) collected")


def next_step(about: Known, source: str = "") -> str:
    """What to do for a run with it."""
    if installed(about) is None:
        return common.command("systems", "install", about.name)
    try:
        find_source(about, source)
    except ConfigError:
        return f"export {variable_of(about)}=DIR"
    return f"--system {about.name}:model=NAME"


@click.command(
    "install",
    short_help="Make the environment of a foreign system.",
    epilog="Example: egostream systems install mem0",
)
@click.argument("name")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The interpreter for it. [default: this one, or one that is found and fits]",
)
@common.command_options
def install_system(name: str, python: Path | None, settings: common.Settings) -> None:
    """Make a virtual environment for the foreign system NAME, with its packages as they are pinned.

    It lies in $EGOSTREAM_SYSTEMS, or in egostream/systems in your folder for caches. What is there already stays.
    """
    about = known(name)
    packages = sum("==" in line for line in about.pins.read_text(encoding="utf-8").splitlines())
    with progress_bar(f"installing {name}", settings.quiet) as update:
        done = 0

        def say(line: str) -> None:
            nonlocal done
            if found := _PACKAGE.match(line):
                done += line.startswith("Collecting")
                update(min(done, packages), packages, found["name"] or "installing what came")

        made = install(about, python, say)
    row = {
        "name": name,
        "folder": str(folder_of(about)),
        "python": made.python_version,
        "next": next_step(about),
    }
    if settings.json:
        common.print_json(row)
        return
    common.say(f"{name} {about.version} is installed in {row['folder']} (Python {made.python_version})")
    common.say(f"    {row['next']}")


@click.command(
    "remove",
    short_help="Delete the environment of a foreign system.",
    epilog="Example: egostream systems remove mem0",
)
@click.argument("name")
@common.command_options
def remove_system(name: str, settings: common.Settings) -> None:
    """Delete the environment of the foreign system NAME."""
    about = known(name)
    was_there = remove(about)
    if settings.json:
        common.print_json({"name": name, "removed": was_there})
        return
    common.say(f"{name} was removed" if was_there else f"{name} was not installed")
