"""A load whose roles are processes of their own, and agents that attach to one: real processes, real files."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumers.audit import audit_log
from consumers.latency import STAGES, LatencyReport
from producers.arrivals import Load
from simulator.errors import ConfigError, ProcessError
from simulator.events import DeltaEvent, ReadyEvent, SegmentClosedEvent
from simulator.intake import decode_records, read_to_end
from simulator.load.machine import may_run_in_real_time
from simulator.load.single import LoadOptions, execute_load, plan_load, read_latency
from simulator.log import open_log
from simulator.log.protocol import header_of
from simulator.processes import run_processes
from simulator.runfolder import log_path, open_run
from simulator.timebase import BOOT
from simulator.topics import Topics, boot_of, wall_of
from simulator.workers import metered
from tests.adapters.http_servers import server
from tests.cli.helpers import DEADLINE_S, egostream, started
from tests.conftest import ROOT
from tests.workers.fleet import fleet

DATA = "synthetic:wearers=4,segments_per_day=6,observations_per_segment=5,anchors_per_day=2"
LOAD = Load(duration_s=5, rate=1500)
"""Long enough for each process to say several times what it uses."""
ONE_DEVICE = "it=tests.load.systems:OneDevice"


def options(out: Path, **more: object) -> LoadOptions:
    asked = {"data": DATA, "system": "null", "out": out, "load": LOAD, "drain_s": 30, **more}
    return LoadOptions(**asked)  # type: ignore[arg-type]  # options by name, as a test gives them


def check_whole(report: LatencyReport, segments: int) -> None:
    """Every stage of every segment, in order, by one clock."""
    assert report.segments == report.remembered == segments > 20
    assert (report.clocks, report.error_us) == ((), {})
    for stage in STAGES:
        numbers = report.stages[stage]
        assert numbers is not None
        assert (numbers.n, numbers.clipped) == (segments, 0)
    for earlier, later in itertools.pairwise(STAGES):
        assert report.stages[earlier].mean_us <= report.stages[later].mean_us  # type: ignore[union-attr]


async def test_roles_as_processes_are_measured_each_and_share_the_lanes(tmp_path: Path) -> None:
    plan = plan_load(options(tmp_path / "run", agents=2))
    with anyio.fail_after(250):
        report = await execute_load(plan)
    check_whole(report, sum(plan.plan.started.segments.values()))
    used = {use.process: use for use in report.processes}
    assert used.keys() == {"load", "replayer", "conductor", "agent.null.1", "agent.null.2"}
    assert all(use.cpu > 0 and use.rss_max_bytes > 2**20 for use in used.values())
    async with open_run(tmp_path / "run") as (log, started):
        assert await read_latency(log, started) == report
        assert (await audit_log(log, started)).sound
        topics = Topics.of(started.run)
        records = [record async for record in read_to_end(log, [topics.control, topics.observations])]
    events = decode_records(started.run, records)[0]
    # nothing was due before both had two partitions each, and the load had said so
    shares = {header_of(r.headers, "partitions") for event, r in events if isinstance(event, ReadyEvent)}
    assert {b"0,1", b"2,3"} <= shares
    (said_us,) = [
        wall_of(record.headers)
        for event, record in events
        if isinstance(event, ReadyEvent) and event.role == "load"
    ]
    dues_us = [wall_of(r.headers, "due_us") for event, r in events if isinstance(event, SegmentClosedEvent)]
    assert said_us is not None
    assert all(due_us is not None and due_us >= said_us for due_us in dues_us)
    assert {boot_of(r.headers) for event, r in events if isinstance(event, ReadyEvent)} == {BOOT}


async def ingested_us(out: Path) -> list[tuple[int, int]]:
    """When each ingest began and ended."""
    async with open_run(out) as (log, started):
        records = [record async for record in read_to_end(log, [Topics.of(started.run).deltas])]
        deltas = [r for event, r in decode_records(started.run, records)[0] if isinstance(event, DeltaEvent)]
    spans = [(wall_of(r.headers, "began_us"), wall_of(r.headers, "ended_us")) for r in deltas]
    return sorted((began, ended) for began, ended in spans if began is not None and ended is not None)


async def test_four_processes_do_at_once_what_one_does_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that does one thing at a time in a process, 20 ms each: one process does no more than 50 a second,
    however many lanes it has. (How many four do in fact is the benchmark's to say: it depends on the machine.)"""
    monkeypatch.chdir(ROOT)
    load = Load(wearers=4, duration_s=3, observations_per_second=400)  # 80 segments a second
    at_once: dict[int, int] = {}
    with anyio.fail_after(270):
        for agents in (1, 4):
            out = tmp_path / str(agents)
            asked = options(out, system=ONE_DEVICE, load=load, agents=agents)
            report = await execute_load(plan_load(asked))
            assert report.remembered == report.segments > 200
            ends_us = [ended for _, ended in await ingested_us(out)]
            if agents == 1:
                span_s = (max(ends_us) - min(ends_us)) / 1e6
                assert (len(ends_us) - 1) / span_s <= 50
            # each takes 20 ms, so of two that end within less, the later began before the earlier had ended
            ends_us.sort()
            at_once[agents] = sum(now - before < 19_000 for before, now in itertools.pairwise(ends_us))
    assert at_once[1] == 0
    assert at_once[4] > 0


