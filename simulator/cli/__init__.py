"""The command line: one file for each command."""

from __future__ import annotations

import io
import sys
from importlib.metadata import version
from typing import Any

import click

from simulator.cli import common
from simulator.cli.demo import demo
from simulator.cli.inspect import inspect
from simulator.cli.replay import replay
from simulator.cli.run import run
from simulator.cli.scores import scores
from simulator.cli.systems import systems
from simulator.cli.tap import tap


class _Commands(click.Group):
    """Lists commands in the order in which one meets them, and takes Ctrl-C from anywhere."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were added."""
        return list(self.commands)

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
      4    the run ended, but a share of it is unjudged
      130  stopped with Ctrl-C; what was done stays in the log
    """
    if ctx.invoked_subcommand is None:
        common.say(ctx.get_help())


for command in (demo, inspect, systems, run, scores, tap, replay):
    cli.add_command(command)


def main() -> None:
    """Entry point: errors are one line on standard error, with the exit codes of `egostream --help`."""
    common.configure_logging("warning", as_json=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters gets a ?, not a crash
    try:
        code = cli.main(standalone_mode=False)
    except Exception as error:
        code = common.fail(error)
    sys.exit(code if isinstance(code, int) else 0)
