"""`egostream models`: which models are configured, and what they can do."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click
import msgspec

from adapters.endpoints import ModelSettings, find_model, read_models
from adapters.endpoints.check import Checks, check_model
from consumers.tables import new_table
from simulator.cli import common
from simulator.cli.progress import progress_bar
from simulator.errors import ConfigError

_NONE = "there is no models.toml here, and no --models: docs/models.md says what stands in it"


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  egostream models --models models.toml
  egostream models check judge
  egostream models check openai:qwen2.5-7b@http://127.0.0.1:8080/v1
""",
)
@common.models_option
@common.command_options
@click.pass_context
def models(ctx: click.Context, models: Path | None, settings: common.Settings) -> None:
    """List the models that are configured (docs/models.md says how), or check what they can do."""
    if ctx.invoked_subcommand is not None:
        if models is not None:
            raise click.UsageError("--models belongs behind `check`", ctx)
        return
    found = read_models(models)
    if settings.json:
        common.print_json(found)
        return
    if not found:
        raise ConfigError(_NONE)
    table = new_table("", "Name", "Kind", "Model", "Endpoint", "Key", "Price")
    for name, model in found.items():
        table.add_row(name, model.kind, model.model, model.base_url, _key(model), _price(model))
    common.show(table)
    common.say("\nPrices are of a million tokens, of prompts and of completions. What they can do:")
    common.say(
        f"    {common.command('models', 'check', *([] if models is None else ['--models', models]), *found)}"
    )


@models.command(
    short_help="Ask models once for all that they may be used for.",
    epilog="Example: egostream models check judge answers",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@common.models_option
@common.command_options
def check(names: tuple[str, ...], models: Path | None, settings: common.Settings) -> int:
    """Ask each model once for an answer, a stream, and JSON in each form, or for embeddings, and say what works.

    NAME is one of the file's, or openai:MODEL@http://HOST:PORT/v1; all of the file's unless given. Exit code 1 says
    that one can't be used as it is configured.
    """
    found = read_models(models)
    wanted = {name: _named(found, name) for name in names or found}
    if not wanted:
        raise ConfigError(_NONE)
    with progress_bar("asking", settings.quiet) as update:
        results: list[Checks] = []
        for number, (name, model) in enumerate(wanted.items()):
            update(number, len(wanted), name)
            results.append(common.run_async(partial(check_model, name, model)))
    if settings.json:
        common.print_json(results)
    else:
        for result in results:
            _show(result, wanted[result.model])
    return 0 if all(result.works for result in results) else 1


def _named(found: dict[str, ModelSettings], name: str) -> ModelSettings:
    return find_model(found, name, found[name].kind if name in found else "chat")


def _show(result: Checks, model: ModelSettings) -> None:
    table = new_table(
        f"{result.model}: {model.model} at {model.base_url}", "Asked for", "Works", "Took", "What came"
    )
    for done in result.checks:
        table.add_row(done.what, "yes" if done.works else "no", f"{done.seconds:.2f} s", done.detail)
    common.show(table)
    if result.advice:
        common.say("What to set, or to know:")
    for line in result.advice:
        common.say(f"    {line}")


def _key(model: ModelSettings) -> str:
    if not model.api_key_env:
        return "none"
    return f"${model.api_key_env}" + ("" if os.environ.get(model.api_key_env) else " (not set)")


def _price(model: ModelSettings) -> str:
    price = model.price_per_million
    return "/".join(f"{part:g}" for part in msgspec.structs.astuple(price))