def loading(out: Path, *more: object) -> AbstractContextManager[subprocess.Popen[str]]:
    """`egostream load --agents 2` of a minute, its processes under way."""
    command = ("load", "null", "--data", DATA, "--rate", 1500, "--duration", 60, "--agents", 2)
    return started(*command, "--out", out, "-q", *more, cwd=ROOT)


def roles(process: subprocess.Popen[str], out: Path) -> list[psutil.Process]:
    """The processes of the roles, once the load goes on."""

    async def published() -> bool:
        async with open_run(out) as (log, started):
            topic = Topics.of(started.run).observations
            return sum((await log.end_offsets([topic])).values()) > 0

    ends_s = time.monotonic() + 120
    while time.monotonic() < ends_s:
        assert process.poll() is None, process.communicate()
        if (out / "run.json").exists() and anyio.run(published):
            return psutil.Process(process.pid).children()
        time.sleep(0.1)
    raise AssertionError("nothing was published within two minutes")


def check_gone(processes: list[psutil.Process]) -> None:
    gone, alive = psutil.wait_procs(processes, timeout=DEADLINE_S)
    assert not alive
    assert len(gone) == 4  # replayer, conductor, two agents


def test_a_process_that_is_killed_ends_the_load_and_the_others(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with loading(out) as process:
        children = roles(process, out)
        children[-1].kill()
        said, error = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1
        assert (said, error.count("\n")) == ("", 1)
        assert "agent.null." in error
        assert "was killed by signal 9" in error
        check_gone(children)


@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_load_leaves_no_process(tmp_path: Path, with_signal: signal.Signals) -> None:
    out = tmp_path / "run"
    with loading(out) as process:
        children = roles(process, out)
        os.kill(process.pid, with_signal)
        _, error = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == (130 if with_signal is signal.SIGINT else -with_signal)
        assert ("what was published is in" in error) is (with_signal is signal.SIGINT)
        check_gone(children)
    if with_signal is signal.SIGINT:  # as it says
        assert f"egostream report {out}` reads the latencies off it" in error
        assert egostream("report", out).code == 0
        assert (out / "latency.json").is_file()


@pytest.mark.skipif(not may_run_in_real_time(), reason="needs Linux, and root or CAP_SYS_NICE")
def test_in_real_time_the_replayer_s_loop_runs_before_all_others_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    with loading(out, "--real-time") as process:
        children = roles(process, out)
        main_threads = [os.sched_getscheduler(child.pid) for child in children]
        others = [thread.id for child in children for thread in child.threads() if thread.id != child.pid]
        assert sorted(main_threads) == [os.SCHED_OTHER] * 3 + [os.SCHED_RR | os.SCHED_RESET_ON_FORK]
        assert {os.sched_getscheduler(thread) for thread in others} <= {os.SCHED_OTHER}
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.skipif(not may_run_in_real_time(), reason="needs Linux, and root or CAP_SYS_NICE")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights away")
def test_real_time_ends_for_one_who_may_not_take_the_flag_back() -> None:
    """As for a user whom RLIMIT_RTPRIO permits real time, and nothing else does."""
    program = (
        "import os; from simulator.load.machine import in_real_time\n"
        "with in_real_time(): os.setuid(65534)\n"
        "print(os.sched_getscheduler(0) == os.SCHED_OTHER | os.SCHED_RESET_ON_FORK)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_real_time_that_is_not_permitted_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with pytest.raises(ConfigError, match="CAP_SYS_NICE"):
        plan_load(options(tmp_path / "run", agents=1, real_time=True))
    assert not (tmp_path / "run").exists()


def test_a_system_that_can_t_be_made_is_one_line_with_the_reason(tmp_path: Path) -> None:
    asked = ("--data", DATA, "--rate", 1500, "--duration", 2, "-q", "--agents", 1, "--out", tmp_path / "run")
    ran = egostream("load", "rag_raw:retrieval=none", *asked)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "Invalid enum value 'none'" in ran.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"agents": 5}, "5 agents on 4 lanes"),
        ({"agents": 2, "attached": "mine", "system": ""}, "one of the two"),
        ({"attached": "mine"}, "one of the two"),
        ({"system": ""}, "one of the two"),
        ({"real_time": True}, "give --agents N as well"),
        ({"attached": "a@b", "system": ""}, "can't be an attached system's label"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, more: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan_load(options(tmp_path / "run", **more))


async def test_more_agents_than_partitions_that_a_run_would_have_get_one_each(tmp_path: Path) -> None:
    started = plan_load(options(tmp_path / "run", agents=6, load=Load(wearers=8, duration_s=3, rate=1500)))
    assert started.plan.started.partitions == 6


async def test_a_process_that_fails_says_its_last_words() -> None:
    with pytest.raises(ExceptionGroup) as failed, anyio.fail_after(60):
        await run_processes({"one": b"{}", "other": b"{}"}, ("worker", "load"), "one")
    (error, *_) = failed.value.exceptions
    assert isinstance(error, ProcessError)
    assert "missing required field" in str(error)


async def test_without_psutil_an_agent_of_a_load_says_once_that_it_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = plan_load(options(tmp_path / "run")).plan.started
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.delitem(sys.modules, "consumers.process_meter")
    async with open_log(str(tmp_path / "log.db")) as log:
        with capture_logs() as said:
            async with metered(log, started, "agent.null.1"):
                pass
            async with metered(log, replace(started, identity={}), "agent.null.1"):
                pass
    assert [(line["event"], line["process"]) for line in said] == [("not_metered", "agent.null.1")]


def attached_load(folder: Path, *system: object) -> LatencyReport:
    """`egostream load --attach mine`, and `egostream attach` in another process."""
    out = folder / "run"
    where = ("--log", log_path(out), "--run", "any")
    commands: dict[str, tuple[object, ...]] = {
        "load": ("load", "--attach", "mine", "--data", DATA, "--rate", 1500, "--duration", 3, "--out", out),
        "mine": ("attach", "--system", *system, "--as", "mine", *where),
    }
    with fleet(folder, commands) as processes:
        processes.start("load")
        processes.wait_for(lambda: (out / "run.json").exists(), deadline_s=90)
        processes.start("mine")
        processes.wait("load", "mine", deadline_s=180)
        assert "waits for mine: egostream attach --system MODULE:CLASS --as mine" in processes.said("load")

    async def read() -> LatencyReport:
        async with open_run(out) as (log, started):
            return await read_latency(log, started)

    return anyio.run(read)


def test_an_attached_agent_is_measured_with_its_process(tmp_path: Path) -> None:
    report = attached_load(tmp_path, "examples.own_memory:LongestLines")
    check_whole(report, report.segments)
    (agent,) = [use for use in report.processes if use.process.startswith("agent.mine.")]
    assert agent.cpu > 0


def test_one_that_never_ends_an_ingest_is_unfinished_and_no_hang(tmp_path: Path) -> None:
    out = tmp_path / "run"
    hanging = "tests.load.systems:FixedTime:hangs_at=2"
    commands: dict[str, tuple[object, ...]] = {
        "load": (
            *("load", "--attach", "mine", "--data", DATA, "--rate", 1500, "--duration", 2, "--drain", 2),
            *("--out", out, "-q", "--json"),
        ),
        "mine": ("attach", "--system", hanging, "--as", "mine", "--log", log_path(out), "--run", "any", "-q"),
    }
    with fleet(tmp_path, commands) as processes:
        processes.ends_with["load"] = 4
        processes.start("load")
        processes.wait_for(lambda: (out / "run.json").exists(), deadline_s=90)
        processes.start("mine")
        processes.wait("load", "mine", deadline_s=180)
    assert '"unfinished"' in processes.said("load")


async def test_an_agent_behind_http_is_measured(tmp_path: Path) -> None:
    with server("example") as url:
        plan = plan_load(options(tmp_path / "run", system=f"x=http:url={url}", agents=1))
        with anyio.fail_after(250):
            report = await execute_load(plan)
    check_whole(report, sum(plan.plan.started.segments.values()))
