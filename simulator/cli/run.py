"""`egostream run`: evaluate memory systems on a dataset."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar, get_args

import click
import msgspec
import structlog

from adapters.foreign.catalogue import Known, catalogue
from consumers.audit import Certificate, one_line
from consumers.audit import render as render_audit
from consumers.follow import Watcher
from consumers.monitor import Progress
from consumers.probe_tables import groupings
from consumers.score_tables import render
from consumers.scores import Scores
from producers.benchmarks import Asked
from simulator.cli import common
from simulator.cli.estimates import show_estimates
from simulator.cli.metrics import Tell, metrics_options, watching
from simulator.cli.progress import Update, files_progress, progress_bar, records_shown
from simulator.cli.sources import note_sources
from simulator.estimate import estimate
from simulator.events import Benchmark, Limits, RunStartedEvent
from simulator.eventtime import format_event_time
from simulator.plan import Plan, RunOptions, at_each_top_k, plan_run
from simulator.report.run_facts import foreign_of
from simulator.results import audit_run
from simulator.run import execute
from simulator.runfolder import log_path


def parse_rate(value: object) -> float:
    """Simulated seconds per real second: a positive number, or `inf`. Anything else is a usage error."""
    try:
        rate = float(str(value).removesuffix("x"))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no rate: write a number such as 60, or inf") from None
    if not rate > 0:
        raise click.BadParameter(f"{value!r} is no rate: it must be above 0")
    return rate


_log = structlog.get_logger(__name__)
T = TypeVar("T")


judge_option = click.option(
    "--judge",
    "judges",
    multiple=True,
    default=("official",),
    show_default=True,
    metavar="JUDGE",
    help="official: token overlap, no model. Or a configured model, as A_eval and A_user (docs/judges.md). Given "
    "several times, all judge every case, and the majority of them is the verdict.",
)
votes_option = click.option(
    "--votes",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="How often a model judges each case; the majority counts.",
)

_OPTIONS = (
    click.option(
        "--benchmark",
        type=click.Choice(get_args(Benchmark)),
        default="streammembench",
        show_default=True,
        help="What PATH holds, and how it is asked and judged (docs/: a page each).",
    ),
    click.option(
        "--asked",
        type=click.Choice(get_args(Asked)),
        default="online",
        show_default=True,
        help="lifedialbench: online asks each question when it is due, offline at the end of its stream; both shows "
        "what was overwritten in between, and what the future told.",
    ),
    click.option(
        "--value",
        type=click.Choice(["memory", "session"]),
        default="memory",
        show_default=True,
        help="What answers are made from: the records that a memory found, or the whole segments (RealMem's sessions) "
        "in which these lie.",
    ),
    click.option("--data", required=True, metavar="PATH", help="A dataset, as `egostream inspect` takes it."),
    click.option(
        "--system",
        "systems",
        multiple=True,
        metavar="SYSTEM",
        help="A memory system: [LABEL=]NAME[:OPTION=VALUE,...], or your own as module:Class. `egostream systems` "
        "lists them. May be given several times.",
    ),
    click.option(
        "--attach",
        "attached",
        multiple=True,
        metavar="LABEL",
        help="A system whose agent runs elsewhere and attaches to the log (`egostream attach --help`).",
    ),
    click.option(
        "--out", type=common.FOLDER, required=True, metavar="RUN", help="Folder for the log and the scores."
    ),
    common.log_option,
    click.option("--overwrite", is_flag=True, help="Replace a run that is already in the folder."),
    common.stream_option,
    click.option(
        "--segments",
        type=click.IntRange(min=1),
        metavar="N",
        help="Only the first N segments of each stream.",
    ),
    common.language_option,
    click.option(
        "--isolation",
        type=click.Choice(["branch", "shared"]),
        default="branch",
        show_default=True,
        help="branch: each trajectory on a memory of its own, many at once: a fork, a copy of the system's folder, or "
        "a replay of the stream, as the system can (`egostream systems`). shared: on the one memory, one after the "
        "other, as in the paper.",
    ),
    click.option(
        "--ablate-commit",
        is_flag=True,
        help="Ask each follow-up twice: with and without the interaction committed.",
    ),
    click.option(
        "--rate",
        type=parse_rate,
        metavar="RATE",
        default=math.inf,
        show_default=True,
        help="Simulated seconds per real second, or inf.",
    ),
    click.option(
        "--policy",
        type=click.Choice(["hold", "run"]),
        default="hold",
        show_default=True,
        help="When a memory system falls behind: hold lets time wait, run lets time go on.",
    ),
    click.option(
        "--open-trajectories",
        type=click.IntRange(min=1),
        default=Limits().open_trajectories,
        show_default=True,
        metavar="N",
        help="Trajectories of the run under way at once, each on a branch of a memory. Others wait for their turn, "
        "shared fairly between lanes.",
    ),
    click.option(
        "--calls-in-flight",
        type=click.IntRange(min=1),
        default=Limits().calls_in_flight,
        show_default=True,
        metavar="N",
        help="Ingests, answers, commits and judgments under way at once in one process, of all systems together.",
    ),
    click.option(
        "--unreleased-segments",
        type=click.IntRange(min=1),
        default=Limits().unreleased_segments,
        show_default=True,
        metavar="N",
        help="Segments of a lane whose snapshot trajectories still need, or that it has yet to ingest: with more, "
        "time waits (--policy hold). With --isolation shared it is always 1.",
    ),
    click.option(
        "--segments-ahead",
        type=click.IntRange(min=1),
        default=Limits().segments_ahead,
        show_default=True,
        metavar="N",
        help="Segments that the replay may be ahead of a lane's ingest: with more, time waits (--policy hold).",
    ),
    click.option(
        "--top-k",
        "top_ks",
        type=click.IntRange(min=1),
        metavar="K",
        multiple=True,
        help="Records an answer may use. Given several times, each system that has an option top_k runs once for each. "
        "[default: 10; of realmem and lifedialbench 20]",
    ),
    click.option(
        "--word-budget",
        type=click.IntRange(min=1),
        default=500,
        show_default=True,
        metavar="WORDS",
        help="Words an answer may have.",
    ),
    click.option(
        "--seed", type=int, default=0, show_default=True, help="For memory systems that draw random numbers."
    ),
    judge_option,
    votes_option,
    click.option(
        "--answers",
        metavar="MODEL",
        help="A configured model that answers from what each memory system found, at temperature 0. Systems that "
        "answer by themselves (http, attached, most of your own) are left alone. [default: extraction]",
    ),
    click.option(
        "--answer-tokens",
        type=click.IntRange(min=1),
        default=2000,
        show_default=True,
        metavar="TOKENS",
        help="With --answers: tokens that the records in a prompt may have together, the same for all systems; a token "
        "is four bytes.",
    ),
    common.models_option,
    common.cache_option,
    common.offline_option,
    click.option(
        "--canaries",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Plant N unique marks in observations' texts, spread over the streams: the audit reports any that shows "
        "up where it can't have been seen. It makes another run: compare its scores only with those of runs with as "
        "many canaries.",
    ),
    common.call_timeout_option,
    click.option(
        "--answer-timeout",
        type=common.Number(min=0, min_open=True),
        default=600.0,
        show_default=True,
        metavar="SECONDS",
        help="How long an attached agent may take for an answer, a commit or a delta.",
    ),
    click.option(
        "--stall-timeout",
        "stall_timeout_s",
        type=common.Number(min=0, min_open=True),
        metavar="SECONDS",
        help="After so long without anything of a role that owes something, the run ends with an error that names it. "
        "[default: 20 minutes more than a call may take]",
    ),
)


def run_arguments(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options that say what a run is; the command gets them as `options`."""

    @functools.wraps(function)
    def with_options(
        *args: Any,
        log_url: str | None,
        streams: tuple[str, ...],
        answer_timeout: float,
        top_ks: tuple[int, ...],
        settings: common.Settings,
        **asked: Any,
    ) -> T:
        limits = Limits(**{name: asked.pop(name) for name in Limits.__struct_fields__})
        more = {name: asked.pop(name) for name in [*asked] if name not in RunOptions.__struct_fields__}
        if len(set(top_ks)) > 1:
            asked["systems"] = at_each_top_k(asked["systems"], sorted(set(top_ks)))
        # as published
        of_benchmark = 20 if asked["benchmark"] in ("realmem", "lifedialbench") else 10
        options = RunOptions(
            **asked,
            top_k=max(top_ks, default=of_benchmark),
            log=log_url,
            streams=streams or None,
            answer_timeout_s=answer_timeout,
            limits=limits,
        )
        return function(*args, options=options, settings=settings, **more)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


