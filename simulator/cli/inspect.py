"""`egostream inspect`: what is in a dataset, and what is odd in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import click
from rich.text import Text

from consumers.tables import new_table
from producers.benchmarks import read_probes
from producers.datasets import Language
from producers.inspection import inspect_path, inspect_probes
from producers.probes import ProbeBenchmark
from simulator.cli import common
from simulator.cli.oddities import in_words
from simulator.cli.progress import files_progress
from simulator.errors import ConfigError

_LAYOUTS = {
    "streammembench": "StreamMemBench release",
    "egolife-srt": "EgoLife SRT files",
    "egolife-sync": "EgoLife Sync JSON",
    "synthetic": "synthetic lifelog",
    "realmem": "RealMem",
    "lifedialbench": "LifeDialBench",
    "apm": "APM task files",
}


@click.command(
    epilog="""\b
Examples:
  egostream inspect EgoLifeCap
  egostream inspect streammembench_v1_en --days
  egostream inspect synthetic:seed=1,wearers=3 --json
  egostream inspect --benchmark realmem RealMemBench/dataset
""",
)
@click.argument("path")
@common.language_option
@common.stream_option
@click.option(
    "--benchmark",
    type=click.Choice(get_args(ProbeBenchmark)),
    help="PATH holds this benchmark's data; its probes are counted too.",
)
@click.option("--days", is_flag=True, help="Also each day: when it begins and ends, how much, and its gaps.")
@click.option("--examples", is_flag=True, help="Also the first places of each oddity.")
@common.command_options
def inspect(
    path: str,
    benchmark: ProbeBenchmark | None,
    language: Language,
    streams: tuple[str, ...],
    days: bool,
    examples: bool,
    settings: common.Settings,
) -> None:
    """Count streams, segments, observations and anchors, and list oddities.

    \b
    PATH is the folder of
      - a StreamMemBench release (with segments/ in it),
      - an EgoLife tree: Transcript, DenseCaption or Sync, or the folder above,
      - several of these at once, or
    a made-up lifelog: synthetic:seed=1,wearers=2,days=2

    \b
    With --benchmark it is
      - realmem: <Name>_dialogues_256k.json, or a folder of them,
      - lifedialbench: EgoMem.json or LifeMem.json, their folder, or made up:
        synthetic:seed=1,histories=2,days=6
      - apm: a task file (docs/apm.md), or a folder of them.

    Nothing that a file holds is dropped without a line under oddities, which also says what was done about
    it.
    """
    with files_progress("reading", settings.quiet) as progress:
        if benchmark is None:
            found = inspect_path(path, language=language, streams=streams or None, progress=progress)
        elif streams:
            raise ConfigError("--stream picks no stream of a benchmark's data: give the file")
        else:
            found = inspect_probes(read_probes(benchmark, path, language=language, progress=progress))
    if settings.json:
        common.print_json(found)
        return
    sections = found.get("sections", {"": found})
    for number, section in enumerate(sections.values()):
        if number:
            common.say()
        _show_section(section, days=days, examples=examples)
    if len(sections) > 1:
        common.say(
            f"\n{len(sections)} datasets below {path}; each can be given to `egostream run` by its own path."
        )


def _show_section(section: dict[str, Any], *, days: bool, examples: bool) -> None:
    common.say(f"{_LAYOUTS.get(section['layout'], section['layout'])}: {section['path']}")
    common.say(f"digest: {section['digest']}\n")
    _show_streams(section["streams"])
    if days:
        _show_days(section["streams"])
    if "probes" in section:
        _show_probes(section["probes"])
    else:
        _show_anchors(section)
    _show_oddities(section, examples=examples)


def _show_streams(streams: Mapping[str, dict[str, Any]]) -> None:
    counted = ("Observations", "Dialog", "Description", "Segments")
    table = new_table("", "Stream", *counted, "First", "Last", numbers=counted)
    for name, stream in streams.items():
        days = list(stream["days"].items())
        first = f"{days[0][0]} {days[0][1]['first'][:5]}" if days else "–"
        last = f"{days[-1][0]} {days[-1][1]['last'][:5]}" if days else "–"
        table.add_row(Text(name), *(f"{stream[key.lower()]:,}" for key in counted), first, last)
    common.show(table)
    cues = {name: stream["cues"] for name, stream in streams.items() if "cues" in stream}
    if cues:
        common.say("cues: " + ", ".join(f"{count:,} of {name}" for name, count in cues.items()))
    gaps = [gap for stream in streams.values() for gap in stream["gaps"]]
    if gaps:
        longest = max(gap["minutes"] for gap in gaps)
        common.say(
            f"{len(gaps)} gaps of over half an hour within a day, the longest {longest} minutes (see --days)"
        )


def _show_days(streams: Mapping[str, dict[str, Any]]) -> None:
    counted = ("Observations", "Segments")
    table = new_table("\nDays", "Stream", "Day", "First", "Last", *counted, "Gaps", numbers=counted)
    for name, stream in streams.items():
        for number, (day, what) in enumerate(stream["days"].items()):
            gaps = ", ".join(
                f"{gap['from'][:5]}–{gap['to'][:5]}" for gap in stream["gaps"] if gap["day"] == day
            )
            counts = (f"{what['observations']:,}", f"{what['segments']:,}")
            table.add_row(Text("" if number else name), day, what["first"], what["last"], *counts, gaps)
    common.show(table)


def _show_anchors(section: dict[str, Any]) -> None:
    detail = section["anchors_detail"]
    if not section["anchors"]:
        common.say("no anchors: a run on this dataset has nothing to judge, but it can be replayed.")
        return
    types = ", ".join(f"{count:,} {name}" for name, count in detail["by_type"].items())
    common.say(f"{section['anchors']:,} anchors ({types})")
    if len(section["streams"]) > 1:
        common.say(
            "  by stream: " + ", ".join(f"{name} {count:,}" for name, count in detail["by_stream"].items())
        )
    matched, supporting = detail["supporting_matched"], detail["supporting_observations"]
    line = f"  {matched:,} of {supporting:,} supporting observations found in the stream"
    if detail["without_match"]:
        line += f"; {detail['without_match']:,} anchors have none that was found"
    common.say(line)


def _show_probes(probes: Mapping[str, Any]) -> None:
    common.say(f"{probes['total']:,} probes, {probes['with_gold_segments']:,} of them with gold segments")
    for name, groups in probes["groups"].items():
        common.say(f"  by {name}: " + ", ".join(f"{group} {count:,}" for group, count in groups.items()))


def _show_oddities(section: dict[str, Any], *, examples: bool) -> None:
    if not section["oddities"]:
        common.say("no oddities")
        return
    table = new_table("\nOddities", "Count", "Name", "What it is; what was done", numbers=("Count",))
    for oddity, count in section["oddities"].items():
        table.add_row(f"{count:,}", oddity, in_words(oddity))
    common.show(table)
    if examples:
        for oddity, places in section["examples"].items():
            common.say(f"\n{oddity}, the first {len(places)}:")
            for place in places:
                common.say(f"  {' '.join(place.split())}")
