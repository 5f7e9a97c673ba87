"""The command line: one file for each command."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

import click

from simulator.cli import common

_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Evaluate memory systems": {
        "demo": "Evaluate four memory systems on two made-up people's days.",
        "systems": "List the memory systems, check them, install foreign ones.",
        "run": "Evaluate memory systems on a dataset.",
        "retry": "Run again what stayed unjudged.",
        "scores": "Print what a run scored.",
        "audit": "Check that a run's log keeps the invariants.",
    },
    "Prepare data and models": {
        "inspect": "Count what is in a dataset, and list its oddities.",
        "anchors": "Make evidence and tasks from a stream, check and audit them.",
        "models": "List the configured models, and check what they can do.",
        "cache": "Print what the cache of models' answers holds.",
    },
    "Offer a stream by the clock": {
        "replay": "Publish a dataset's observations by the clock.",
        "load": "Load a memory system, and measure how late it remembers.",
        "report": "Write what runs, or a load, came to as an HTML page.",
    },
    "Look into a run, and steer it": {
        "status": "Print how a run stands: who owes what, and for how long.",
        "tap": "Print the events of one topic of a run.",
        "lag": "Print how far the roles of a run are behind.",
        "ctl": "Pause, resume or speed up a running replay.",
    },
    "Use several processes, or an agent of your own": {
        "worker": "Run one role as a process of its own, on a shared log.",
        "attach": "Attach your own memory system to a run.",
        "asyncapi": "Print what travels on the topics, as an AsyncAPI document.",
    },
}
"""In the order in which one meets them. Each is the function of that name in the module of that name."""

_COMMANDS: Final = tuple(name for commands in _GROUPS.values() for name in commands)


class _Commands(click.Group):
    """Imports only the command that is called, and takes Ctrl-C from anywhere in it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command; None where there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"simulator.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`."""
        width = max(map(len, _COMMANDS))  # all sections are aligned alike
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), says) for name, says in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """As click does."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise common.StoppedError("stopped") from error


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Begin with `egostream demo`. `egostream COMMAND --help` has an example of each.",
)
@click.version_option(version("egostream"), prog_name="egostream")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Replay a lifelog as an event stream and measure what memory systems make of it.

    A run is an event log: observations go in, memory systems write what they stored and answered, judges
    write verdicts, and every number is read off that log.

    \b
    Exit codes:
      0    all is well
      1    something failed
      2    what was given can't be used
      3    a run's log breaks an invariant
      4    the run ended, but a share of it is unjudged
      130  stopped with Ctrl-C; what was done stays in the log
    """
    if ctx.invoked_subcommand is None:
        common.say(ctx.get_help())


def main() -> None:
    """Entry point: errors are one line on standard error, with the exit codes of `egostream --help`."""
    common.configure_logging("warning", as_json=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters gets a ?, not a crash
    try:
        code = cli.main(prog_name="egostream", standalone_mode=False)
    except Exception as error:
        code = common.fail(error)
    sys.exit(code if isinstance(code, int) else 0)