@click.command(
    epilog="""\b
Examples:
  egostream run --data synthetic:wearers=1 --system rag_raw --out runs/tiny
  egostream run --data streammembench_v1_en --segments 100 --out runs/first \\
      --system null --system rag_raw --system bm25=rag_raw:retrieval=bm25
  egostream run --data streammembench_v1_en --out runs/judged --dry-run \\
      --models models.toml --answers small --judge large \\
      --system rag_raw --system rag_ext:model=small
""",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Run nothing: print what would be asked of models, in calls, tokens and money.",
)
@common.command_options
@metrics_options
@run_arguments
def run(options: RunOptions, tell: Tell | None, settings: common.Settings, dry_run: bool) -> int:
    """Replay a dataset into memory systems, run every trajectory, judge, and score.

    A trajectory is: a task (T1), its answer, feedback, perhaps another answer, the commit of that
    conversation to memory, a second task (T2) and its answer. There is one for each system and anchor.

    At the end the log is checked against the invariants, as `egostream audit` does; exit code 3 says that one is
    broken.

    \b
    RUN gets
      log.db            the run itself: `egostream tap` shows what is in it
      scores.json       all numbers, read off the log
      trajectories.csv  a row for each trajectory: what was asked and answered
      verdicts.jsonl    the verdicts alone, sorted: equal runs give equal bytes
      audit.json        what was checked in the log, and its digest

    However many anchors there are, no more is under way at once than the four limits say, and what waits makes the
    replay wait. They are no part of what the run is: it may go on with others, and comes to the same verdicts.

    Stopped with Ctrl-C, what was done stays: `egostream scores` reads it, and the same command goes on from
    there.
    """
    if dry_run:
        with files_progress("reading", settings.quiet) as files:
            plan = plan_run(options, files)
            found = estimate(plan)
        note_sources(plan.systems, settings)
        common.print_json(found) if settings.json else show_estimates(found)
        return 0
    outcome = run_options(options, settings, watching(tell))
    out = options.out
    if settings.json:
        outcome.print_json()
    else:
        outcome.show(settings)
        common.say(
            f"\nThe log is {options.log or log_path(out)}; scores.json and trajectories.csv are beside it."
        )
        if not outcome.scores.complete:
            common.say("Run again what stayed unjudged, and nothing else:")
            common.say(f"    {common.command('retry', out)}")
        common.say("Next, split the scores, or see what was asked and answered:")
        splits = groupings(outcome.scores)[:2] or ["third", "subject"]
        by = [word for split in splits for word in ("--by", split)]
        common.say(f"    {common.command('scores', out, *by)}")
        common.say(f"    {common.command('tap', out, 'responses', '-n', 3)}")
    return outcome.exit_code


