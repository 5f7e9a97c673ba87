"""A load as it is: real time, real files, the real command."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
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
from simulator.load.comparison import round_folder
from simulator.load.single import LoadOptions, execute_load, plan_load, read_latency
from simulator.load.sweep import load_folder
from simulator.runfolder import open_run
from tests.cli.helpers import DEADLINE_S, egostream, has, one_line, started, wait_for
from tests.load.test_histogram import parsed
from tests.load.virtual import run

DATA = "synthetic:wearers=2,segments_per_day=6,observations_per_segment=5,anchors_per_day=2"


def options(out: Path, system: str, **more: object) -> LoadOptions:
    load = Load(wearers=3, duration_s=2, rate=1500)
    return LoadOptions(**{"data": DATA, "system": system, "out": out, "load": load, **more})  # type: ignore[arg-type]


async def test_a_load_is_a_sound_run_and_its_report_a_fold_over_its_log(tmp_path: Path) -> None:
    # long enough for the process to say several times what it uses
    load = Load(wearers=3, duration_s=5, rate=1500)
    plan = plan_load(options(tmp_path / "run", "rag_raw:retrieval=bm25", load=load))
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


def test_ctrl_c_before_it_begins_promises_no_log(tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"
    slow = f"it=tests.load.systems:SlowToMake:until={go_on}"
    common = ("--data", DATA, "--wearers", 1, "--rate", 1500, "--duration", 1, "--out", tmp_path / "run")
    with started("load", slow, *common, cwd=Path(__file__).parents[2]) as process:
        assert process.stderr is not None
        assert "segments on 1 lane," in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        go_on.touch()
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "egostream: stopped before anything was published"
    assert not (tmp_path / "run").exists()


def test_a_load_that_somebody_steered_says_so(tmp_path: Path) -> None:
    common = ("--data", DATA, "--rate", 600, "--duration", 600, "--out", tmp_path)
    with started("load", "null", *common, cwd=tmp_path) as process:
        wait_for(lambda: has(tmp_path, "deltas"), process)
        assert egostream("ctl", tmp_path, "rate", 60000).code == 0
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    said = "The replay was told once to pause, go on or keep another rate"
    assert said in out
    assert said in (tmp_path / "report.html").read_text()


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


async def test_a_load_in_the_folder_of_several_is_not_taken_for_them(tmp_path: Path) -> None:
    names = ("sweep.json", "report.html")
    for name in names:
        (tmp_path / name).write_text("of before")
    short = Load(duration_s=0.5, rate=1500)
    with pytest.raises(ConfigError, match=r"already holds a sweep\.json: choose another"):
        await execute_load(plan_load(options(tmp_path, "null", load=short)))
    assert all((tmp_path / name).exists() for name in names)
    await execute_load(plan_load(options(tmp_path, "null", load=short, overwrite=True)))
    assert not any((tmp_path / name).exists() for name in names)


@pytest.mark.parametrize(
    ("result", "loads", "others"),
    [
        (
            "sweep.json",
            [load_folder(n + 1, value) for n, value in enumerate((600, 0.000123456, 37.5, 5e9, 12345678))],
            ["03-A", "04-old", "5-600"],
        ),
        (
            "compare.json",
            [round_folder(n, side) for n in (1, 100) for side in ("A", "B")],
            ["01-600", "02-C"],
        ),
    ],
)
async def test_what_replaces_several_loads_leaves_none_of_their_folders(
    tmp_path: Path, result: str, loads: list[str], others: list[str]
) -> None:
    out, short = tmp_path / "out", Load(duration_s=0.5, rate=1500)
    await execute_load(plan_load(options(tmp_path / "of before", "null", load=short)))
    for name in (*loads, *others):
        shutil.copytree(tmp_path / "of before", out / name)
    (out / loads[0] / "latency.json").unlink()  # it was stopped
    (out / loads[1] / "notes.txt").write_text("mine")
    shutil.copytree(tmp_path / "of before", tmp_path / "elsewhere")
    kept = ["07-1", "07-A", "08-1", "08-A", "09-1", "09-A"]
    for name in kept[:2]:
        (out / name).symlink_to(tmp_path / "elsewhere")
    for name in kept[2:4]:
        (out / name).mkdir()
    for name in kept[4:]:  # a run: it notes what it was asked for
        (out / name).mkdir()
        (out / name / "run.json").write_text('{"log":"log.db","run":"1","options":{"data":"x"}}')
    (out / result).write_text("of before")
    await execute_load(plan_load(options(out, "null", load=short, overwrite=True)))
    there = {path.name for path in out.iterdir() if path.is_dir()}
    assert there == {loads[1], *others, *kept}
    assert [path.name for path in (out / loads[1]).iterdir()] == ["notes.txt"]
    assert (tmp_path / "elsewhere" / "latency.json").is_file()
    assert not (out / result).exists()


def test_a_load_of_several_that_goes_on_is_not_replaced(tmp_path: Path) -> None:
    common = ("null", "--data", DATA, "--rate", 600)
    with started("load", *common, "--out", "02-600", cwd=tmp_path) as process:
        wait_for(lambda: has(tmp_path / "02-600", "observations"), process)
        (tmp_path / "sweep.json").write_text("of before")
        ran = egostream("load", *common, "--sweep", "rate", "--out", tmp_path, "--overwrite")
    assert (ran.code, f"(process {process.pid}): stop it first" in one_line(ran)) == (2, True)
    assert (tmp_path / "sweep.json").exists()


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
    "what",
    [("{}",), ("{}", "--json"), ("--compare", "null", "{}", "--rounds", 1)],
    ids=["load", "json", "compare"],
)
def test_a_reader_that_has_enough_leaves_the_exit_code_as_it_is(
    tmp_path: Path, what: tuple[object, ...]
) -> None:
    """As in `egostream load ... | head`."""
    asked = [str(word).format("it=tests.load.systems:FixedTime:hangs_at=1") for word in what]
    asked += ["--data", DATA, "--rate", "1500", "--duration", "1", "--drain", "0", "--out", str(tmp_path)]
    with started("load", *asked, "-q", cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 4
        assert process.stderr.read() == ""
    assert (tmp_path / "report.html").is_file()


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
