"""`egostream systems`: which memory systems there are, whether they are sound, and the environments of foreign ones."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from adapters.foreign.catalogue import Known, catalogue, known
from adapters.foreign.environment import folder_of, install, installed, python_range, remove
from adapters.foreign.sources import find_source, source_warning, variable_of
from adapters.registry import SystemSpec, available, brought, capabilities, describe, options_of, parse_spec
from consumers.tables import new_table
from simulator.cli import common
from simulator.cli.check import check
from simulator.cli.progress import progress_bar
from simulator.cli.sources import note_sources
from simulator.errors import ConfigError
from simulator.plan import means_of

_PACKAGE = re.compile(r"(?:Collecting|Using cached|Downloading) (?P<name>\S+)|(?P<last>Installing) collected")


class _Systems(click.Group):
    """Lists, where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with the command that is meant."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_Systems,
    epilog="""\b
Examples:
  egostream systems --json
  egostream systems mem0
  egostream systems install mem0
  egostream systems mypackage.module:MyMemory
  egostream systems check mypackage.module:MyMemory
""",
)
def systems() -> None:
    """List the memory systems, and how to name your own; check that one is sound; or install a foreign one.

    There are built-in ones, those that installed packages bring (docs/your-memory.md), and foreign ones, which others
    have published: these run in an environment and a process of their own, and ask the run's models (docs/systems.md).
    """


@systems.command(
    "list", short_help="List all memory systems, or what SYSTEM declares: what is done without a command."
)
@click.argument("specs", nargs=-1, metavar="[SYSTEM]...")
@common.command_options
def list_systems(specs: tuple[str, ...], settings: common.Settings) -> None:
    """List the memory systems, built in and foreign, and how to name your own; or what SYSTEM declares.

    Each trajectory gets the memory as it was at its moment, by a fork, a copy of its folder, or replay of the stream
    up to there: the best that the system declares. One that can do none of these runs with --isolation shared.
    """
    broken: dict[str, str] = {}
    named = [parse_spec(spec) for spec in specs]
    note_sources(named or [parse_spec(name) for name in catalogue()], settings)
    if named:
        rows = {spec.label: _row(spec) for spec in named}
    else:
        rows, broken = _all()
    if settings.json:
        common.print_json({**{name: {"error": why} for name, why in broken.items()}, **rows})
        return
    table = new_table("", "Name", "Branches", "What it does")
    for name, row in rows.items():
        options = (
            (f"  {option}: {what}" for option, what in row["options"].items())
            if specs or not row["foreign"]
            else ()
        )
        package = (f"  from {row['package']}",) if "package" in row else ()
        table.add_row(name, row["branches"] or "none", "\n".join([row["about"], *package, *options]))
    common.show(table)
    for name, why in broken.items():
        common.note(f"{name}: {why}")
    foreign = {name: row["foreign"] for name, row in rows.items() if row["foreign"]}
    if foreign:
        asked = {spec.label: catalogue()[spec.name] for spec in named if spec.label in foreign}
        _show_foreign(foreign, asked)
    if specs:
        return
    common.say(
        "\nOptions follow a colon:   --system rag_raw:retrieval=bm25,top_k=5\n"
        "A label of your choice:   --system bm25=rag_raw:retrieval=bm25\n"
        "A foreign system:         --system mem0:model=NAME (its options: egostream systems mem0)\n"
        "Your own class:           --system mypackage.module:MyMemory (docs/your-memory.md)\n"
        "Whether a system is sound: egostream systems check NAME"
    )


