"""`egostream systems`: which memory systems there are, and whether one keeps what runs rely on."""

from __future__ import annotations

from typing import Any

import click

from adapters.registry import SystemSpec, available, brought, capabilities, describe, options_of, parse_spec
from consumers.tables import new_table
from simulator.cli import common
from simulator.cli.check import check
from simulator.errors import ConfigError
from simulator.plan import means_of


class _Systems(click.Group):
    """Takes systems' names where there is no subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """All but the subcommand goes to the list; help is that of both."""
        _, rest, _ = self.make_parser(ctx).parse_args(list(args))
        if rest[:1] != ["check"]:
            args = ["--help"] if {"-h", "--help"} & set(args) else ["list", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_Systems,
    subcommand_metavar="[SYSTEM]... | check SYSTEM...",
    epilog="""\b
Examples:
  egostream systems --json
  egostream systems mypackage.module:MyMemory
  egostream systems check mypackage.module:MyMemory
""",
)
@common.command_options
def systems(settings: common.Settings) -> None:
    """List the memory systems there are, and how to name your own; or what SYSTEM declares; or check it.

    There are the built-in ones and those that installed packages bring (docs/your-memory.md). Each trajectory gets the
    memory as it was at its moment, by a fork, a copy of its folder, or replay of the stream up to there: the best that
    the system declares. One that can do none of these runs with --isolation shared.
    """


@systems.command("list", hidden=True)
@click.argument("specs", nargs=-1, metavar="[SYSTEM]...")
@common.command_options
def list_(specs: tuple[str, ...], settings: common.Settings) -> None:
    """List systems."""
    broken: dict[str, str] = {}
    if specs:
        rows = {spec.label: _row(spec) for spec in map(parse_spec, specs)}
    else:
        rows, broken = _all()
    if settings.json:
        common.print_json({**{name: {"error": why} for name, why in broken.items()}, **rows})
        return
    table = new_table("", "Name", "Branches", "What it does")
    for name, row in rows.items():
        options = (f"  {option}: {what}" for option, what in row["options"].items())
        package = (f"  from {row['package']}",) if "package" in row else ()
        table.add_row(name, row["branches"] or "none", "\n".join([row["about"], *package, *options]))
    common.show(table)
    for name, why in broken.items():
        common.note(f"{name}: {why}")
    if specs:
        return
    common.say(
        "\nOptions follow a colon:   --system rag_raw:retrieval=bm25,top_k=5\n"
        "A label of your choice:   --system bm25=rag_raw:retrieval=bm25\n"
        "Your own class:           --system mypackage.module:MyMemory (docs/your-memory.md)\n"
        "Whether a system is sound: egostream systems check NAME"
    )


def _all() -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The built-in systems and those of packages, and of the names that can't be used, why."""
    rows = {name: _row(parse_spec(name)) for name in available()}
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
    return {
        "about": describe(spec),
        "branches": means_of(spec),
        "privileged": capabilities(spec).privileged,
        "options": options_of(spec),
    }


systems.add_command(check)
