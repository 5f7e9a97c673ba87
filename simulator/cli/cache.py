"""`egostream cache`: what models' answers are kept, and deleting some."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from adapters.endpoints import Cache, default_cache
from consumers.tables import new_table
from simulator.cli import common
from simulator.errors import ConfigError

T = TypeVar("T")
DAY_S = 86_400


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  egostream cache
  egostream cache prune --days 90
""",
)
@common.cache_option
@common.command_options
@click.pass_context
def cache(ctx: click.Context, cache: Path | None, settings: common.Settings) -> None:
    """Print what the cache of models' answers holds, by model, or delete from it."""
    if ctx.invoked_subcommand is not None:
        if cache is not None:
            raise click.UsageError("--cache belongs behind `prune`", ctx)
        return
    path = cache or default_cache()
    found = _with_cache(path, lambda opened: opened.models())
    if settings.json:
        common.print_json({"cache": str(path), "file_bytes": path.stat().st_size, "models": found})
        return
    table = new_table(f"{path}, {path.stat().st_size / 1e6:,.1f} MB", "Model", "Answers", "MB", "Last kept")
    for model in found:
        kept = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.last_kept_at_s))
        table.add_row(model.model, f"{model.entries:,}", f"{model.value_bytes / 1e6:,.1f}", kept)
    common.show(table)


@cache.command(
    short_help="Delete answers.", epilog='Example: egostream cache prune --model "gpt-x at https://..."'
)
@common.cache_option
@click.option("--model", metavar="NAME", help="Only those of this model, as `egostream cache` names it.")
@click.option(
    "--days", type=click.IntRange(min=0), metavar="N", help="Only those that were kept more than N days ago."
)
@common.command_options
def prune(cache: Path | None, model: str | None, days: int | None, settings: common.Settings) -> None:
    """Delete answers that were paid for: by model, by age, or both."""
    if model is None and days is None:
        raise ConfigError("say which: --model, --days or both (for all, delete the file)")
    before_s = None if days is None else int(time.time()) - days * DAY_S
    deleted = _with_cache(
        cache or default_cache(), lambda opened: opened.prune(model=model, kept_before_s=before_s)
    )
    common.print_json({"deleted": deleted}) if settings.json else common.say(f"{deleted:,} answers deleted")


def _with_cache(path: Path, work: Callable[[Cache], Awaitable[T]]) -> T:
    if not path.exists():
        raise ConfigError(f"there is no cache at {path}")

    async def opened() -> T:
        cache = Cache(path)
        await cache.open()
        try:
            return await work(cache)
        finally:
            await cache.aclose()

    return common.run_async(opened)
