"""`egostream load`: offer a load to a memory system, and see how late it remembers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from producers.arrivals import Arrivals, Load
from simulator.cli import common
from simulator.cli.answer_tables import show_answers
from simulator.cli.load_tables import show_report
from simulator.cli.loads import check_extra, compare, show_progress, sweep, with_report
from simulator.cli.metrics import Tell, metrics_options
from simulator.cli.progress import files_progress
from simulator.counts import counted
from simulator.errors import ConfigError
from simulator.runfolder import LATENCY_NAME, LOG_NAME, NOTE_NAME, REPORT_NAME, log_path

if TYPE_CHECKING:
    from simulator.load.single import LoadPlan
    from simulator.load.sweep import Axis

_positive = common.Number(min=0, min_open=True)


@click.command(
    epilog="""\b
Examples:
  egostream load null --data synthetic:wearers=1 --rate 600 --duration 10 --out runs/load
  egostream load rag_raw --data EgoLifeCap/Sync --wearers 6 --observations-per-second 200 --out runs/six
  egostream load my_memory:MyMemory --data synthetic: --rate 3000 --arrivals poisson --out runs/mine
  egostream load rag_raw --data synthetic: --rate 600 --questions-per-second 5 --arrivals poisson --out runs/asked
  egostream load rag_raw --data synthetic: --rate 600 --duration 20 --sweep rate --objective 'p99 < 2s' --out runs/most
  egostream load rag_raw --data synthetic:wearers=4 --rate 600 --agents 4 --out runs/apart
  egostream load --attach mine --data synthetic: --rate 600 --log kafka://127.0.0.1:9092 --out runs/theirs
  egostream load --compare rag_raw:retrieval=bm25 rag_raw --data synthetic: --rate 600 --duration 20 --out runs/two
