"""`egostream anchors build`: a release of anchors, made by models out of any stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click
import msgspec
from rich.text import Text

from adapters.endpoints import Models, ModelSettings, default_cache, find_model, read_models
from adapters.endpoints.tally import PER_MILLION
from adapters.prompt import PromptLanguage
from consumers.score_tables import money
from consumers.tables import new_table
from producers.anchors.building import CANDIDATES_NAME, Built, build_release, partial_of
from producers.anchors.candidates import Prompts
from producers.anchors.construction import Account, Asking, Estimate, Progress, estimate
from producers.datasets import read_dataset
from simulator.cli import common
from simulator.cli.progress import files_progress, progress_bar
from simulator.plan import first_segments

MOST_PER_SEGMENT = 3
CONCURRENCY = 16
_UNDONE_SHOWN = 5


@click.command(
    short_help="Make anchors of a stream by a model, and write a release.",
    epilog="""\b
Examples:
  egostream anchors build --data Sync --model writer --out jake --dry-run
  egostream anchors build --data Sync --model writer --reviewer judge \\
      --out jake
""",
)
@click.option("--data", required=True, metavar="PATH", help="The stream: whatever `egostream inspect` reads.")
@click.option("--model", required=True, metavar="NAME", help="Proposes anchors.")
@click.option("--reviewer", metavar="NAME", help="Reviews them. [default: the same model]")
@click.option("--out", type=common.FOLDER, required=True, metavar="FOLDER", help="Where the release goes.")
@click.option(
    "--language",
    type=click.Choice(["en", "zh"]),
    default="en",
    show_default=True,
    help="Of the prompts, and which language to read where there are two.",
)
@common.stream_option
@click.option("--segments", type=int, metavar="N", help="Only the first N segments of each stream.")
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=MOST_PER_SEGMENT,
    show_default=True,
    metavar="N",
    help="Candidates that a segment may have.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=CONCURRENCY,
    show_default=True,
    metavar="N",
    help="Segments under way at once. What a server bears is found out besides.",
)
@click.option("--allow-undone", is_flag=True, help="Write the release although segments are undone.")
@click.option("--overwrite", is_flag=True, help="Replace a release that was built otherwise.")
@click.option("--dry-run", is_flag=True, help="Ask nothing: print how much would be asked.")
@common.models_option
@common.cache_option
@common.offline_option
@common.command_options
def build(
    data: str,
    model: str,
    reviewer: str | None,
    out: Path,
    language: PromptLanguage,
    streams: tuple[str, ...],
    segments: int | None,
    most: int,
    concurrency: int,
    allow_undone: bool,
    overwrite: bool,
    dry_run: bool,
    models: Path | None,
    cache: Path | None,
    offline: bool,
    settings: common.Settings,
) -> int:
    """Make anchors for every segment of a stream, and write them as a release.

    A model proposes candidates for each segment; those that pass the mechanical checks of `egostream anchors
    check` are reviewed by nine criteria, and what passes all is kept. The release holds the streams, the anchors,
    construction.json (models, prompts with their digests, and why candidates fell) and candidates.jsonl (all).

    What is finished is kept beside it, in FOLDER.partial: after a kill or a failure the same command goes on, and
    what is in the cache is not paid for again. A segment for which a model gives no answer is undone; then nothing
    is written unless --allow-undone says so, and the exit code is 4.
    """
    configured = read_models(models)
    names = {"anchors": model, "review": reviewer or model}
    for name in names.values():
        find_model(configured, name)
    with files_progress("reading", settings.quiet) as progress:
        dataset = read_dataset(data, language=language, streams=streams or None, progress=progress)
    dataset = first_segments(dataset, segments)
    prompts = Prompts.load(language)
    if dry_run:
        _show_estimate(estimate(dataset, prompts, most), names, configured, settings)
        return 0

    async def run(update: Callable[[float, float, str], None]) -> Built:
        async with Models(configured, cache=cache or default_cache(), offline=offline) as opened:
            asking = Asking(
                opened.model(names["anchors"], role="anchors"),
                opened.model(names["review"], role="review"),
                prompts,
                most,
                concurrency,
            )

            def tell(now: Progress) -> None:
                note = f"{now.finished:,} of {now.segments:,} segments, {now.kept:,} anchors"
                if now.undone:
                    note += f", {now.undone:,} undone"
                update(now.finished + now.undone, now.segments, note)

            return await build_release(
                dataset, asking, out, overwrite=overwrite, allow_undone=allow_undone, tell=tell
            )

    try:
        with progress_bar("building", settings.quiet) as update:
            built = common.run_async(lambda: run(update))
    except KeyboardInterrupt as error:
        raise common.StoppedError(
            f"stopped; what is finished stays in {partial_of(out)}, and the same command goes on"
        ) from error
    if settings.json:
        common.print_json(built)
    else:
        _show(built)
    return common.EXIT_UNJUDGED if built.account.undone else 0


def _show(built: Built) -> None:
    account = built.account
    if account.undone:
        left = f"{len(account.undone):,} of {account.segments:,} segments are undone"
        if built.release is None:
            common.say(f"{left}, and no release was written. What is finished is in {built.partial}.")
        else:
            common.say(f"{left}, and have no anchors in {built.release}.")
        _show_undone(account.undone)
        common.say("The same command asks for these alone; --allow-undone writes a release without them.\n")
    elif built.already_there:
        common.say(f"{built.release} is there already, built in the same way.\n")
    _show_account(account)
    if built.release is not None:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(account.by_type.items()))
        common.say(f"\n{account.kept:,} anchors ({kinds or 'none'}) in {built.release}")
        common.say(f"all candidates: {Path(built.release) / CANDIDATES_NAME}")
        common.say(f"next: {common.command('anchors', 'check', built.release)}")


def _show_undone(undone: Mapping[str, str]) -> None:
    for segment, reason in list(undone.items())[:_UNDONE_SHOWN]:
        common.say(f"  {segment}: {' '.join(reason.split())}")
    if len(undone) > _UNDONE_SHOWN:
        common.say(f"  and {len(undone) - _UNDONE_SHOWN:,} more (--json has all)")


def _show_account(account: Account) -> None:
    spent = account.spent
    common.say(
        f"{account.segments - len(account.undone):,} segments, {account.segments_with_anchors:,} of them with "
        f"anchors: of {account.candidates:,} candidates {account.kept:,} are kept, {account.fell_by_checks:,} fell by "
        f"the mechanical checks and {account.fell_by_review:,} by review"
    )
    cost = f", {money(spent.cost)} paid" if spent.cost else ""
    common.say(
        f"{spent.calls:,} calls, {spent.prompt_tokens:,} prompt and {spent.completion_tokens:,} completion tokens{cost}"
    )
    if not account.reasons:
        return
    table = new_table("\nWhy candidates fell", "Fell", "By", "For example", numbers=("Fell",))
    for name, count in account.reasons.items():
        example = account.examples[name][0]
        table.add_row(f"{count:,}", name, Text(f"{example.evidence_statement}\n{example.reason}"))
    common.show(table)


class _Row(msgspec.Struct, frozen=True):
    role: str
    model: str
    calls: int
    prompt_tokens: int
    prompt_cost: float


def _show_estimate(
    estimated: Estimate,
    names: Mapping[str, str],
    configured: Mapping[str, ModelSettings],
    settings: common.Settings,
) -> None:
    asked = {
        "anchors": (estimated.segments, estimated.anchor_prompt_tokens),
        "review": (estimated.most_reviews, estimated.review_prompt_tokens),
    }
    rows = [
        _Row(role, names[role], calls, tokens, _price(configured, names[role]) * tokens)
        for role, (calls, tokens) in asked.items()
    ]
    if settings.json:
        common.print_json({"roles": rows})
        return
    counted = ("Calls\nat most", "Tokens in\nabout", "Money for\nthem, about")
    table = new_table("", "Role", "Model", *counted, numbers=counted)
    for row in rows:
        numbers = (f"{row.calls:,}", f"{row.prompt_tokens:,}", money(row.prompt_cost))
        table.add_row(row.role, Text(row.model), *numbers)
    common.show(table)
    common.say(
        "\nOf reviews there are as many as candidates pass the checks. What is in the cache costs nothing."
    )


def _price(configured: Mapping[str, ModelSettings], name: str) -> float:
    """Of one token of a prompt."""
    return find_model(configured, name).price_per_million.prompt / PER_MILLION
