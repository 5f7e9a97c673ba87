"""`egostream systems check`: whether a memory system keeps what runs rely on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource
from msgspec.structs import replace

from adapters.conformance import CASES, Result, Switch, passed
from adapters.conformance import check as check_system
from adapters.conformance.suite import CALL_TIMEOUT_S
from adapters.endpoints import Models, default_cache, read_models
from adapters.gateway import BUNDLED
from adapters.memory import LaneContext
from adapters.registry import SystemSpec, capabilities, open_system, parse_spec
from consumers.tables import new_table
from simulator.cli import common
from simulator.cli.progress import Update, progress_bar
from simulator.cli.sources import note_sources
from simulator.models import gateway_for
from simulator.scratch import scratch_folder, user_base


@click.command(
    short_help="Check that a system keeps what runs rely on.",
    epilog="""\b
Examples:
  egostream systems check rag_raw:retrieval=bm25
  egostream systems check my_memory:LongestLines --case fork --case commit
  egostream systems check rag_ext:model=small --models models.toml --json
""",
)
@click.argument("specs", nargs=-1, required=True, metavar="SYSTEM...")
@click.option(
    "--case",
    "only",
    multiple=True,
    type=click.Choice(list(CASES)),
    metavar="CASE",
    help="Only this case. May be given several times.",
)
@click.option(
    "--models",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Ask the models of this file (docs/models.md). Without it, models answer by rule, and nothing is paid.",
)
@common.cache_option
@click.option(
    "--call-timeout",
    "call_timeout_s",
    type=common.Number(min=0, min_open=True),
    default=CALL_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="After so long, an ingest, an answer or a commit has failed.",
)
@common.command_options
def check(
    specs: tuple[str, ...],
    only: tuple[str, ...],
    models: Path | None,
    cache: Path | None,
    call_timeout_s: float,
    settings: common.Settings,
) -> int:
    """Check that SYSTEM (as after --system) keeps what runs rely on: that it finds what it ingested, that its deltas
    say what changed, that branches are isolated, that it lives in simulated time, that it comes back after a failure,
    and more (docs/your-memory.md lists all).

    Each case passes, fails with a reason, or is not applicable, with a reason. A model that the system asks is switched
    off for one of them. Exit code 1 says that a case failed.
    """
    context = click.get_current_context()
    if context.get_parameter_source("log_level") is ParameterSource.DEFAULT:
        common.configure_logging(
            "error", as_json=context.params["log_json"]
        )  # warnings are of failures it makes
    results: dict[str, list[Result]] = {}
    parsed = [parse_spec(spec) for spec in specs]
    note_sources(parsed, settings)
    for spec in parsed:
        if models is None and capabilities(spec).gateway and not settings.quiet:
            common.note(
                f"{spec.label} asks its model in words of its own, and a rule answers with the lines that it is shown. "
                "A system that wants another answer fails by that: give it a model with --models FILE"
            )
        with progress_bar(f"checking {spec.label}", settings.quiet) as update:
            work = partial(_check, spec, only, models, cache, call_timeout_s, update)
            results[spec.label] = common.run_async(work)
    if settings.json:
        common.print_json(results)
    else:
        for label, of_system in results.items():
            _show(label, of_system)
    return 0 if all(map(passed, results.values())) else 1


async def _check(
    spec: SystemSpec,
    only: tuple[str, ...],
    models: Path | None,
    cache: Path | None,
    call_timeout_s: float,
    update: Update,
) -> list[Result]:
    declared = capabilities(spec)
    configured = {} if models is None else read_models(models)
    async with (
        scratch_folder(user_base()) as folder,
        Models(configured, cache=None if models is None else cache or default_cache()) as opened,
        gateway_for([spec]) as gateway,
    ):
        role = f"check.{spec.label}"
        switch = (
            Switch()
            if models is None
            else Switch(partial(opened.model, role=role), partial(opened.embedder, role=role))
        )

        def with_gateway(context: LaneContext) -> LaneContext:
            if gateway is None:
                return context
            lane = gateway.lane(
                context.lane,
                model=context.model(declared.model) if declared.model else None,
                embedder=context.embedder(declared.embedder) if declared.embedder else None,
                seed=context.seed,
                names=(*([declared.model] if declared.model else []), declared.embedder or BUNDLED),
            )
            return replace(context, gateway=lane)

        return await check_system(
            lambda context: open_system(spec, context),
            declared,
            folder=folder,
            make_context=with_gateway,
            switch=switch,
            only=only,
            timeout_s=call_timeout_s,
            on_case=update,
        )


def _show(label: str, results: list[Result]) -> None:
    table = new_table(label, "Case", "Result", "What was seen, or why")
    for result in results:
        table.add_row(result.case, result.outcome, result.said)
    common.show(table)
    count = {
        outcome: sum(r.outcome == outcome for r in results) for outcome in ("pass", "fail", "not applicable")
    }
    common.say(", ".join(f"{number} {outcome}" for outcome, number in count.items() if number) + ".")
    for result in results:
        if result.outcome == "fail":
            common.say(f"\n{result.case}: {result.demand}")