class Outcome(NamedTuple):
    """What came of a run: its scores, whether they can be trusted, and by label which foreign systems it had."""

    scores: Scores
    audit: Certificate
    foreign: Mapping[str, Known]

    @classmethod
    def of(cls, started: RunStartedEvent, scores: Scores, audit: Certificate) -> Self:
        """That of a run."""
        return cls(scores, audit, foreign_of(started.identity, catalogue()))

    @property
    def exit_code(self) -> int:
        """A broken invariant is worse than something unjudged."""
        if not self.audit.sound:
            return common.EXIT_VIOLATION
        return 0 if self.scores.complete else common.EXIT_UNJUDGED

    def show(self, settings: common.Settings) -> None:
        """The tables, which of its systems are approximations, and a line on the audit, or all that it found."""
        common.show(render(self.scores))
        if not settings.quiet:
            for label, known in self.foreign.items():
                read = common.command("systems", known.name)
                common.note(f"{label} approximates {known.title}: `{read}` says in what it differs")
        common.say("\n" + (one_line(self.audit) if self.audit.sound else render_audit(self.audit)))

    def print_json(self) -> None:
        """The scores as `egostream scores --json` has them, `audit`, and `approximations` by system."""
        approximations = {label: known.approximations for label, known in self.foreign.items()}
        common.print_json(
            {**msgspec.to_builtins(self.scores), "audit": self.audit, "approximations": approximations}
        )