@systems.command(
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
    row = {"name": name, "folder": str(folder_of(about)), "python": made.python_version, "next": _next(about)}
    if settings.json:
        common.print_json(row)
        return
    common.say(f"{name} {about.version} is installed in {row['folder']} (Python {made.python_version})")
    common.say(f"    {row['next']}")


@systems.command(
    "remove",
    short_help="Delete the environment of a foreign system.",
    epilog="Example: egostream systems remove mem0",
)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@common.command_options
def remove_system(name: str, yes: bool, settings: common.Settings) -> None:
    """Delete the environment of the foreign system NAME. On a terminal it asks before, elsewhere it wants --yes."""
    about = known(name)
    folder = folder_of(about)  # which of several $EGOSTREAM_SYSTEMS it is
    if folder.exists() and not (yes or _may_go(name, folder)):
        was_there, said = False, f"{name} stays in {folder}"
    else:
        was_there = remove(about)
        said = f"{name} was removed from {folder}" if was_there else f"{name} was not installed in {folder}"
    if settings.json:
        common.print_json({"name": name, "removed": was_there})
        return
    common.say(said)


def _may_go(name: str, folder: Path) -> bool:
    """Ask, if there is somebody. Raises ConfigError."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            f"{folder} would take minutes to make again: pass --yes to delete the environment of {name}"
        )
    try:
        return click.confirm(f"Delete {folder}, which takes minutes to make again?", err=True)
    except click.Abort:  # Ctrl-C, or the end of the input
        common.note("")
        raise common.StoppedError(f"stopped; {name} stays in {folder}") from None


def _all() -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The systems that are known and those of packages, and of the names that can't be used, why."""
    rows = {name: _row(parse_spec(name)) for name in (*available(), *catalogue())}
    try:
        packages_of = brought()
    except ConfigError as error:
        return rows, {"packages": str(error)}
    broken: dict[str, str] = {}
    for name, packages in packages_of.items():
        if name in rows:
            broken[name] = f"{packages} brings a system of that name; the built-in one is used"
            continue
        try:
            rows[name] = {**_row(SystemSpec(label=name, name=name)), "package": packages}
        except ConfigError as error:
            broken[name] = str(error)
    return rows, broken


def _row(spec: SystemSpec) -> dict[str, Any]:
    about = catalogue().get(spec.name)
    own = {} if about is None else {name: option.about for name, option in about.options.items()}
    return {
        "about": describe(spec),
        "branches": means_of(spec),
        "privileged": capabilities(spec).privileged,
        "options": options_of(spec) | own,
        "foreign": None if about is None else _foreign(about, spec.options.get("source", "")),
    }


def _foreign(about: Known, source: str) -> dict[str, Any]:
    environment = installed(about)
    return {
        "title": about.title,
        "version": about.version,
        "licence": about.licence,
        "python": python_range(about),
        "installed": environment is not None,
        "folder": str(folder_of(about)),
        "source": None if about.source is None else f"{about.source.address} {about.source.commit}",
        "warning": source_warning(about, source) or None,
        "ingest": about.ingest,
        "search": about.search,
        "top_k": about.top_k,
        "approximations": about.approximations,
        "next": _next(about, source),
    }


def _next(about: Known, source: str = "") -> str:
    """What to do for a run with it."""
    if installed(about) is None:
        return common.command("systems", "install", about.name)
    try:
        find_source(about, source)
    except ConfigError:
        return f"export {variable_of(about)}=DIR"
    return f"--system {about.name}:model=NAME"


def _show_foreign(rows: dict[str, dict[str, Any]], asked: dict[str, Known]) -> None:
    common.say()
    table = new_table("", "Foreign", "Version", "Licence", "Python", "Next")
    for name, row in rows.items():
        here = f"{name} ✓" if row["installed"] else name  # a column of its own would not fit into 80
        table.add_row(here, row["version"], row["licence"], row["python"], row["next"])
    common.show(table)
    common.say("✓ installed here")
    for name, about in asked.items():
        source = rows[name]["source"]
        common.say(f"\n{name} is {about.title}" + (f", from {source}" if source else ""))
        common.say(f"    {about.driven}")
        for approximation in about.approximations:
            common.say(f"    here: {approximation}")


systems.add_command(check)