""",
)
@click.argument("system", required=False)
@click.option(
    "--attach",
    "attached",
    metavar="LABEL",
    help="In place of SYSTEM: one whose agent runs elsewhere and attaches to the log (`egostream attach --help`).",
)
@click.option("--data", required=True, metavar="PATH", help="A dataset, as `egostream inspect` takes it.")
@click.option(
    "--out", type=common.FOLDER, required=True, metavar="RUN", help="Folder for the log and the results."
)
@common.log_option
@click.option("--overwrite", is_flag=True, help="Replace a run that is already in the folder.")
@click.option(
    "--rate",
    type=_positive,
    metavar="RATE",
    help="Simulated seconds per real second, for each lane: a segment each 300/RATE seconds.",
)
@click.option(
    "--observations-per-second",
    type=_positive,
    metavar="N",
    help="Instead of --rate: observations per real second, of all lanes together.",
)
@click.option(
    "--wearers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Lanes at once: the data's streams in turn, and then again under other names (A1_JAKE.2), begun elsewhere. "
    "[default: each stream once]",
)
@click.option(
    "--duration",
    "duration_s",
    type=_positive,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to offer the load.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["regular", "poisson"]),
    default="regular",
    show_default=True,
    help="regular: segments end evenly, the lanes in turn. poisson: gaps between a lane's segments are exponential.",
)
@click.option(
    "--drain",
    "drain_s",
    type=common.Number(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait, after the last was due, for what is still owed. What has not come then is counted as "
    "unfinished, and the percentiles are too low.",
)
@click.option(
    "--questions-per-second",
    type=_positive,
    metavar="Q",
    help="Also ask: so many questions a second, of all lanes in turn, due by the clock as --arrivals says (those of a "
    "regular load always meet an ingest at the same point, if the rates fit). Then ask the same memories again, idle.",
)
@click.option(
    "--idle",
    "idle_s",
    type=common.Number(min=0),
    metavar="SECONDS",
    help="With --questions-per-second: how long to ask at the same rate once all is remembered and answered. "
    "[default: a third of --duration, at most 20; with --sweep 0]",
)
@common.stream_option
@common.language_option
@common.models_option
@click.option(
    "--calls-in-flight",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="N",
    help="Ingests and answers under way at once.",
)
@common.call_timeout_option
@click.option(
    "--agents",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes of their own for the replayer, the conductor and N agents, which share the lanes: each reports "
    "what it uses, and the system can't slow the replay down. With --sweep wearers, no more than there are wearers. "
    "[default: all in one process]",
)
@click.option(
    "--real-time",
    is_flag=True,
    help="With --agents: let the replayer's process run before all others, so that it is on time where there are fewer "
    "processors than roles. It takes its share from the others at once. Linux, as root or with CAP_SYS_NICE.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="For Poisson arrivals, and for systems that draw numbers.",
)
@click.option(
    "--sweep",
    "axis",
    type=click.Choice(["rate", "wearers"]),
    help="Look for the highest rate, or the most wearers, that keep the objective: from the load given, first doubling "
    "or halving, then between. What breaks it is measured a second time, and a third where those do not agree. Each "
    "load is a run in a folder of its own in RUN.",
)
@click.option(
    "--objective",
    metavar="OBJECTIVE",
    help="With --sweep: 'p99 < 2s' (p50, p90, p99, p99.9, max, of the time from due to remembered; us, ms, s, min), or "
    "'answer p99 < 500ms' (of the questions, from due to the answer read by a consumer), or lag: that no lane falls "
    "ever further behind, by 2% of the time that passes. [default: lag]",
)
@click.option(
    "--tolerance",
    type=common.Number(min=0, max=1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    metavar="SHARE",
    help="With --sweep rate: how close the highest rate that keeps it and the lowest that doesn't have to be.",
)
@click.option(
    "--again",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="With --sweep: measure each of the two ends so many times more once they are found, to see whether they say "
    "the same again. From 3 on, the answer has an interval of its chance of keeping the objective.",
)
@click.option(
    "--compare",
    "compared",
    nargs=2,
    metavar="A B",
    help="Instead of SYSTEM: offer the same load to both, one after the other, in --rounds rounds that swap who is "
    "first, and give the ratio A/B of each figure with its spread. Each load is a run in a folder of its own in RUN.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="With --compare: how many ratios there are. Fewer than 5 tell nothing.",
)
@common.command_options
@metrics_options
def load(
    system: str | None,
    attached: str | None,
    data: str,
    out: Path,
    log_url: str | None,
    overwrite: bool,
    rate: float | None,
    observations_per_second: float | None,
    wearers: int | None,
    duration_s: float,
    arrivals: Arrivals,
    drain_s: float,
    questions_per_second: float | None,
    idle_s: float | None,
    streams: tuple[str, ...],
    language: Literal["en", "zh", "both"],
    calls_in_flight: int,
    call_timeout_s: float,
    agents: int | None,
    real_time: bool,
    seed: int,
    axis: Axis | None,
    objective: str | None,
    tolerance: float,
    again: int,
    models: Path | None,
    compared: tuple[str, str] | None,
    rounds: int,
    tell: Tell | None,
    settings: common.Settings,
) -> int:
    """Offer observations to SYSTEM by the clock, whether or not it keeps up, and measure how late it remembers.

    SYSTEM is as after `egostream run --system`. Segments of the data are laid out anew, one after the other without
    nights, so that each lane gets RATE times five minutes of life each five minutes. There are no judges, and no tasks
    but the questions of --questions-per-second.

    Every latency runs from the moment at which a segment was DUE, not from when it was sent: a stall counts for all
    that it delayed. `as measured from the send` beside it shows what one would have missed.

    All roles run in this process, or with --agents each in one of its own. An agent that is started elsewhere, in any
    language, is measured with --attach: what it stamps by another machine's clock is corrected by the offset that the
    log shows of it, which is printed with its error.

    Questions are asked of a fork of the newest snapshot where SYSTEM declares that it forks cheaply, and else in turn
    with the ingest, since nothing promised it that both run at once. The table says which.

    Exit code 4 says that some segments or answers failed or were not finished: the percentiles then hold for the others
    only. Of a sweep it says that there is no answer in reach, or that the measurements of an end did not agree; of a
    comparison, that a figure can't be told.

    \b
    RUN gets
      log.db               the run itself
      latency.json         all numbers, read off the log, with the histograms (HdrHistogram) and the lag over time
      latency-STAGE.hgrm   percentiles of each stage in microseconds, for HdrHistogram's plotters; those of questions
                           are latency-answers-loaded-STAGE.hgrm and latency-answers-idle-STAGE.hgrm
      report.html          all of it as one page that stands alone, with pictures: open it in a browser
      sweep.json           with --sweep: what was found; each load is in a folder beside it
      compare.json         with --compare: what the rounds came to; each load is in a folder beside it

    A comparison tells one figure by itself: A is better only where the whole interval of the median ratio is below 1
    (above it for what should be high). With 5 rounds that holds for 93.75% of such intervals, so of two systems that
    are alike, one figure in 16 looks different.

    Needs `pip install 'egostream[load]'`.
    """
    if compared is not None and (system is not None or attached is not None):
        raise ConfigError("give one SYSTEM (or --attach LABEL), or --compare A B and neither: one of the two")
    if compared is not None and axis is not None:
        raise ConfigError("--sweep looks at one system: give it without --compare")
    for name, goes, with_ in (
        ("tolerance", axis == "rate", "--sweep rate"),
        ("again", axis is not None, "--sweep"),
        ("rounds", compared is not None, "--compare"),
    ):
        if not goes and click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise ConfigError(f"--{name} goes with {with_}")
    check_extra()
    from adapters.registry import parse_spec
    from producers.questions import QuestionLoad
    from simulator.cli.live import load_shown
    from simulator.cli.run import note_attached
    from simulator.cli.sources import note_sources
    from simulator.load.single import LoadOptions, execute_load, plan_load
    from simulator.load.sweep import LAG

    options = LoadOptions(
        data=data,
        system=system or "",
        attached=attached or "",
        agents=agents,
        real_time=real_time,
        out=out,
        log=log_url,
        load=Load(
            wearers=wearers,
            duration_s=duration_s,
            arrivals=arrivals,
            rate=rate,
            observations_per_second=observations_per_second,
            seed=seed,
        ),
        questions=None
        if questions_per_second is None
        else QuestionLoad(per_second=questions_per_second, idle_s=0.0 if axis and idle_s is None else idle_s),
        drain_s=drain_s,
        language=language,
        streams=streams or None,
        calls_in_flight=calls_in_flight,
        call_timeout_s=call_timeout_s,
        overwrite=overwrite,
        models=models,
    )
    if idle_s is not None and questions_per_second is None:
        raise ConfigError("--idle goes with --questions-per-second: it says how long to ask afterwards")
    if axis is not None and attached:
        raise ConfigError("--sweep makes one run after the other, and --attach is for one: one of the two")
    note_sources(map(parse_spec, filter(None, (system, *(compared or ())))), settings)
    if axis is not None:
        return sweep(options, axis, objective or LAG, tolerance, again, tell, settings)
    if objective is not None:
        raise ConfigError("--objective goes with --sweep: it says what the sweep looks for")
    if compared is not None:
        return compare(options, compared, rounds, tell, settings)
    with files_progress("reading", settings.quiet) as files:
        plan = plan_load(options, progress=files)
    try:
        if not settings.quiet:
            _note_plan(plan)
        note_attached(plan.plan)
        with load_shown("loading", duration_s, drain_s, settings.quiet, show_progress, tell) as shown:
            measure = partial(execute_load, plan, *shown)
            report = common.run_async(partial(with_report, measure, out))
    except KeyboardInterrupt as error:
        if not any((out / name).is_file() for name in (NOTE_NAME, LOG_NAME)):
            raise common.StoppedError("stopped before anything was published") from error
        reader = common.command("report", out)
        raise common.StoppedError(
            f"stopped; what was published is in {log_url or log_path(out)}: `{reader}` reads the latencies off it"
        ) from error
    if settings.json:
        common.print_json(report)
    else:
        show_report(report)
        if report.answers is not None:
            show_answers(report.answers)
        common.say(
            f"\nThe log is {log_url or log_path(out)}; {LATENCY_NAME} and latency-*.hgrm are in {out}.\n"
            f"The report is {out / REPORT_NAME}."
        )
    parts = () if report.answers is None else (report.answers.loaded, report.answers.idle)
    lacking = any(part.failed or part.unfinished for part in (report, *parts))
    return common.EXIT_UNJUDGED if lacking else 0


def _note_plan(load: LoadPlan) -> None:
    """What is about to be offered and asked."""
    offered, questions = load.offered, load.questions
    segments = sum(load.plan.started.segments.values())
    common.note(
        f"{counted(offered.observations, 'observation')}, {counted(segments, 'segment')} on "
        f"{counted(len(offered.lifelogs), 'lane')}, {offered.rate:,.6g} × real time for "
        f"{load.options.load.duration_s:g} s"
    )
    if questions is not None:
        loaded, idle = len(questions.loaded), len(questions.idle)
        common.note(
            f"{counted(loaded, 'question')} meanwhile, and {idle:,} in {questions.idle_s:g} s afterwards"
        )