def run_options(
    options: RunOptions, settings: common.Settings, watchers: tuple[Watcher, ...] = ()
) -> Outcome:
    """Plan and execute with progress; write the results beside the log. `watchers` read along. Ctrl-C raises
    StoppedError, which says what stays."""
    with files_progress("reading", settings.quiet) as files:
        plan = plan_run(options, files)
    started = plan.started
    _log.info("run", id=started.run, out=str(options.out), **started.identity)
    note_attached(plan)
    note_sources(plan.systems, settings)
    try:
        with progress_bar("running", settings.quiet) as update:
            scores = common.run_async(
                partial(
                    execute, plan, shown(started, update, "" if settings.quiet else _size(plan)), watchers
                )
            )
    except KeyboardInterrupt as error:
        raise common.StoppedError(
            f"stopped; what was done stays: `{common.command('scores', options.out)}` reads it"
        ) from error
    with progress_bar("auditing", settings.quiet) as update:
        certificate = common.run_async(partial(audit_run, options.out, records_shown(update)))
    _log.info(
        "run_ended", id=started.run, trajectories=scores.trajectories, unjudged=scores.unjudged.trajectories
    )
    return Outcome.of(started, scores, certificate)


def note_attached(plan: Plan) -> None:
    """For each attached system, the command that starts its agent."""
    run, where = plan.started.run, plan.options.log or log_path(plan.options.out)
    for label in plan.started.attached:
        common.note(
            f"{run} waits for {label}: egostream attach --system MODULE:CLASS --as {label} --log {where} --run {run}"
        )


def shown(started: RunStartedEvent, update: Update, size: str = "") -> Callable[[Progress], None]:
    """What shows a run's progress. `size`: how much there is to do, said once the run is under way: until then,
    an error is all that there is to say."""
    said = not size

    def show(progress: Progress) -> None:
        nonlocal said
        unjudged = f", {progress.unjudged} verdicts unjudged" if progress.unjudged else ""
        note = f"{progress.trajectories}/{progress.trajectories_total} trajectories{unjudged}"
        if progress.segments:
            note = f"{format_event_time(progress.event_time_us)}, {note}"
            if not said:
                said = True
                common.note(size)
        total = progress.segments_total + progress.trajectories_total
        update(progress.segments + progress.trajectories, total, note)

    return show


_NOT_ASKED = {
    "probes_before_any_memory_not_asked": "before any memory",
    "probes_without_gold_not_asked": "without gold",
    "probes_without_a_judge_not_asked": "that need a --judge MODEL",
}


def _size(plan: Plan) -> str:
    lifelogs = plan.dataset.lifelogs.values()
    observations = sum(len(lifelog.observations) for lifelog in lifelogs)
    segments = sum(plan.started.segments.values())
    systems, anchors = len(plan.started.systems), plan.started.anchors
    about = "anchors" if plan.started.protocol == "streammembench" else "probes"
    counts = plan.dataset.report.counts
    left_out = [f"{counts[name]:,} {why}" for name, why in _NOT_ASKED.items() if counts[name]]
    return (
        f"{observations:,} observations, {segments:,} segments, {anchors:,} {about}; "
        f"{systems} system{'s'[: systems - 1]}, {systems * anchors:,} trajectories"
        + (f"; not asked: {', '.join(left_out)}" if left_out else "")
    )
