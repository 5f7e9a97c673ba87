"""The command line: one file for each command."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

import click

from simulator.cli import common
from simulator.cli.demo import demo
from simulator.cli.inspect import inspect
from simulator.cli.replay import replay
from simulator.cli.run import run
from simulator.cli.scores import scores
from simulator.cli.systems import systems
from simulator.cli.tap import tap


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Begin with `egostream demo`. Every command takes --json, and `egostream COMMAND --help` has examples.",
)
@click.version_option(version("egostream"), prog_name="egostream")
def cli() -> None:
    """Replay a lifelog as an event stream and measure what memory systems make of it.

    A run is an event log: observations go in, memory systems write what they stored and answered, judges write
    verdicts, and every number is read off that log.

    Exit codes: 0 all is well · 1 something failed · 2 what was given can't be used · 4 the run ended, but a share of
    it is unjudged · 130 stopped with Ctrl-C (what was done stays in the log).
    """


for command in (demo, inspect, run, scores, replay, tap, systems):
    cli.add_command(command)


def main() -> None:
    """Entry point: errors are one line on standard error, with the exit codes that `egostream --help` names."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("egostream: stopped; what was done is in the log", err=True)
        code = 130
    except BrokenPipeError:  # the reader (`| head`) has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if not common.expected(error):
            raise
        code = common.fail(error)
    sys.exit(code if isinstance(code, int) else 0)
