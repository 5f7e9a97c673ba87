"""Whole runs of probes in one process: all is judged, the audit finds nothing, and equal runs give equal bytes."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import pytest

from adapters.memory import Answer, Request
from consumers.scores import ChoiceRate
from judges.retrieval import ndcg, recall_all, recall_any
from producers.benchmarks import read_benchmark
from producers.datasets.realmem import read_realmem
from simulator.errors import ConfigError, DatasetError
from simulator.events import (
    DeltaEvent,
    Limits,
    OutlineEvent,
    ProbeEvent,
    ResponseEvent,
    RunEndedEvent,
    TaskEvent,
    VerdictEvent,
)
from simulator.plan import plan_run
from simulator.protocols.subjects import RATES
from simulator.results import read_results
from simulator.retry import RetryOptions, plan_retry, run_retry
from simulator.run import execute
from simulator.runfolder import VERDICTS_NAME, open_run
from tests.history import History
from tests.probes.helpers import APM, BM25, LIFEDIAL, options_for, run_of, value_of
from tests.roles.systems import Ledger

SYSTEMS = ("null", "oracle", "bm25", "recency", BM25, "copy=tests.workers.branching:Copying")


def check_whole(history: History, systems: int) -> None:
    """Each probe is asked of each system once, on a branch of the memory as it was then."""
    probes = history.of(ProbeEvent)
    tasks, answers, verdicts = (history.of(kind) for kind in (TaskEvent, ResponseEvent, VerdictEvent))
    assert len(tasks) == len(answers) == len(probes) * systems
    assert len(verdicts) == sum(len(probe.metrics) for probe in probes) * systems
    assert {task.phase for task in tasks} == {"T1"}
    due = {probe.anchor.partition("/")[2]: probe for probe in probes}
    for answer in answers:
        probe = due[answer.trajectory.partition("/")[2]] if len(due) == len(probes) else None
        assert all(found.event_time_us <= answer.event_time_us for found in answer.retrieved)
        if probe is not None:
            assert answer.as_of == probe.segment
    for verdict in verdicts:
        assert verdict.outcome != "unjudged", verdict.reason
        assert (verdict.value is None) == (verdict.metric in RATES)
    (ended,) = history.of(RunEndedEvent)
    assert (ended.trajectories, ended.verdicts, ended.unjudged) == (len(tasks), len(verdicts), 0)


FEW = ("null", "bm25")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"systems": SYSTEMS, "asked": "both"}, id="branch"),
        pytest.param({"systems": SYSTEMS[:-1], "asked": "both", "isolation": "shared"}, id="shared"),
        pytest.param({"streams": ("synthetic_W02_Boris",), "asked": "offline"}, id="one stream, offline"),
        pytest.param({"segments": 7, "asked": "both", "canaries": 5}, id="first segments"),
    ],
)
async def test_two_runs_of_the_same_inputs_give_the_same_bytes(tmp_path: Path, more: dict[str, Any]) -> None:
    options = {"systems": FEW, **more}
    runs = []
    for number in range(2):
        scores, history = await run_of(tmp_path / str(number), **options)
        assert scores.complete
        check_whole(history, len(options["systems"]))
        runs.append(((tmp_path / str(number) / VERDICTS_NAME).read_bytes(), history.certificate.digest))
    assert runs[0] == runs[1]
    for score in scores.scores:
        assert isinstance(score, ChoiceRate)
        assert score.unjudged == 0
        if score.system == "null":
            assert (score.passed, score.invalid) == (0, score.judged)
        if score.system == "oracle":
            assert (score.rate, score.invalid) == (1.0, 0)


async def test_how_fast_and_how_many_at_once_change_no_byte(tmp_path: Path) -> None:
    said = set()
    for number, more in enumerate(
        (
            {},
            {"policy": "run"},
            {"limits": Limits(open_trajectories=1, unreleased_segments=1)},
            {"limits": Limits(segments_ahead=1, calls_in_flight=1)},
        )
    ):
        await run_of(tmp_path / str(number), systems=FEW, streams=("synthetic_W01_Ada",), **more)
        said.add((tmp_path / str(number) / VERDICTS_NAME).read_bytes())
    assert len(said) == 1


async def test_isolation_and_means_of_branching_change_no_verdict(tmp_path: Path) -> None:
    """Nothing is committed: a shared memory, a fork, a copy and a replay say the same."""
    said = {}
    for kind in ("Forking", "Copying", "Replaying"):
        system = f"mine=tests.workers.branching:{kind}:spoilt=true"
        scores, history = await run_of(tmp_path / kind, systems=(system,), asked="both")
        assert not scores.complete
        said[kind] = _said(history)
    system = "mine=tests.workers.branching:Forking:spoilt=true"
    _, history = await run_of(tmp_path / "shared", systems=(system,), asked="both", isolation="shared")
    said["shared"] = _said(history)
    assert said["Forking"] == said["Copying"] == said["Replaying"] == said["shared"]
    assert {outcome for _, outcome, *_ in said["shared"]} == {"fail", "unjudged"}


def _said(history: History) -> list[tuple[object, ...]]:
    verdicts = sorted(history.of(VerdictEvent), key=lambda verdict: verdict.id)
    return [(v.id, v.outcome, v.reason, v.value, v.scores) for v in verdicts]


async def test_the_apm_example_is_judged_whole_also_shared(tmp_path: Path) -> None:
    runs = []
    for number, isolation in enumerate(("branch", "branch", "shared")):
        systems = SYSTEMS if isolation == "branch" else SYSTEMS[:-1]
        scores, history = await run_of(
            tmp_path / str(number), benchmark="apm", data=APM, systems=systems, isolation=isolation
        )
        check_whole(history, len(systems))
        runs.append((tmp_path / str(number) / VERDICTS_NAME).read_bytes())
        assert {metric for v in history.of(VerdictEvent) if (metric := v.metric)} == {
            "mcq_accuracy",
            "decision",
        }
        assert value_of(scores, "oracle", "mcq_accuracy") == value_of(scores, "oracle", "decision") == 1.0
        assert value_of(scores, "null", "decision") == 0.0  # it decides nothing
    assert runs[0] == runs[1]
    assert len({outline.stream for outline in history.of(OutlineEvent) if outline.sessions}) == len(
        history.started.streams
    )


async def test_the_oracle_knows_what_is_right_by_then(tmp_path: Path) -> None:
    """One question, word for word, is asked on several days, and what is right has changed meanwhile."""
    data = (
        "synthetic:seed=1,histories=1,days=30,chunks_per_day=2,lines_per_chunk=2,facts_per_day=2,changed=60"
    )
    data += ",repeated=20"
    golds: dict[str, set[str]] = defaultdict(set)
    for probe in read_benchmark("lifedialbench", data).probes:
        golds[probe.text].add(probe.gold.option)
    assert any(len(options) > 1 for options in golds.values())
    scores, _ = await run_of(tmp_path, data=data, systems=("oracle",))
    assert value_of(scores, "oracle", "mcq_accuracy") == 1.0


@pytest.mark.data
async def test_real_sessions_are_ranked_as_a_hand_written_oracle_ranks_them(
    tmp_path: Path, data_dir: Path
) -> None:
    """Each answer's ranking, mapped to sessions by which session holds the record's text."""
    path = data_dir / "realmem"
    systems = ("null", "oracle", "bm25", "recency", BM25)
    scores, history = await run_of(
        tmp_path / "run", benchmark="realmem", data=str(path), systems=systems, segments=14, top_k=20
    )
    assert scores.complete
    check_whole(history, len(systems))
    session_of = {
        (event.lane, record.id): event.segment for event in history.of(DeltaEvent) for record in event.records
    }
    gold = {probe.anchor: set(probe.gold.segments) for probe in history.of(ProbeEvent)}
    answers = {answer.trajectory: answer for answer in history.of(ResponseEvent)}
    seen = 0
    for verdict in history.of(VerdictEvent):
        measure, _, k = verdict.metric.partition("@")
        ranked = list(
            dict.fromkeys(session_of[verdict.lane, r.id] for r in answers[verdict.trajectory].retrieved)
        )
        by_hand = {"recall_any": recall_any, "recall_all": recall_all, "ndcg": ndcg}[measure]
        expected = by_hand(ranked, gold[verdict.anchor], int(k))
        assert verdict.value == pytest.approx(expected, abs=1e-9)
        seen += bool(0 < expected < 1)
    assert seen > 20
    assert value_of(scores, "oracle", "recall_all@20") == 1.0
    newest = [answer for answer in answers.values() if answer.lane.startswith("recency@")]
    for answer in newest:
        order = [session_of[answer.lane, record.id] for record in answer.retrieved]
        assert order == list(range(answer.as_of or 0, -1, -1))[:20]
    again, _ = await run_of(
        tmp_path / "again", benchmark="realmem", data=str(path), systems=systems, segments=14, top_k=20
    )
    assert again.scores == scores.scores
    assert (tmp_path / "again" / VERDICTS_NAME).read_bytes() == (
        tmp_path / "run" / VERDICTS_NAME
    ).read_bytes()


@pytest.mark.data
def test_every_real_turn_lies_in_its_session_by_its_time_alone(data_dir: Path) -> None:
    """The judges know of a record its time, and nothing else."""
    found = read_benchmark("realmem", data_dir / "realmem")
    for outline in found.outlines:
        lifelog = found.lifelogs[outline.stream]
        for number, span in enumerate(lifelog.segments):
            for turn in lifelog.observations[span.first_seq : span.last_seq + 1]:
                before = sum(end_us <= turn.event_time_us for end_us in outline.segment_ends_us)
                assert before == number
    assert len(found.probes) == len(read_realmem(data_dir / "realmem").probes)


async def test_options_are_part_of_what_a_run_is(tmp_path: Path) -> None:
    def run_named(**more: Any) -> str:
        return plan_run(options_for(tmp_path / "out", **more)).started.run

    runs = [
        run_named(),
        run_named(asked="offline"),
        run_named(asked="both"),
        run_named(segments=5),
        run_named(data=LIFEDIAL.replace("seed=5", "seed=6")),
        run_named(isolation="shared"),
        run_named(benchmark="apm", data=APM),
    ]
    assert len(set(runs)) == len(runs)
    assert run_named(limits=Limits(open_trajectories=3)) == runs[0]


def test_apm_reads_the_language_that_is_asked_for(tmp_path: Path) -> None:
    day = tmp_path / "life" / "Transcript" / "A9_NOBODY" / "DAY1"
    day.mkdir(parents=True)
    cues = "1\n00:00:01,000 --> 00:00:03,000\nNora: 你好\nNora: Hello\n\n"
    (day / "A9_NOBODY_DAY1_10000000.srt").write_text(cues, encoding="utf-8")
    choice = {"kind": "choice", "id": "c", "task": "ER", "at": "DAY1 10:05", "question": "What did Nora say?"}
    choice |= {"options": ["Hello", "Nothing"], "golden": "A"}
    spec = {"id": "t", "stream": "A9_NOBODY", "registrations": [], "probes": [choice]}
    spec |= {"sessions": [{"id": "s", "start": "DAY1 10:00", "end": "DAY1 10:05", "activity": "talking"}]}
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps({"version": 1, "description": "", "data": "life", "trajectories": [spec]}))
    said = {}
    for language in ("en", "zh"):
        options = options_for(tmp_path / "out", benchmark="apm", data=str(tasks), language=language)
        (lifelog,) = plan_run(options).dataset.lifelogs.values()
        said[language] = [observation.text for observation in lifelog.observations]
    assert said == {"en": ["Nora: Hello"], "zh": ["Nora: 你好"]}


class Shaky(Ledger):
    """Its model is down for some questions, until it is not."""

    down: ClassVar[bool] = True

    async def answer(self, request: Request) -> Answer:
        if self.down and zlib.crc32(request.text.encode()) % 4 == 0:
            raise RuntimeError("the model is down")
        return await super().answer(request)


@pytest.mark.parametrize(
    "more", [{"asked": "both"}, {"benchmark": "apm", "data": APM}], ids=["lifedialbench", "apm"]
)
async def test_a_retry_makes_good_what_was_unjudged_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    out, systems = tmp_path / "down", ("shaky=tests.probes.test_runs:Shaky", "bm25")
    scores = await execute(plan_run(options_for(out, systems=systems, **more)))
    unjudged = {
        row.trajectory for row in scores.rows if "unjudged" in {m.outcome for m in row.marks.values()}
    }
    assert unjudged
    assert not scores.complete
    monkeypatch.setattr(Shaky, "down", False)
    whole, _ = await run_of(tmp_path / "whole", systems=systems, **more)
    async with open_run(out) as (log, started):
        plan = plan_retry(out, await read_results(log, started, out), RetryOptions())
        assert plan is not None
        assert set(plan.started.only) == unjudged
        again = await run_retry(out, log, plan, started)
    assert again.complete
    for part in ("scores", "groups", "findings"):
        assert getattr(again, part) == getattr(whole, part)
    async with open_run(out / "retry-1") as (log, started):
        history = await History.read(log, started.run)
    assert history.findings == ()
    assert {task.trajectory for task in history.of(TaskEvent)} == unjudged
    for outline in history.of(OutlineEvent):
        assert len(outline.segment_ends_us) == started.segments[outline.stream]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"ablate_commit": True}, "lifedialbench commits nothing"),
        ({"benchmark": "apm", "data": APM, "asked": "offline"}, "--asked is for lifedialbench"),
        ({"benchmark": "realmem", "asked": "both"}, "--asked is for lifedialbench"),
        (
            {"benchmark": "streammembench", "data": "synthetic:", "asked": "both"},
            "--asked is for lifedialbench",
        ),
        ({"streams": ("nobody",)}, "no stream nobody in synthetic:"),
        ({"segments": 0}, "segments is 0: it must be at least 1"),
        ({"segments": -1}, "segments is -1: it must be at least 1"),
        ({"segments": 1}, "holds nothing to ask: no probe is due within its first segments"),
        ({"data": "nowhere"}, "nowhere"),
    ],
)
async def test_what_can_not_be_asked_is_refused_and_says_why(
    tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    with pytest.raises((ConfigError, DatasetError), match=says):
        await execute(plan_run(options_for(tmp_path / "out", **more)))
    assert not (tmp_path / "out").exists()
