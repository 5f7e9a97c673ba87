"""A load as it is: real time, real files, the real command."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from consumers.audit import audit_log
from consumers.histogram import Histogram
from consumers.latency import STAGES, LatencyReport
from producers.arrivals import Load
from simulator.errors import ConfigError
from simulator.load.single import LoadOptions, execute_load, plan_load, read_latency
from simulator.runfolder import open_run
from tests.cli.helpers import egostream, one_line
from tests.load.test_histogram import parsed
from tests.load.virtual import run

DATA = "synthetic:wearers=2,segments_per_day=6,observations_per_segment=5,anchors_per_day=2"


def options(out: Path, system: str, **more: object) -> LoadOptions:
    load = Load(wearers=3, duration_s=2, rate=1500)
    return LoadOptions(**{"data": DATA, "system": system, "out": out, "load": load, **more})  # type: ignore[arg-type]


async def test_a_load_is_a_sound_run_and_its_report_a_fold_over_its_log(tmp_path: Path) -> None:
    plan = plan_load(options(tmp_path / "run", "rag_raw:retrieval=bm25"))
    report = await execute_load(plan)
    assert report.lanes == 3
    assert report.observations == plan.offered.observations
    assert report.segments == report.remembered == sum(plan.plan.started.segments.values()) > 20
    for stage in STAGES:
        numbers = report.stages[stage]
        assert numbers is not None
        assert numbers.n == report.segments
    for earlier, later in itertools.pairwise(STAGES):  # each stage comes after the one before
        assert report.stages[earlier].mean_us <= report.stages[later].mean_us  # type: ignore[union-attr]
    merged = Histogram()
    for numbers in report.by_lane.values():
        assert numbers is not None
        merged.add(Histogram.of(numbers))
    assert merged.percentiles() == report.stages["remembered"]
    assert report.lag[-1].segments == 0
    assert report.processes
    async with open_run(tmp_path / "run") as (log, started):
        assert await read_latency(log, started) == report
        certificate = await audit_log(log, started)
    assert certificate.sound, certificate
    written = msgspec.json.decode((tmp_path / "run" / "latency.json").read_bytes(), type=LatencyReport)
    assert written == report
    rows, footer = parsed((tmp_path / "run" / "latency-remembered.hgrm").read_bytes())
    assert footer["TotalCount"] == rows[-1][2] == report.segments


@pytest.mark.parametrize("fault", ["fails_at=2", "hangs_at=2"])
def test_what_fails_or_never_ends_is_counted_and_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    asked = options(tmp_path, f"tests.load.systems:FixedTime:{fault}", drain_s=5)
    report = run(monkeypatch, partial(execute_load, plan_load(asked)))
    if fault.startswith("fails"):
        assert (report.failed, report.unfinished) == (3, 0)  # one of each lane
    else:
        assert report.failed == 0
        assert report.remembered == 2 * 3
        assert report.unfinished == report.segments - 6
        assert report.lag[-1].segments == report.highest.segments == report.unfinished
    assert report.segments == report.remembered + report.failed + report.unfinished


async def test_cancelled_it_leaves_a_log_that_can_be_read(tmp_path: Path) -> None:
    plan = plan_load(options(tmp_path / "run", "null"))
    with anyio.CancelScope() as scope:
        await execute_load(plan, lambda progress: scope.cancel() if progress.segments else None)
    assert scope.cancelled_caught
    async with open_run(tmp_path / "run") as (log, started):
        report = await read_latency(log, started)
    assert report.remembered >= 1
    assert report.segments == report.remembered + report.unfinished
    reported = await anyio.to_thread.run_sync(egostream, "report", tmp_path / "run")
    assert reported.code == 0, reported.err
    assert "latency.json was read off the log" in reported.err
    assert msgspec.json.decode((tmp_path / "run/latency.json").read_bytes(), type=LatencyReport) == report


def test_what_can_t_be_is_said_before_there_is_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    common = ("--data", DATA, "--rate", 1500, "--duration", 1, "--out", out)
    for given, said in (
        (("rag_raw:chunk_observations=0", "--agents", 1), "chunk_observations"),
        (("null", "--agents", 2, "--sweep", "wearers", "--wearers", 1), "no lanes for 2 agents"),
        (("null", "--again", 2), "--again goes with --sweep"),
        (("null", "--rounds", 2), "--rounds goes with --compare"),
    ):
        ran = egostream("load", *given, *common)
        assert ran.code == 2, given
        assert said in ran.err
        assert not out.exists()


async def test_a_folder_holds_one_load(tmp_path: Path) -> None:
    await execute_load(plan_load(options(tmp_path, "null", load=Load(duration_s=0.5, rate=1500))))
    with pytest.raises(ConfigError, match="already holds a run: choose another"):
        await execute_load(plan_load(options(tmp_path, "null")))


def test_the_command_prints_tables_and_json_and_says_what_is_missing(tmp_path: Path) -> None:
    common = ("--data", DATA, "--rate", 1500, "--duration", 1, "--out", tmp_path / "run")
    ran = egostream("load", "null", *common)
    assert ran.code == 0, ran.err
    assert "segments remembered." in ran.out
    assert "as measured from the send" in ran.out
    assert (tmp_path / "run" / "latency-ingest.hgrm").is_file()
    ran = egostream("load", "null", *common, "--json", "--overwrite", "-q")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == json.loads((tmp_path / "run" / "latency.json").read_text())

    broken = "tests.load.systems:FixedTime:fails_at=1"
    ran = egostream("load", broken, *common, "--overwrite", cwd=Path(__file__).parents[2])
    assert ran.code == 4
    assert "2 failed, 0 unfinished: the percentiles hold for the others only" in ran.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("null", "--data", DATA), "give either --rate or --observations-per-second"),
        (("null", "--data", DATA, "--rate", 1), "take a longer --duration or a higher rate"),
        (("nobody", "--data", DATA, "--rate", 1500), "nobody"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[object, ...], says: str
) -> None:
    ran = egostream("load", *arguments, "--out", tmp_path / "run", "-q")
    assert ran.code == 2
    assert says in one_line(ran)
    assert not (tmp_path / "run").exists()
